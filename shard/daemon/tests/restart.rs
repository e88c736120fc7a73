//! kill -9 of the server: calls fail within their deadlines and work again after a restart.

use std::time::{Duration, Instant};

use maru_client::Match;

use crate::harness::{CALL, Server, pattern, poll};
use crate::requests::{load_one, store_one};

/// The same client object works on after the server was killed and started again.
#[test]
fn the_same_client_works_after_a_restart() {
    for io in ["uring", "epoll"] {
        let mut server = Server::start(&["--io", io]);
        let mut settings = server.client_config();
        settings.control_timeout = Duration::from_millis(200);
        let client = maru_client::Client::new(settings).unwrap();
        let key = client.key(b"chunk");
        let bytes = pattern(1, 100_000);
        for _ in 0..3 {
            assert!(store_one(&client, key, &bytes).is_stored());
            let attachment = client.attachment(CALL).unwrap();
            let folder = server.kill();
            let deadline = Duration::from_millis(500);
            let asked = Instant::now();
            assert!(client.exists(&[key], Match::All, deadline).is_err());
            // Not a measurement: far beyond any deadline, a call that hangs is found.
            assert!(asked.elapsed() < Duration::from_secs(10));
            poll(|| attachment.is_lost().then_some(())).expect("the map is dropped");
            server = Server::start_in(folder, "127.0.0.1:0", &["--io", io]);
            let found = poll(|| client.exists(&[key], Match::All, CALL).ok());
            assert_eq!(found.expect("the client works again").leading_count, 0, "all is new");
            assert_eq!(load_one(&client, key), None);
        }
        assert!(store_one(&client, key, &bytes).is_stored());
        assert_eq!(load_one(&client, key), Some(bytes));
        server.stop();
    }
}
