//! Where io_uring is forbidden, as in many containers: epoll, and one line that says so.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};
use tempfile::TempDir;

use crate::harness::{CALL, SHARDD, command, config, poll, serve_flags};
use crate::worker::{Task, Worker};

/// Lets `command` start without io_uring, as Docker's default profile does.
fn forbid_io_uring(command: &mut Command) {
    let rules = [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register]
        .map(|call| (call, Vec::new()));
    let filter = SeccompFilter::new(
        BTreeMap::from(rules),
        SeccompAction::Allow,
        SeccompAction::Errno(libc::EPERM as u32),
        std::env::consts::ARCH.try_into().unwrap(),
    );
    let program: BpfProgram = filter.unwrap().try_into().unwrap();
    // SAFETY: apply_filter makes two system calls and allocates nothing.
    unsafe {
        command.pre_exec(move || apply_filter(&program).map_err(std::io::Error::other));
    }
}

/// Server and client both fall back, say so once, and work.
#[test]
fn both_ends_fall_back_to_epoll_and_say_so_once() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("pool.sock");
    let (server_log, client_log) = (folder.path().join("server"), folder.path().join("client"));
    let mut server = command(SHARDD);
    server.args(serve_flags(&socket, "none", &["--shards", "2"]));
    server.stdout(Stdio::null()).stderr(File::create(&server_log).unwrap());
    forbid_io_uring(&mut server);
    let mut server = server.spawn().unwrap();
    let client = maru_client::Client::new(config(&socket)).unwrap();
    let stats = poll(|| client.stats(CALL).ok()).expect("it serves");
    assert!(stats.iter().all(|shard| shard.io == "epoll"));
    let mut worker = Worker::start_with(&socket, Task::Once, 1, |command| {
        forbid_io_uring(command);
        command.stderr(File::create(&client_log).unwrap());
    });
    worker.wait_until_there();
    let said = std::fs::read_to_string(&client_log).unwrap();
    assert_eq!(said.matches("epoll").count(), 1, "{said}");
    let said = std::fs::read_to_string(&server_log).unwrap();
    assert_eq!(said.matches("epoll").count(), 1, "{said}");
    assert!(said.contains("io_uring"), "{said}");
    server.kill().unwrap();
    server.wait().unwrap();
}

/// Asked for io_uring by name, the server says what forbids it and ends.
#[test]
fn io_uring_by_name_is_an_error_there() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("pool.sock");
    let mut server = command(SHARDD);
    server.args(serve_flags(&socket, "none", &["--io", "uring"]));
    let log = folder.path().join("log");
    server.stdout(Stdio::null()).stderr(File::create(&log).unwrap());
    forbid_io_uring(&mut server);
    let mut server = server.spawn().unwrap();
    let status = poll(|| server.try_wait().unwrap()).expect("it ends");
    let said = std::fs::read_to_string(&log).unwrap();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("io: ") && said.contains("io_uring"), "{said}");
    assert!(!socket.exists());
}
