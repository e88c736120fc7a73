//! Bad input to `serve`, named: each ends at once with a clear error and leaves nothing behind.

use std::net::TcpListener;

use tempfile::TempDir;

use crate::harness::{run, serve_flags};
use crate::requests::secret_file;

/// Runs `serve` with flags and a file, and returns its exit code and what it says.
fn refuse(flags: &[&str], file: Option<&str>) -> (i32, String) {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("pool.sock");
    let mut all = serve_flags(&socket, "none", flags);
    if let Some(text) = file {
        let path = folder.path().join("pool.toml");
        std::fs::write(&path, text).unwrap();
        all.extend(["--config".into(), path.into()]);
    }
    let (code, out, error) = run(&all);
    assert_eq!(out, "", "nothing is ready");
    assert!(!socket.exists(), "the socket is gone");
    (code.unwrap(), error)
}

fn refused_by_name(flags: &[&str], file: Option<&str>, words: &[&str]) {
    let (code, error) = refuse(flags, file);
    assert_ne!(code, 0);
    for word in words {
        assert!(error.contains(word), "`{word}` is not in: {error}");
    }
    assert!(!error.contains("panicked"), "{error}");
}

/// S2: a file with an unknown key, or a size that is no size: key and line are named.
#[test]
fn a_bad_file_is_refused_with_key_and_line() {
    let unknown = "eviction = \"lru\"\npool_megabytes = 4\n";
    refused_by_name(&[], Some(unknown), &["unknown field `pool_megabytes`", "line 2", "pool.toml"]);
    let size = "\n\ncapacity_bytes = \"4GB\"\n";
    refused_by_name(&[], Some(size), &["`4GB` is no size", "capacity_bytes", "line 3"]);
    refused_by_name(&["--config", "/nowhere.toml"], None, &["/nowhere.toml"]);
    let (_, error) = refuse(&[], Some(size));
    assert_eq!(error.lines().count(), 1, "{error}");
}

/// S2: flags are checked as the file is.
#[test]
fn bad_flags_are_refused_by_name() {
    refused_by_name(&["--lease-ttl", "nan"], None, &["--lease-ttl", "`nan` is no duration"]);
    refused_by_name(&["--frame-timeout", "1us"], None, &["frame_timeout", "100ms"]);
    refused_by_name(&["--eviction", "sieve"], None, &["--eviction", "lru"]);
    refused_by_name(&["--pool-size", "4G"], None, &["--pool-size"]);
    refused_by_name(&["--capacity-bytes", "2G"], None, &["capacity_bytes", "pool_bytes"]);
    refused_by_name(&["--pool-bytes", "32K"], None, &["pool_bytes", "shards", "at least 16"]);
    refused_by_name(&["--unix", "none", "--tcp", "none"], None, &["--unix"]);
}

/// S14: an address beyond loopback without a secret.
#[test]
fn an_open_address_is_refused_without_a_secret() {
    refused_by_name(&["--tcp", "0.0.0.0:0"], None, &["0.0.0.0:0", "secret_file", "insecure"]);
    let folder = TempDir::new().unwrap();
    let secret = secret_file(folder.path(), "too short");
    let flags = ["--secret-file", secret.to_str().unwrap()];
    refused_by_name(&flags, None, &["secret_file", "too short".len().to_string().as_str()]);
    refused_by_name(&["--secret-file", "/nowhere"], None, &["secret_file", "/nowhere"]);
}

/// S12: a descriptor that nobody gave is named, and the server that it was for ends orderly.
#[test]
fn a_closed_ready_descriptor_is_named() {
    refused_by_name(&["--ready-fd", "900"], None, &["ready_fd", "900"]);
}

/// S12: a port in use is named, and found before memory is taken.
#[test]
fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    refused_by_name(&["--tcp", &address, "--pool-bytes", "1T"], None, &[&address, "in use"]);
}

/// A memfd larger than memory is refused with the numbers, before any of it is touched.
#[test]
fn more_memory_than_there_is_is_refused() {
    refused_by_name(&["--pool-bytes", "900T", "--page-bytes", "1G"], None, &["pool_bytes"]);
    let words = ["pool_bytes", "1099511627776 bytes is larger than", "make the pool smaller"];
    refused_by_name(&["--pool-bytes", "1T", "--page-bytes", "1M"], None, &words);
}

/// Huge pages that the machine has not reserved are refused with what to do.
#[test]
fn huge_pages_that_are_not_reserved_are_refused() {
    let reserved = "/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages";
    if std::fs::read_to_string(reserved).is_ok_and(|count| count.trim() != "0") {
        eprintln!("skipped: this machine has huge pages of 1 GiB reserved");
        return;
    }
    let flags = ["--huge-pages", "1G", "--pool-bytes", "1G", "--page-bytes", "1M"];
    refused_by_name(&flags, None, &["pool_bytes", "huge"]);
}
