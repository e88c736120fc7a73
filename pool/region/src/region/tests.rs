use std::cell::RefCell;
use std::fs;

use super::*;

const MIB: u64 = 1 << 20;

fn spec(bytes: u64) -> RegionSpec {
    let name = "maru-test".to_owned();
    RegionSpec { region: 7, kind: RegionKind::Memfd, bytes, node: None, name }
}

// A memfd larger than memory is refused by numbers before anything is taken.
#[test]
fn a_memfd_larger_than_memory_names_need_and_have() {
    let bytes = 1 << 45;
    let error = Region::create(&spec(bytes)).unwrap_err();
    let RegionError::Memory { need_bytes, available, kept_bytes } = &error else {
        panic!("{error}")
    };
    assert_eq!(*need_bytes, bytes);
    let free = available.bytes().saturating_sub(*kept_bytes);
    let text = error.to_string();
    assert!(text.contains(&format!("a region of {bytes} bytes is larger than the {free} bytes")));
    assert!(text.contains("make the pool smaller"), "{text}");
}

#[test]
fn sizes_that_are_none_are_refused() {
    for bytes in [0, 1, 4095, 4097, u64::MAX] {
        let error = Region::create(&spec(bytes)).unwrap_err();
        assert!(matches!(error, RegionError::Size { unit: 4096, .. }), "{bytes}: {error}");
    }
    let kind = RegionKind::HugePages { page_bytes: 0 };
    let error = Region::create(&RegionSpec { kind, ..spec(MIB) }).unwrap_err();
    assert!(matches!(error, RegionError::Size { .. }));
    for name in ["a\0b".to_owned(), "x".repeat(NAME_BYTES_MAX + 1)] {
        let error = Region::create(&RegionSpec { name, ..spec(MIB) }).unwrap_err();
        assert!(matches!(error, RegionError::Name { .. }));
    }
}

#[test]
fn a_region_can_neither_shrink_nor_grow_nor_be_unsealed() {
    let region = Region::create(&spec(MIB)).unwrap();
    for length in [0, 4096, 2 << 20] {
        assert_eq!(ftruncate(region.descriptor(), length), Err(Errno::EPERM));
    }
    let seal = FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_WRITE);
    assert_eq!(fcntl(region.descriptor(), seal), Err(Errno::EPERM));
    assert_eq!(region.bytes(), MIB);
}

#[test]
fn populate_takes_all_memory_in_slices_and_tells_of_each() {
    let bytes = SLICE_BYTES + 4096;
    let region = Region::create(&spec(bytes)).unwrap();
    assert_eq!(region.resident_bytes(), 0);
    let told = RefCell::new(Vec::new());
    let populated = region.populate(&|done| told.borrow_mut().push(done)).unwrap();
    assert_eq!(populated, Populated { bytes, placement_refused: None });
    assert_eq!(told.into_inner(), [SLICE_BYTES, bytes]);
    assert!(region.resident_bytes() >= bytes);
    assert!(region.populate(&|_| ()).is_ok());
}

// Clients get the descriptor by message only, never by inheritance over exec.
#[test]
fn the_descriptor_closes_on_exec() {
    let region = Region::create(&spec(4096)).unwrap();
    let flags = fcntl(region.descriptor(), FcntlArg::F_GETFD).unwrap();
    assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
}

#[test]
fn huge_pages_that_are_missing_name_nr_hugepages() {
    let kind = RegionKind::HugePages { page_bytes: 2 * MIB };
    let error = Region::create(&RegionSpec { kind, ..spec(1 << 45) }).unwrap_err();
    assert!(error.to_string().contains("huge pages"), "{error}");
    let kind = RegionKind::HugePages { page_bytes: 4 * MIB };
    let error = Region::create(&RegionSpec { kind, ..spec(4 * MIB) }).unwrap_err();
    assert!(matches!(error, RegionError::HugePageSize { .. }), "{error}");
}

/// Has two huge pages of 2 MiB more for as long as it lives. Setting that needs root.
struct HugePages {
    path: String,
    before: u64,
}

impl HugePages {
    fn add_two() -> Option<Self> {
        let path = format!("{HUGE_PAGES_DIRECTORY}/hugepages-2048kB/nr_hugepages");
        let before = fs::read_to_string(&path).ok()?.trim().parse().ok()?;
        fs::write(&path, format!("{}\n", before + 2)).ok()?;
        Some(Self { path, before })
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        fs::write(&self.path, format!("{}\n", self.before)).unwrap();
    }
}

#[test]
fn a_huge_page_region_reserves_at_once_and_populates() {
    let Some(_huge_pages) = HugePages::add_two() else {
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "needs root and huge pages");
        println!("skipped: needs root, to set nr_hugepages");
        return;
    };
    let bytes = 4 * MIB;
    let kind = RegionKind::HugePages { page_bytes: 2 * MIB };
    let region = Region::create(&RegionSpec { kind, ..spec(bytes) }).unwrap();
    assert_eq!(ftruncate(region.descriptor(), 0), Err(Errno::EPERM));
    let reserved = format!("{HUGE_PAGES_DIRECTORY}/hugepages-2048kB/resv_hugepages");
    let reserved: u64 = fs::read_to_string(reserved).unwrap().trim().parse().unwrap();
    assert!(reserved >= 2);
    let error = Region::create(&RegionSpec { kind, ..spec(1 << 40) }).unwrap_err();
    assert!(error.to_string().contains("echo 524"), "{error}");
    assert_eq!(region.populate(&|_| ()).unwrap().bytes, bytes);
    assert_eq!(region.resident_bytes(), bytes);
}
