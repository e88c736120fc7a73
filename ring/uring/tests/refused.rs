//! Systems that refuse io_uring (a filter of system calls, no locked memory), and forks. Each needs
//! a process of its own, which is this test binary started again.

use std::process::Command;

use maru_uring::{Io, IoMode, Reactor, ReactorConfig, ReactorError};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Uid, fork, setresuid};
use seccompiler::{SeccompAction, SeccompFilter, apply_filter};

use crate::bench::{Bench, Kind, Random, config};

const CHILD: &str = "MARU_URING_TEST_CHILD";

/// Runs the test `name` of this binary with what it does as a child switched on.
fn run_child(name: &str) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(CHILD, name)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    assert!(text.contains("1 passed"), "{text}");
}

fn is_child(name: &str) -> bool {
    std::env::var(CHILD).is_ok_and(|child| child == name)
}

/// Auto falls back, says why in one line, and serves; Uring fails, typed.
fn check_refusal(reason: &str) {
    let mut bench = Bench::with(ReactorConfig { ring_attempts: 2, ..config(IoMode::Auto) }).echo();
    assert_eq!(bench.reactor.io(), Io::Epoll);
    let said = bench.reactor.fallback_reason().unwrap();
    assert!(said.contains(reason) && !said.contains('\n'), "{said}");
    check_echo(&mut bench);
    let error = Reactor::new(ReactorConfig { ring_attempts: 2, ..config(IoMode::Uring) });
    let error = error.unwrap_err();
    assert!(matches!(error, ReactorError::UringRefused { .. }), "{error}");
    assert!(error.to_string().contains(reason), "{error}");
}

fn check_echo(bench: &mut Bench) {
    let (_, mut peer) = bench.add(Kind::Tcp);
    let sent = Random(3).bytes(50_000);
    let (mut written, mut back) = (0, Vec::new());
    bench.until("the echo", |_| {
        written += peer.write(&sent[written..]);
        peer.read(&mut back, 1 << 16);
        back.len() == sent.len()
    });
    assert!(back == sent);
}

#[test]
fn io_uring_is_the_first_choice() {
    let bench = Bench::new(IoMode::Auto);
    assert_eq!((bench.reactor.io(), bench.reactor.fallback_reason()), (Io::Uring, None));
}

#[test]
fn a_filter_of_system_calls_means_epoll() {
    run_child("refused::under_a_filter");
}

#[test]
fn under_a_filter() {
    if !is_child("refused::under_a_filter") {
        return;
    }
    let rules = [(libc::SYS_io_uring_setup, Vec::new())].into_iter().collect();
    let errno = u32::try_from(libc::EPERM).unwrap();
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let refusal = SeccompAction::Errno(errno);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refusal, arch).unwrap();
    let program: seccompiler::BpfProgram = filter.try_into().unwrap();
    apply_filter(&program).unwrap();
    check_refusal("Operation not permitted");
}

/// Needs root, to become another user whom the limit binds.
#[test]
fn no_locked_memory_means_epoll() {
    if !Uid::effective().is_root() {
        let is_ci = std::env::var("CI").is_ok_and(|value| value == "true");
        assert!(!is_ci, "this test needs root");
        println!("skipped: needs root");
        return;
    }
    run_child("refused::without_locked_memory");
}

#[test]
fn without_locked_memory() {
    if !is_child("refused::without_locked_memory") {
        return;
    }
    let nobody = Uid::from_raw(65_534);
    setrlimit(Resource::RLIMIT_MEMLOCK, 0, 0).unwrap();
    setresuid(nobody, nobody, nobody).unwrap();
    check_refusal("Cannot allocate memory");
}

#[test]
fn a_forked_child_drops_the_reactor_without_harm() {
    run_child("refused::forked");
}

#[test]
fn forked() {
    if !is_child("refused::forked") {
        return;
    }
    for io in [IoMode::Uring, IoMode::Epoll] {
        let mut bench = Bench::new(io).echo();
        let (_, _peer) = bench.add(Kind::Unix);
        check_echo(&mut bench);
        // SAFETY: the child drops what it holds and ends; glibc keeps the allocator usable.
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                drop(bench);
                // SAFETY: `_exit` has no conditions.
                unsafe { libc::_exit(0) }
            }
            ForkResult::Parent { child } => {
                assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0));
            }
        }
        check_echo(&mut bench);
    }
}
