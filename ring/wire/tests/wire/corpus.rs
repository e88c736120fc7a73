//! Replays the fuzzer's corpus, so that what it once found stays found.

#[test]
fn the_fuzzers_corpus_passes() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/decode");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).expect("the corpus is committed") {
        let path = entry.expect("an entry").path();
        crate::decode::run(&std::fs::read(&path).expect("a file of the corpus"));
        count += 1;
    }
    assert!(count >= 30, "{count} inputs");
}
