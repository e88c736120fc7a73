use std::path::PathBuf;

/// Runs `target` over its committed corpus.
fn replay(name: &str, target: fn(&[u8])) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).expect("the corpus is committed") {
        let path = entry.expect("an entry").path();
        target(&std::fs::read(&path).expect("a file of the corpus"));
        count += 1;
    }
    assert!(count > 0, "{} is empty", folder.display());
}

#[test]
fn the_corpus_of_decode_passes() {
    replay("decode", crate::decode::run);
}

#[test]
fn the_corpus_of_handle_passes() {
    replay("handle", crate::handle);
}

/// The seeds reach what they are for.
#[test]
fn the_seeds_of_handle_reach_every_way_of_a_page() {
    let mut sum = [0_u64; 10];
    for (_, script) in crate::seeds::scripts() {
        let stats = crate::handle::run(&script);
        let reached = [
            stats.granted_total,
            stats.created_total,
            stats.lookup_hit_total,
            stats.lookup_miss_total,
            stats.exists_hit_total,
            stats.evicted_total,
            stats.removed_total,
            stats.overdue_total,
            stats.lease_expired_total,
            stats.refused_total,
        ];
        for (sum, reached) in sum.iter_mut().zip(reached) {
            *sum += reached;
        }
    }
    assert!(sum.iter().all(|count| *count > 0), "{sum:?}");
}
