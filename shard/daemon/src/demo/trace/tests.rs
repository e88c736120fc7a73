use std::io::Write;

use super::*;

fn trace(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

const GOOD: &str =
    r#"{"timestamp": 0, "input_length": 700, "output_length": 5, "hash_ids": [3, 4]}"#;

fn read(text: &str) -> Vec<Result<Vec<u64>, String>> {
    TraceReader::open(trace(text).path())
        .unwrap()
        .map(|request| request.map(|r| r.blocks).map_err(|error| error.to_string()))
        .collect()
}

#[test]
fn reads_requests_and_skips_blank_lines() {
    assert_eq!(read(&format!("{GOOD}\n\n{GOOD}")), [Ok(vec![3, 4]), Ok(vec![3, 4])]);
    assert!(read("").is_empty());
}

#[test]
fn a_broken_line_is_named_by_its_number_and_ends_the_trace() {
    let missing = r#"{"timestamp": 0, "input_length": 700, "output_length": 5}"#;
    let negative = GOOD.replace("[3, 4]", "[3, -4]");
    for broken in ["{", "no json", missing, &negative, "[1, 2]", "\u{0}"] {
        let read = read(&format!("{GOOD}\n\n{broken}\n{GOOD}\n"));
        assert_eq!(read.len(), 2, "{broken}");
        let error = read[1].as_ref().unwrap_err();
        assert!(error.contains("line 3"), "{error}");
    }
}

#[test]
fn a_line_without_end_is_refused() {
    let endless = " ".repeat(usize::try_from(LINE_BYTES_MAX).unwrap() + 1);
    let read = read(&endless);
    assert!(read[0].as_ref().unwrap_err().contains("line 1"), "{read:?}");
}

#[test]
fn a_missing_file_is_an_error_with_its_path() {
    let error = TraceReader::open(Path::new("/nowhere/trace.jsonl")).err().unwrap();
    assert!(error.to_string().contains("/nowhere/trace.jsonl"));
}
