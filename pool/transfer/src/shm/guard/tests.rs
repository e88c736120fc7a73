use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::sync::Barrier;
use std::thread;

use memmap2::{MmapOptions, MmapRaw};

use super::super::testing::{child, memfd, role};
use super::*;

const PAGE: usize = 4096;
/// The exit code of a child whose own handler was called.
const HANDLED: i32 = 42;

/// A map of which only the first half has memory behind it.
struct HalfLost {
    map: MmapRaw,
    _file: File,
}

impl HalfLost {
    fn new(pages: usize) -> Self {
        let file = memfd(c"maru-half-lost", (pages * PAGE) as u64);
        let map = MmapOptions::new().len(pages * PAGE).map_raw(&file).unwrap();
        file.set_len((pages * PAGE / 2) as u64).unwrap();
        Self { map, _file: file }
    }

    fn first_lost(&self) -> usize {
        self.map.as_ptr() as usize + self.map.len() / 2
    }

    fn read_into(&self, out: &mut [u8]) -> Result<(), Fault> {
        // SAFETY: the test's buffer is no longer than the map.
        unsafe { copy(out.as_mut_ptr(), self.map.as_ptr(), out.len()) }
    }

    fn write_from(&self, bytes: &[u8]) -> Result<(), Fault> {
        // SAFETY: the test's bytes are no longer than the map.
        unsafe { copy(self.map.as_mut_ptr(), bytes.as_ptr(), bytes.len()) }
    }

    /// Reads a lost byte without the guard.
    fn touch(&self) {
        // SAFETY: the address is mapped; what comes of it is what the test is about.
        let byte = unsafe { self.map.as_ptr().add(self.map.len() - 1) };
        // SAFETY: as above.
        unsafe { byte.read_volatile() };
    }
}

#[test]
fn every_length_and_alignment_copies_exactly_its_bytes() {
    install().unwrap();
    let source: Vec<u8> = (0..300_000_u32).map(|byte| (byte * 7 / 3).to_le_bytes()[0]).collect();
    // From 256 KiB on the copy goes another way.
    for length in (0..=130).chain([511, 512, 513]).chain(262_140..262_280) {
        for (from, to) in [(0, 0), (1, 0), (0, 1), (3, 7), (15, 16), (63, 1)] {
            let mut target = vec![0xEE; to + length + 64];
            // SAFETY: both ranges lie in their vectors.
            let outcome = unsafe {
                copy(
                    target.as_mut_ptr().wrapping_add(to),
                    source.as_ptr().wrapping_add(from),
                    length,
                )
            };
            assert_eq!(outcome, Ok(()));
            assert!(target[..to].iter().all(|byte| *byte == 0xEE));
            assert_eq!(target[to..to + length], source[from..from + length]);
            assert!(target[to + length..].iter().all(|byte| *byte == 0xEE), "{length}");
        }
    }
}

