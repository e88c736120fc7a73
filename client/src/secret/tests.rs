use std::fs::{Permissions, set_permissions, write};
use std::os::unix::fs::PermissionsExt;

use super::{SecretError, read_secret_file};

fn read(bytes: &[u8], mode: u32) -> Result<(), SecretError> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("secret");
    write(&path, bytes).expect("a file");
    set_permissions(&path, Permissions::from_mode(mode)).expect("the test's own file");
    read_secret_file(&path).map(drop)
}

#[test]
fn a_secret_is_its_bytes_without_the_line_end() {
    read(b"0123456789abcdef\n", 0o600).expect("long enough");
    read(b"0123456789abcdef", 0o640).expect("a group may read it");
}

#[test]
fn what_is_no_secret_is_refused_by_name() {
    assert!(matches!(read(b"", 0o600), Err(SecretError::TooShort { bytes: 0, .. })));
    assert!(matches!(read(b"\n", 0o600), Err(SecretError::TooShort { bytes: 0, .. })));
    assert!(matches!(read(b"0123456789abcde\r\n", 0o600), Err(SecretError::TooShort { .. })));
    assert!(matches!(read(&[b'x'; 5_000], 0o600), Err(SecretError::TooLong { .. })));
    let exposed = read(b"0123456789abcdef\n", 0o644).expect_err("anybody can read it");
    assert!(exposed.to_string().contains("chmod 600"), "{exposed}");
    let missing = read_secret_file("/nonexistent/secret".as_ref()).expect_err("it is not there");
    assert!(missing.to_string().contains("/nonexistent/secret"));
}

/// The mode of a directory is no reason to change it.
#[test]
fn a_directory_is_called_one() {
    let folder = tempfile::tempdir().expect("a folder");
    for mode in [0o755, 0o700] {
        set_permissions(folder.path(), Permissions::from_mode(mode)).expect("the test's own");
        let error = read_secret_file(folder.path()).expect_err("no file");
        assert!(matches!(error, SecretError::Directory { .. }), "{error}");
        assert!(error.to_string().contains("is a directory"), "{error}");
    }
}
