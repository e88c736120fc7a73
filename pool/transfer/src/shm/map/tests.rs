use std::fs::{self, File};

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use proptest::prelude::*;

use super::super::testing::{memfd, sealed};
use super::*;

const PAGE: u64 = 4096;

fn run(region: u32, page_index: u32, page_count: u32) -> Run {
    Run { region, page_index, page_count }
}

/// Two regions of 8 pages, numbers 3 and 1.
fn two_regions() -> Map {
    Map::new(vec![sealed(3, 8 * PAGE), sealed(1, 8 * PAGE)], PAGE).unwrap()
}

fn bytes(count: u64) -> Vec<u8> {
    (0..count).map(|byte| (byte * 31 / 7).to_le_bytes()[0]).collect()
}

#[test]
fn an_object_over_runs_of_two_regions_comes_back() {
    let map = two_regions();
    let runs = [run(3, 6, 2), run(1, 0, 1), run(3, 0, 1)];
    let object = bytes(3 * PAGE + 17);
    map.write(&runs, &object).unwrap();
    let mut out = vec![0; object.len() + 5];
    map.read(&runs, object.len() as u64, &mut out).unwrap();
    assert_eq!(out[..object.len()], object);
    assert_eq!(out[object.len()..], [0; 5]);

    let mut third_page = vec![0; 100];
    map.read_at(&[run(1, 0, 1)], 0, &mut third_page).unwrap();
    assert_eq!(third_page, object[2 * 4096..2 * 4096 + 100]);
    map.write_at(&runs, 2 * PAGE - 2, b"edge").unwrap();
    map.read_at(&runs, 2 * PAGE - 3, &mut third_page[..6]).unwrap();
    assert_eq!(third_page[1..5], *b"edge");
    assert_eq!(third_page[0], object[2 * 4096 - 3]);
}

// A grant from a server gone mad is an error, never a touch outside of the region.
#[test]
fn runs_outside_their_region_are_named() {
    let map = two_regions();
    let mut out = [0];
    for outside in
        [run(1, 8, 1), run(1, 0, 9), run(1, u32::MAX, 1), run(1, u32::MAX, u32::MAX), run(3, 9, 0)]
    {
        let error = CopyError::OutsideRegion { run: outside, page_count: 8 };
        assert_eq!(map.write(&[outside], &[1]), Err(error));
        assert_eq!(map.read(&[outside], 1, &mut out), Err(error));
        // Also one that the bytes would not reach.
        assert_eq!(map.write(&[run(1, 0, 1), outside], &[1]), Err(error));
    }
    let error = map.write(&[run(1, 7, 2)], &[1]).unwrap_err();
    assert_eq!(error.to_string(), "2 pages from page 7 of region 1, which has 8 pages");
    assert_eq!(map.write(&[run(2, 0, 1)], &[]), Err(CopyError::UnknownRegion { region: 2 }));
}

#[test]
fn more_bytes_than_the_pages_or_the_buffer_hold_are_refused() {
    let map = two_regions();
    let one = [run(1, 0, 1)];
    let long = bytes(PAGE + 1);
    let error = CopyError::TooLong { offset: 0, bytes: PAGE + 1, capacity_bytes: PAGE };
    assert_eq!(map.write(&one, &long), Err(error));
    assert_eq!(map.write_at(&one, PAGE, &[]), Ok(()));
    for offset in [PAGE, u64::MAX] {
        let error = CopyError::TooLong { offset, bytes: 1, capacity_bytes: PAGE };
        assert_eq!(map.write_at(&one, offset, &[1]), Err(error));
    }
    assert!(matches!(map.write(&[], &[1]), Err(CopyError::TooLong { capacity_bytes: 0, .. })));
    assert_eq!(map.write(&[], &[]), Ok(()));
    for object_bytes in [11, u64::MAX] {
        let error = CopyError::BufferTooSmall { object_bytes, buffer_bytes: 10 };
        assert_eq!(map.read(&one, object_bytes, &mut [0; 10]), Err(error));
    }
}