// A lost page is an error with its address, and all bytes before it are copied.
#[test]
fn a_fault_names_its_address_at_either_side() {
    install().unwrap();
    for pages in [8, 128] {
        let lost = HalfLost::new(pages);
        let half = pages * PAGE / 2;
        let bytes: Vec<u8> = (0..2 * half).map(|byte| byte.to_le_bytes()[0] | 1).collect();
        let fault = Fault { address: lost.first_lost() };
        assert_eq!(lost.write_from(&bytes), Err(fault));
        assert_eq!(lost.write_from(&bytes[..half]), Ok(()));
        let mut out = vec![0; 2 * half];
        assert_eq!(lost.read_into(&mut out), Err(fault));
        assert!(out[..half] == bytes[..half]);
        assert!(out[half..].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn short_copies_fault_too() {
    install().unwrap();
    let lost = HalfLost::new(2);
    for length in [1, 8, 63, 64, 65, 127] {
        let mut out = [0; 128];
        // SAFETY: the source is mapped (without memory), the target is the test's.
        let outcome = unsafe { copy(out.as_mut_ptr(), lost.first_lost() as *const u8, length) };
        assert!(matches!(outcome, Err(Fault { address }) if address >= lost.first_lost()));
    }
}

#[test]
fn many_threads_fault_at_once() {
    install().unwrap();
    let lost = HalfLost::new(4);
    let start = Barrier::new(4);
    thread::scope(|scope| {
        for number in 0..4_u8 {
            let (lost, start) = (&lost, &start);
            scope.spawn(move || {
                let mut buffer = vec![number; 4 * PAGE];
                start.wait();
                for _ in 0..500 {
                    let fault = Err(Fault { address: lost.first_lost() });
                    assert_eq!(lost.read_into(&mut buffer), fault);
                    assert_eq!(lost.write_from(&buffer), fault);
                    assert_eq!(lost.read_into(&mut buffer[..2 * PAGE]), Ok(()));
                }
            });
        }
    });
}

// Threads of C or Python have no alternate signal stack.
#[test]
fn a_thread_of_another_language_survives() {
    extern "C" fn body(lost: *mut c_void) -> *mut c_void {
        // SAFETY: the test passes a reference and joins the thread.
        let lost = unsafe { &*lost.cast::<HalfLost>() };
        let fault = lost.read_into(&mut [0; 4 * PAGE]).unwrap_err();
        fault.address as *mut c_void
    }
    install().unwrap();
    let mut lost = HalfLost::new(4);
    let argument = (&raw mut lost).cast();
    let mut thread = 0;
    // SAFETY: the body and its argument outlive the thread, which is joined below.
    let made = unsafe { libc::pthread_create(&raw mut thread, ptr::null(), body, argument) };
    assert_eq!(made, 0);
    let mut address = ptr::null_mut();
    // SAFETY: the thread was made above and is joined once.
    assert_eq!(unsafe { libc::pthread_join(thread, &raw mut address) }, 0);
    assert_eq!(address as usize, lost.first_lost());
}

extern "C" fn exit_with_information(_: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the guard passes the kernel's structure on.
    let known = !info.is_null() && unsafe { (*info).si_signo } == libc::SIGBUS;
    // SAFETY: `_exit` is async-signal-safe.
    unsafe { libc::_exit(if known { HANDLED } else { 1 }) };
}

extern "C" fn exit_with_number(number: c_int) {
    // SAFETY: `_exit` is async-signal-safe.
    unsafe { libc::_exit(if number == libc::SIGBUS { HANDLED } else { 1 }) };
}

fn handle_bus_errors(handler: libc::sighandler_t, flags: c_int) {
    let mut action = empty_action();
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    // SAFETY: a whole structure, with a handler that does only what one may.
    assert_eq!(unsafe { libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) }, 0);
}

/// Plays a part in a child process: each sets what handles SIGBUS before the guard does.
#[test]
fn child_with_a_handler_of_its_own() {
    let Some(role) = role() else { return };
    let (before, act) = role.split_once(' ').unwrap();
    match before {
        "information" => {
            let handler = exit_with_information as *const () as usize;
            handle_bus_errors(handler, libc::SA_SIGINFO | libc::SA_ONSTACK);
        }
        "number" => handle_bus_errors(exit_with_number as *const () as usize, 0),
        "default" => handle_bus_errors(libc::SIG_DFL, 0),
        "ignore" => handle_bus_errors(libc::SIG_IGN, 0),
        _ => assert_eq!(before, "rust"),
    }
    install().unwrap();
    assert!(fault_guard_is_installed());
    let lost = HalfLost::new(2);
    // The guard's own faults never reach whoever handled the signal before.
    assert!(lost.read_into(&mut [0; 2 * PAGE]).is_err());
    match act {
        "touch" => lost.touch(),
        // SAFETY: raises a signal in this thread.
        _ => assert_eq!(unsafe { libc::raise(libc::SIGBUS) }, 0),
    }
    // SAFETY: ends the process without the test's own exit code.
    unsafe { libc::_exit(0) };
}

fn run_child(role: &str) -> (Option<i32>, Option<i32>) {
    let test = "shm::guard::tests::child_with_a_handler_of_its_own";
    let status = child(test, role).output().unwrap().status;
    (status.code(), status.signal())
}

#[test]
fn other_faults_and_signals_reach_whoever_handled_them_before() {
    for before in ["information", "number"] {
        for act in ["touch", "raise"] {
            assert_eq!(run_child(&format!("{before} {act}")), (Some(HANDLED), None), "{before}");
        }
    }
}

#[test]
fn without_a_handler_before_other_faults_end_the_process() {
    for role in ["default touch", "default raise", "ignore touch", "rust touch"] {
        assert_eq!(run_child(role), (None, Some(libc::SIGBUS)), "{role}");
    }
}

#[test]
fn an_ignored_signal_stays_ignored() {
    assert_eq!(run_child("ignore raise"), (Some(0), None));
}
