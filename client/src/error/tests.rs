use std::time::Duration;

use super::Error;

/// What is left of a deadline when a call begins is told as the deadline that was set.
#[test]
fn deadlines_are_told_in_round_numbers() {
    for (nanoseconds, told) in [
        (999_999_620, "within 1s"),
        (49_999_700, "within 50ms"),
        (1_234_567_890, "within 1.235s"),
        (1_999_600, "within 2ms"),
        (1_500, "within 2µs"),
    ] {
        let deadline = Duration::from_nanos(nanoseconds);
        let text = Error::Timeout { server: "unix:/x".to_owned(), deadline }.to_string();
        assert!(text.ends_with(told), "{text}");
    }
    let forever = Error::Timeout { server: String::new(), deadline: Duration::MAX };
    assert!(forever.to_string().contains("did not answer"));
}