// A region of no whole number of pages has only its whole ones.
#[test]
fn the_rest_of_a_region_is_no_page() {
    let map = Map::new(vec![sealed(0, 2 * PAGE + 64)], PAGE).unwrap();
    assert!(map.write(&[run(0, 2, 1)], &[1]).is_err());
    assert!(map.write(&[run(0, 1, 1)], &[1]).is_ok());
}

#[test]
fn only_sealed_memfds_of_the_said_size_are_mapped() {
    let refused = |spec| Map::new(vec![spec], PAGE).unwrap_err();
    let unsealed = memfd(c"maru-unsealed", PAGE).into();
    let error = refused(MappedSpec { region: 5, bytes: PAGE, fd: unsealed });
    assert!(matches!(error, MapError::NotSealed { region: 5 }), "{error}");

    let half_sealed = memfd(c"maru-half-sealed", PAGE);
    fcntl(&half_sealed, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK)).unwrap();
    let error = refused(MappedSpec { region: 5, bytes: PAGE, fd: half_sealed.into() });
    assert!(matches!(error, MapError::NotSealed { region: 5 }), "{error}");

    let file = tempfile::tempfile().unwrap();
    file.set_len(PAGE).unwrap();
    let error = refused(MappedSpec { region: 5, bytes: PAGE, fd: file.into() });
    assert!(matches!(error, MapError::NotSealed { region: 5 }), "{error}");
    let null = File::open("/dev/null").unwrap().into();
    let error = refused(MappedSpec { region: 5, bytes: PAGE, fd: null });
    assert!(matches!(error, MapError::NotSealed { region: 5 }), "{error}");

    for bytes in [0, PAGE + 1, u64::MAX] {
        let error = refused(MappedSpec { bytes, ..sealed(5, PAGE) });
        assert!(matches!(error, MapError::Size { file_bytes: PAGE, .. }), "{error}");
    }
    let error = Map::new(vec![sealed(5, PAGE), sealed(5, PAGE)], PAGE).unwrap_err();
    assert!(matches!(error, MapError::Twice { region: 5 }), "{error}");
    assert!(matches!(Map::new(vec![], 0), Err(MapError::PageBytes)));
}

/// Maps a region whose file then loses its last page, which the seals would have kept.
fn last_page_lost() -> Map {
    guard::install().unwrap();
    let file = memfd(c"maru-cut", 4 * PAGE);
    let fd = file.try_clone().unwrap().into();
    let region = MappedRegion::new(&MappedSpec { region: 9, bytes: 4 * PAGE, fd }, PAGE).unwrap();
    file.set_len(3 * PAGE).unwrap();
    Map { regions: vec![region], page_bytes: PAGE }
}

#[test]
fn a_lost_page_is_an_error_that_names_it() {
    let map = last_page_lost();
    let mut out = vec![0; 4 * 4096];
    let error = CopyError::Fault { region: 9, page_index: 3 };
    assert_eq!(map.read(&[run(9, 0, 4)], 4 * PAGE, &mut out), Err(error));
    assert_eq!(map.write(&[run(9, 0, 4)], &out), Err(error));
    assert_eq!(map.write(&[run(9, 0, 3)], &out[..3 * 4096]), Ok(()));
}

#[test]
fn a_lost_buffer_is_not_blamed_on_the_pool() {
    let map = two_regions();
    let file = memfd(c"maru-buffer", 2 * PAGE);
    // SAFETY: nobody else knows the file. Its second page is lost on purpose; only the guarded
    // copy touches it.
    let mut buffer = unsafe { MmapOptions::new().map_mut(&file) }.unwrap();
    file.set_len(PAGE).unwrap();
    let runs = [run(1, 0, 2)];
    let error = map.write(&runs, &buffer).unwrap_err();
    let address = buffer.as_ptr() as usize + 4096;
    assert_eq!(error, CopyError::BufferFault { address });
    assert_eq!(map.read(&runs, 2 * PAGE, &mut buffer), Err(error));
}

/// Gives the flags of each map of files with this name: permissions and `VmFlags`.
fn maps_named(name: &str) -> Vec<(String, String)> {
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut found = Vec::new();
    let mut permissions = None;
    for line in smaps.lines() {
        if line.contains(&format!("/memfd:{name}")) {
            permissions = line.split(' ').nth(1).map(str::to_owned);
        } else if let (Some(flags), true) = (line.strip_prefix("VmFlags:"), permissions.is_some()) {
            found.extend(permissions.take().map(|permissions| (permissions, flags.to_owned())));
        }
    }
    found
}

