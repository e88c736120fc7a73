//! The machine's huge pages: which sizes there are, and how many are free.

use std::fs;
use std::path::{Path, PathBuf};

use crate::RegionError;

/// Where the kernel tells of huge pages and takes their number.
pub(crate) const HUGE_PAGES_DIRECTORY: &str = "/sys/kernel/mm/hugepages";

/// Checks that `need_pages` huge pages can be had, before the kernel is asked for them.
pub(crate) fn check_huge_pages(
    directory: &Path,
    page_bytes: u64,
    need_pages: u64,
) -> Result<(), RegionError> {
    let page_kib = page_bytes / 1024;
    let own = directory.join(format!("hugepages-{page_kib}kB"));
    let Some(nr) = number(&own, "nr_hugepages") else {
        return Err(RegionError::HugePageSize { page_bytes, sizes_kib: sizes_kib(directory) });
    };
    let count = |name| number(&own, name).unwrap_or(0);
    let surplus_left = count("nr_overcommit_hugepages").saturating_sub(count("surplus_hugepages"));
    let free = count("free_hugepages").saturating_sub(count("resv_hugepages"));
    let free_pages = free.saturating_add(surplus_left);
    if need_pages <= free_pages {
        return Ok(());
    }
    let nr_wanted = nr.saturating_add(need_pages - free_pages);
    Err(RegionError::HugePages { need_pages, page_kib, free_pages, nr_wanted })
}

/// Lists the sizes of the machine's huge pages, in KiB.
fn sizes_kib(directory: &Path) -> Vec<u64> {
    let entries = directory.read_dir().into_iter().flatten();
    let mut sizes: Vec<u64> = entries
        .filter_map(|entry| {
            let name = entry.ok()?.file_name();
            name.to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()
        })
        .collect();
    sizes.sort_unstable();
    sizes
}

fn number(directory: &Path, name: &str) -> Option<u64> {
    let path: PathBuf = directory.join(name);
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn machine(nr: u64, free: u64, promised: u64) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join("hugepages-2048kB");
        fs::create_dir(&own).unwrap();
        fs::create_dir(root.path().join("hugepages-1048576kB")).unwrap();
        let numbers =
            [("nr_hugepages", nr), ("free_hugepages", free), ("resv_hugepages", promised)];
        for (name, value) in numbers {
            fs::write(own.join(name), format!("{value}\n")).unwrap();
        }
        root
    }

    #[test]
    fn promised_huge_pages_are_not_free() {
        let root = machine(10, 8, 3);
        assert!(check_huge_pages(root.path(), 2 * MIB, 5).is_ok());
        let error = check_huge_pages(root.path(), 2 * MIB, 6).unwrap_err().to_string();
        assert!(error.contains("6 huge pages of 2048 KiB, and 5 are free"), "{error}");
        assert!(error.contains("set nr_hugepages to at least 11"), "{error}");
    }

    #[test]
    fn overcommit_counts_as_free() {
        let root = machine(0, 0, 0);
        fs::write(root.path().join("hugepages-2048kB/nr_overcommit_hugepages"), "4\n").unwrap();
        fs::write(root.path().join("hugepages-2048kB/surplus_hugepages"), "1\n").unwrap();
        assert!(check_huge_pages(root.path(), 2 * MIB, 3).is_ok());
        assert!(check_huge_pages(root.path(), 2 * MIB, 4).is_err());
    }

    #[test]
    fn a_size_that_the_machine_lacks_names_those_it_has() {
        let root = machine(0, 0, 0);
        let error = check_huge_pages(root.path(), 16 * MIB, 1).unwrap_err();
        assert!(error.to_string().contains("[2048, 1048576]"), "{error}");
    }
}
