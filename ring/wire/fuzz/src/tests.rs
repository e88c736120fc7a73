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
