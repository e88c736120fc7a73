use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use super::*;

/// Names the lock's file to the child process.
const CHILD_PATH: &str = "MARU_TEST_LOCK";

/// Not a test of its own: the body of the child in `a_killed_owner_is_taken_over`.
#[test]
fn child_holds_the_lock() {
    let Some(path) = std::env::var_os(CHILD_PATH) else { return };
    let _lock = OwnerLock::take(Path::new(&path)).unwrap();
    println!("\nheld");
    // The parent kills this process; its end of the pipe never closes before.
    let _ = io::stdin().read_line(&mut String::new());
}

#[test]
fn a_second_owner_is_told_the_first_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lock");
    let lock = OwnerLock::take(&path).unwrap();
    let error = OwnerLock::take(&path).unwrap_err();
    let own = std::process::id();
    assert!(matches!(error, OwnerLockError::Busy { pid: Some(pid), .. } if pid == own));
    assert!(error.to_string().contains(&format!("held by process {own}")), "{error}");
    drop(lock);
    assert!(OwnerLock::take(&path).is_ok());
}

// The lock ends with its process, also by kill -9, and the file left behind is taken over.
#[test]
fn a_killed_owner_is_taken_over() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lock");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "owner::tests::child_holds_the_lock", "--nocapture"])
        .env(CHILD_PATH, &path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line == "held"));

    let error = OwnerLock::take(&path).unwrap_err();
    assert!(matches!(error, OwnerLockError::Busy { pid: Some(pid), .. } if pid == child.id()));
    child.kill().unwrap();
    child.wait().unwrap();
    let _lock = OwnerLock::take(&path).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), format!("{}\n", std::process::id()));
}

#[test]
fn stale_text_of_any_process_is_taken_over() {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in [("empty", ""), ("pid", "4294967295\n"), ("cut", "12")] {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        assert!(OwnerLock::take(&path).is_ok(), "{name}");
    }
}

#[test]
fn other_files_are_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let precious = directory.path().join("precious");
    for text in ["[server]\nport = 1\n", "12 13", "99999999999999999999999999", "1\n2\n"] {
        fs::write(&precious, text).unwrap();
        let error = OwnerLock::take(&precious).unwrap_err();
        assert!(matches!(error, OwnerLockError::NotALock { .. }), "{text:?}: {error}");
        assert_eq!(fs::read_to_string(&precious).unwrap(), text);
    }
    let link = directory.path().join("link");
    symlink(directory.path().join("elsewhere"), &link).unwrap();
    assert!(matches!(OwnerLock::take(&link), Err(OwnerLockError::System { .. })));
    let missing = OwnerLock::take(&directory.path().join("no/such/directory")).unwrap_err();
    assert!(missing.to_string().contains("no/such/directory"));
}

#[test]
fn the_descriptor_closes_on_exec() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lock");
    let lock = OwnerLock::take(&path).unwrap();
    let mut child = Command::new("sleep").arg("600").spawn().unwrap();
    drop(lock);
    let again = OwnerLock::take(&path);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(again.is_ok());
}
