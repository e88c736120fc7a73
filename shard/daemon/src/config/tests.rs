use std::io::Write as _;

use super::*;

fn load(text: &str, flags: Options) -> Result<Config, String> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    Config::load(flags, Some(file.path())).map_err(|error| error.to_string())
}

fn refused(text: &str, needles: &[&str]) {
    let error = load(text, Options::default()).unwrap_err();
    assert_eq!(error.lines().count(), 1, "{error}");
    for needle in needles {
        assert!(error.contains(needle), "`{needle}` is not in: {error}");
    }
}

/// S2: the defaults.
#[test]
fn defaults() {
    let config = Config::load(Options::default(), None).unwrap();
    assert_eq!(config.tcp, Some(([127, 0, 0, 1], TCP_PORT_DEFAULT).into()));
    assert_eq!(config.unix, Some(unix_path_default()));
    assert_eq!((config.pool_bytes, config.page_bytes), (1 << 30, 1 << 20));
    assert_eq!(config.eviction, EvictionChoice::Lru);
    assert_eq!(config.reservation_ttl, Duration::from_secs(60));
    assert_eq!(config.lease_ttl, Duration::from_secs(120));
    assert_eq!(config.quarantine_warning, Duration::from_secs(600));
    assert_eq!(config.pool_id, "maru");
    assert_eq!(config.shards, None);
    assert_eq!(config.io, IoChoice::Auto);
    assert!(config.namespaces.is_empty() && config.secret.is_none() && !config.insecure);
}

/// S2: a TOML file and flags; flags win.
#[test]
fn flags_win_over_the_file() {
    let text = r#"
        tcp = "none"
        unix = "/tmp/a.sock"
        pool_bytes = "64m"
        page_bytes = 65536
        shards = 2
        eviction = "none"
        lease_ttl = "90s"
        namespaces = ["a", "b"]
        huge_pages = "2M"
        log_format = "json"
        io = "epoll"
    "#;
    let flags = Options {
        pool_bytes: Some(Size(32 << 20)),
        shards: Some(Shards(None)),
        ..Options::default()
    };
    let config = load(text, flags).unwrap();
    assert_eq!((config.tcp, config.unix), (None, Some("/tmp/a.sock".into())));
    assert_eq!((config.pool_bytes, config.page_bytes), (32 << 20, 65536));
    assert_eq!(config.shards, None);
    assert_eq!(config.eviction, EvictionChoice::None);
    assert_eq!(config.lease_ttl, Duration::from_secs(90));
    assert_eq!(config.namespaces, ["a", "b"]);
    assert_eq!(config.huge_pages, HugePages::TwoMib);
    assert_eq!((config.log_format, config.io), (LogFormat::Json, IoChoice::Epoll));
}

/// S2: unknown keys and nonsense are refused with the key, and the line, named.
#[test]
fn nonsense_is_refused_by_name() {
    refused("pool_bytes = \"1G\"\npool_size = 3\n", &["unknown field `pool_size`", "line 2"]);
    refused("\npage_bytes = \"1.5M\"\n", &["page_bytes", "`1.5M` is no size", "line 2"]);
    refused("lease_ttl = \"nan\"", &["lease_ttl", "`nan` is no duration"]);
    refused("lease_ttl = 60", &["lease_ttl", "`60` is no duration"]);
    refused("lease_ttl = 1.5", &["lease_ttl"]);
    refused("reservation_ttl = \"0s\"", &["reservation_ttl", "above 0"]);
    refused("shards = 0", &["shards", "`0` is no number of shards"]);
    refused("eviction = \"sieve\"", &["eviction", "sieve", "lru"]);
    refused("io = true", &["io"]);
    refused("insecure = \"yes\"", &["insecure", "line 1"]);
    refused("namespaces = \"a\"", &["namespaces"]);
    refused("namespaces = [\"a\", \"a\"]", &["namespaces", "twice"]);
    refused("namespaces = [\"\"]", &["namespaces", "is no name"]);
    refused("node_name = \"\"", &["node_name", "is no name"]);
    refused("pool_bytes = ", &["line 1"]);
    refused("page_bytes = 5000", &["page_bytes", "multiple of 4K"]);
    refused("connections_max = 0", &["connections_max"]);
    refused("connections_max = 4294967295", &["connections_max", "1 to 1048576"]);
    refused("unix = \"relative.sock\"", &["unix", "absolute"]);
    refused("secret_file = \"/nowhere/at/all\"", &["secret_file", "/nowhere/at/all"]);
}

/// S2: times that no client could keep are refused with the key named.
#[test]
fn times_too_short_are_refused_by_name() {
    for key in ["reservation_ttl", "lease_ttl", "fence", "quarantine_warning", "frame_timeout"] {
        refused(&format!("{key} = \"99999us\""), &[key, "99.999ms is too short", "100ms"]);
    }
    let shortest = "reservation_ttl = \"100ms\"\nframe_timeout = \"100ms\"\nfence = \"100ms\"";
    load(shortest, Options::default()).unwrap();
}

/// The lines of a log are one error each, whatever the file holds.
#[test]
fn a_broken_file_is_told_in_one_line() {
    refused("a\u{1b}[31m = \n", &["line 1"]);
    refused(&format!("pool_bytes = [\n1,\n\n{}]\n", "2, ".repeat(999)), &["pool_bytes"]);
    refused("unix = \"\"\"a\n\n\"\"\"\n", &["unix"]);
    refused("pool_bytes = \"1G\"\n[x", &["line 2"]);
}

/// S2: contradictions are refused with both keys named.
#[test]
fn contradictions_are_refused_by_name() {
    refused("tcp = \"none\"\nunix = \"none\"", &["tcp", "unix", "nobody could connect"]);
    refused("capacity_bytes = \"2G\"", &["capacity_bytes", "pool_bytes", "2G is not 1G"]);
    refused("pool_bytes = \"10M\"\npage_bytes = \"3M\"", &["pool_bytes", "page_bytes"]);
    refused("pool_bytes = \"3M\"\npage_bytes = \"4K\"\nhuge_pages = \"2M\"", &["huge_pages"]);
    refused("pool_bytes = \"16M\"\nshards = 2", &["pool_bytes", "shards", "at least 16"]);
    refused("quarantine_warning = \"10s\"", &["quarantine_warning", "reservation_ttl"]);
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), "0123456789abcdef\n").unwrap();
    let text = format!("insecure = true\nsecret_file = {:?}", secret.path());
    refused(&text, &["insecure", "secret_file"]);
}

/// S14: beyond loopback a secret is needed, or the operator says that none is wanted.
#[test]
fn open_addresses_need_a_secret() {
    refused("tcp = \"0.0.0.0:6278\"", &["tcp", "0.0.0.0:6278", "secret_file", "insecure"]);
    refused("tcp = \"[::]:6278\"", &["tcp", "secret_file"]);
    load("tcp = \"0.0.0.0:6278\"\ninsecure = true", Options::default()).unwrap();
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), "0123456789abcdef\n").unwrap();
    let text = format!("tcp = \"0.0.0.0:6278\"\nsecret_file = {:?}", secret.path());
    assert!(!load(&text, Options::default()).unwrap().secret.is_none());
    std::fs::write(secret.path(), "short\n").unwrap();
    refused(&text, &["secret_file", "16"]);
}
