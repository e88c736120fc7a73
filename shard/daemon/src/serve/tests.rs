use std::process::{Command, Stdio};

use super::*;

const CHILD: &str = "MARU_TEST_PANIC";

/// S4: a panic on any thread ends the process with an error, whatever the other threads do.
#[test]
fn a_panic_on_any_thread_ends_the_process() {
    if std::env::var_os(CHILD).is_some() {
        end_on_panic();
        shards::spawn("shard-1".to_owned(), || panic!("the books are wrong")).unwrap();
        loop {
            std::thread::park();
        }
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "serve::tests::a_panic_on_any_thread_ends_the_process"]);
    child.env(CHILD, "1").stdout(Stdio::null()).stderr(Stdio::null());
    assert_eq!(child.status().unwrap().code(), Some(EXIT_PANIC));
}

#[test]
fn generations_differ_and_are_never_zero() {
    let generations: Vec<Generation> = (0..4).map(|_| random_generation()).collect();
    assert!(generations.iter().all(|generation| generation.0 != 0));
    assert!(generations.windows(2).all(|pair| pair[0] != pair[1]));
}
