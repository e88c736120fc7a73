//! The server's addresses. Looking a name up blocks the ring thread, so an answer serves all dials
//! of a while: the links to all shards are dialled at one time.

use std::collections::VecDeque;
use std::net::{SocketAddr, ToSocketAddrs};

use maru_session::Time;
use maru_uring::Address;

use crate::ServerAddress;

/// Most addresses of one name that are tried.
const ADDRESSES_MAX: usize = 8;
/// How long an answer serves, also one without an address.
const KEPT_US: u64 = 1_000_000;

/// Where to connect to.
#[derive(Debug)]
pub(crate) struct Resolver {
    address: ServerAddress,
    /// The latest answer, and until when it serves.
    kept: Option<(Time, VecDeque<Address>)>,
}

impl Resolver {
    pub(crate) fn new(address: ServerAddress) -> Self {
        Self { address, kept: None }
    }

    /// Returns where to connect to, in order; nothing when the name has no address.
    ///
    /// May block this thread for a look-up, never a caller past its deadline.
    pub(crate) fn addresses(&mut self, now: impl Fn() -> Time) -> VecDeque<Address> {
        self.addresses_by(now, |host, port| {
            (host, port).to_socket_addrs().map_or_else(|_| Vec::new(), Iterator::collect)
        })
    }

    fn addresses_by(
        &mut self,
        now: impl Fn() -> Time,
        look_up: impl FnOnce(&str, u16) -> Vec<SocketAddr>,
    ) -> VecDeque<Address> {
        let (host, port) = match &self.address {
            ServerAddress::Unix(path) => return VecDeque::from([Address::Unix(path.clone())]),
            ServerAddress::Tcp { host, port } => (host, *port),
        };
        match &self.kept {
            Some((until, kept)) if now() < *until => kept.clone(),
            Some(_) | None => {
                let found = look_up(host, port).into_iter().map(Address::Tcp);
                let found: VecDeque<Address> = found.take(ADDRESSES_MAX).collect();
                // From the answer on: a look-up may take longer than its answer serves.
                self.kept = Some((now().after(KEPT_US), found.clone()));
                found
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn tcp(port: u16) -> Address {
        Address::Tcp(SocketAddr::from(([10, 0, 0, 1], port)))
    }

    /// R11: with a slow name server, the links to many shards wait for one look-up, not for one
    /// each: else the first ones' handshakes are over before any of them begins.
    #[test]
    fn links_dialled_at_one_time_share_a_look_up() {
        let clock = Cell::new(0);
        let look_ups = Cell::new(0);
        let mut resolver = Resolver::new("tcp:pool:7000".parse().expect("an address"));
        let mut ask = || {
            let now = || Time(clock.get());
            resolver.addresses_by(now, |host, port| {
                assert_eq!(host, "pool");
                look_ups.set(look_ups.get() + 1);
                clock.set(clock.get() + 3 * KEPT_US);
                let count = if look_ups.get() == 1 { 9 } else { 0 };
                vec![SocketAddr::from(([10, 0, 0, 1], port)); count]
            })
        };
        for _ in 0..16 {
            assert_eq!(ask(), vec![tcp(7000); ADDRESSES_MAX]);
        }
        assert_eq!(look_ups.get(), 1);
        clock.set(clock.get() + KEPT_US);
        for _ in 0..16 {
            assert_eq!(ask(), []);
        }
        assert_eq!(look_ups.get(), 2);
    }
}
