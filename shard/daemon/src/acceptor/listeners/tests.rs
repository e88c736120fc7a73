use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

use tempfile::TempDir;

use super::*;

/// Binds without listening, as a server does that takes its memory.
fn bind_unix(path: &Path) -> Result<Listeners, ListenError> {
    Listeners::bind(None, Some(path))
}

/// S2: a path that is refused is left as it was, and nothing is made beside it.
#[test]
fn a_refused_path_leaves_no_lock() {
    let folder = TempDir::new().unwrap();
    let paths = ["file", "folder", "link", "dangling"].map(|name| folder.path().join(name));
    let [file, directory, link, dangling] = &paths;
    fs::write(file, "a letter").unwrap();
    fs::create_dir(directory).unwrap();
    symlink(file, link).unwrap();
    symlink("nowhere", dangling).unwrap();
    for path in &paths {
        let error = bind_unix(path).unwrap_err();
        assert!(matches!(error, ListenError::NoSocket { .. }), "{error}");
        assert!(!lock_path(path).exists(), "{}", path.display());
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), paths.len());
}

/// S2: the lock's file removed by hand is no leave to take a live server's socket.
#[test]
fn a_server_that_answers_is_not_taken_over() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("socket");
    let first = bind_unix(&path).unwrap();
    first.listen().unwrap();
    fs::remove_file(lock_path(&path)).unwrap();
    let error = bind_unix(&path).unwrap_err();
    assert!(matches!(error, ListenError::Answers { .. }), "{error}");
    assert!(error.to_string().contains("a server answers"), "{error}");
    UnixStream::connect(&path).unwrap();
    drop(first);
    assert!(!path.exists());
    bind_unix(&path).unwrap();
}

/// Other programs' sockets are theirs while they live, of whatever kind and however busy.
#[test]
fn only_sockets_that_refuse_are_stale() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("socket");
    let datagrams = UnixDatagram::bind(&path).unwrap();
    assert!(matches!(bind_unix(&path).unwrap_err(), ListenError::Answers { .. }));
    drop(datagrams);
    drop(bind_unix(&path).unwrap());
    // A backlog that is full.
    let busy = stream(AddressFamily::Unix).unwrap();
    bind(busy.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
    listen(&busy, Backlog::new(0).unwrap()).unwrap();
    let _waits = UnixStream::connect(&path).unwrap();
    assert!(matches!(bind_unix(&path).unwrap_err(), ListenError::Answers { .. }));
    drop(busy);
    drop(bind_unix(&path).unwrap());
    assert!(!path.exists());
}

/// A server that ends leaves a socket alone that another has put in its place.
#[test]
fn another_servers_socket_is_not_removed() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("socket");
    let first = bind_unix(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let _second = UnixListener::bind(&path).unwrap();
    drop(first);
    UnixStream::connect(&path).unwrap();
}
