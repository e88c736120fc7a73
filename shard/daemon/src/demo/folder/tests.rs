use std::os::unix::fs::symlink;

use super::*;

/// Only what a demo made, and no demo holds, is removed.
#[test]
fn folders_of_ended_demos_are_removed_and_no_others() {
    let parent = TempDir::new().unwrap();
    let elsewhere = TempDir::new().unwrap();
    let alive = Folder::make_in(parent.path()).unwrap();
    let Folder { directory, _lock: lock } = Folder::make_in(parent.path()).unwrap();
    let killed = directory.keep();
    drop(lock);
    fs::write(killed.join("server.sock"), "").unwrap();
    // Another's folders, by name or by content.
    let unlocked = parent.path().join("maru-demo-unlocked");
    let other = parent.path().join("other");
    let linked = parent.path().join("maru-demo-linked");
    let file = parent.path().join("maru-demo-file");
    for folder in [&unlocked, &other] {
        fs::create_dir(folder).unwrap();
    }
    fs::write(other.join(LOCK), "").unwrap();
    fs::write(elsewhere.path().join(LOCK), "").unwrap();
    symlink(elsewhere.path(), &linked).unwrap();
    fs::write(&file, "a letter").unwrap();

    remove_stale(parent.path());
    assert!(!killed.exists());
    for kept in [alive.path(), &unlocked, &other, &linked, &file, &elsewhere.path().join(LOCK)] {
        assert!(kept.exists(), "{}", kept.display());
    }
    remove_stale(&parent.path().join("nowhere"));
    let path = alive.path().to_owned();
    drop(alive);
    assert!(!path.exists());
}