// Loads come from a read-only map, children inherit neither map, and both end with the `Map`.
#[test]
fn a_region_is_mapped_twice_and_unmapped() {
    let file = memfd(c"maru-named-once", PAGE);
    let seals = FcntlArg::F_ADD_SEALS(SEALS);
    fcntl(&file, seals).unwrap();
    let map = Map::new(vec![MappedSpec { region: 0, bytes: PAGE, fd: file.into() }], PAGE).unwrap();
    let mut maps = maps_named("maru-named-once");
    maps.sort();
    let permissions: Vec<_> = maps.iter().map(|(permissions, _)| permissions.as_str()).collect();
    assert_eq!(permissions, ["r--s", "rw-s"]);
    assert!(maps.iter().all(|(_, flags)| flags.split(' ').any(|flag| flag == "dc")), "{maps:?}");
    drop(map);
    assert_eq!(maps_named("maru-named-once"), []);
}

// X5: a forked child that outlives its parent cannot write through an inherited map.
#[test]
fn a_forked_child_does_not_inherit_the_map() {
    let map = two_regions();
    map.write(&[run(1, 0, 1)], b"here").unwrap();
    let maps = [map.regions[0].writable.as_mut_ptr(), map.regions[0].readable.as_mut_ptr()];
    // SAFETY: the child makes two system calls and ends.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            let absent = maps.into_iter().all(|start| {
                // SAFETY: msync(2) touches no byte; it says ENOMEM where nothing is mapped.
                unsafe { libc::msync(start.cast(), 4096, libc::MS_ASYNC) == -1 }
            });
            // SAFETY: ends the child without running the parent's code.
            unsafe { libc::_exit(i32::from(!absent)) };
        }
        ForkResult::Parent { child } => {
            assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0));
        }
    }
    // SAFETY: as in the child; here the map is there.
    assert_eq!(unsafe { libc::msync(maps[0].cast(), 4096, libc::MS_ASYNC) }, 0);
}

proptest! {
    // Any writes and reads over any runs agree with plain vectors.
    #[test]
    fn copies_agree_with_a_model(
        steps in prop::collection::vec(
            (
                prop::collection::vec((0..2_u32, 0..9_u32, 0..4_u32), 0..4),
                0..4 * PAGE,
                0..3 * 4096_usize,
                any::<u8>(),
            ),
            1..20,
        ),
    ) {
        let map = Map::new(vec![sealed(0, 8 * PAGE), sealed(1, 8 * PAGE)], PAGE).unwrap();
        let mut model = vec![vec![0_u8; 8 * 4096]; 2];
        for (runs, offset, length, seed) in steps {
            let runs: Vec<Run> = runs.iter().map(|(r, i, c)| run(*r, *i, *c)).collect();
            let inside = runs.iter().all(|run| run.page_index + run.page_count <= 8);
            let places: Vec<(usize, usize)> = runs
                .iter()
                .flat_map(|run| {
                    let start = run.page_index as usize * 4096;
                    let region = run.region as usize;
                    (start..start + run.page_count as usize * 4096).map(move |at| (region, at))
                })
                .skip(usize::try_from(offset).unwrap())
                .take(length)
                .collect();
            let fits = inside && places.len() == length
                && offset <= runs.iter().map(|run| u64::from(run.page_count) * PAGE).sum();
            let bytes = vec![seed; length];
            prop_assert_eq!(map.write_at(&runs, offset, &bytes).is_ok(), fits);
            let mut out = vec![!seed; length];
            prop_assert_eq!(map.read_at(&runs, offset, &mut out).is_ok(), fits);
            if fits {
                places.iter().for_each(|(region, at)| model[*region][*at] = seed);
                prop_assert_eq!(out, bytes);
            }
        }
        for (region, expected) in (0..).zip(&model) {
            let mut out = vec![0; 8 * 4096];
            map.read(&[run(region, 0, 8)], 8 * PAGE, &mut out).unwrap();
            prop_assert!(&out == expected);
        }
    }
}
