use super::*;

/// This process's memory beside files, in KiB.
fn anonymous_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse().unwrap()
}

/// One small thing at the top of a heap keeps all that is free below it.
#[test]
fn free_memory_below_the_top_of_a_heap_returns() {
    if cfg!(not(target_env = "gnu")) {
        return;
    }
    let mut chunks: Vec<Vec<u8>> = (0..2048).map(|_| vec![1; 32 << 10]).collect();
    chunks.drain(..2047);
    let kept = anonymous_kib();
    trim_heap();
    let left = anonymous_kib();
    assert!(left + (32 << 10) < kept, "{left} KiB of {kept}");
    assert_eq!(chunks.len(), 1);
}
