//! What was encoded is decoded to the same value, for random messages of every kind.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use crate::messages::Message;
use crate::samples::hello;
use crate::strategies::message;

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 2000,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(2),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    /// And one value has one encoding.
    #[test]
    fn messages_come_back(message in message()) {
        let bytes = message.encode(&hello());
        let decoded = Message::decode(&bytes, &hello());
        prop_assert_eq!(decoded.as_ref(), Ok(&message));
        prop_assert_eq!(decoded.expect("just seen").encode(&hello()), bytes);
    }
}
