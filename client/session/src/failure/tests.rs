use alloc::string::ToString;

use super::LinkFault;

/// An operator reads these: the number alone says nothing to most.
#[test]
fn a_refused_connection_is_told_in_words_with_advice() {
    for (errno, words) in [
        (2, "there is no such socket (system error 2)"),
        (111, "nobody listens there (system error 111)"),
        (13, "this user may not connect there"),
        (5, "the system refused it (system error 5)"),
    ] {
        let text = LinkFault::ConnectFailed(errno).to_string();
        assert!(text.contains(words) && text.contains("is maru-shardd running"), "{text}");
    }
}
