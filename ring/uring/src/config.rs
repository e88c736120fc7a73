//! Every limit and wait of a reactor, in one place.

use crate::error::ReactorError;

/// Which system interface a reactor may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoMode {
    /// Uses io_uring, or epoll where the system refuses io_uring.
    #[default]
    Auto,
    /// Uses io_uring, or fails.
    Uring,
    /// Uses epoll.
    Epoll,
}

/// Which system interface a reactor does use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Io {
    /// io_uring.
    Uring,
    /// epoll.
    Epoll,
}

impl Io {
    /// Names the interface as the `--io` flag does.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uring => "uring",
            Self::Epoll => "epoll",
        }
    }
}

/// When TCP probes a silent peer, and when it gives the peer up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Silence before the first probe.
    pub idle_s: u32,
    /// Time between probes.
    pub interval_s: u32,
    /// Probes without an answer after which the connection is lost.
    pub probes: u32,
}

/// Limits and waits of one reactor. Times are in the unit that ends the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReactorConfig {
    /// Which system interface may be used.
    pub io: IoMode,
    /// Entries of the submission queue.
    pub entries: u32,
    /// Entries of the completion queue: locked memory, which is charged per user.
    pub completion_entries: u32,
    /// Receive buffers of the ring, a power of two.
    pub buffer_count: u16,
    /// Size of a receive buffer, and the most bytes of one `Received` event.
    pub buffer_bytes: u32,
    /// How often the creation of the ring is tried while locked memory is short.
    pub ring_attempts: u32,
    /// How long a turn polls after the last event before it blocks; 0 never polls.
    pub spin_us: u32,
    /// Connections at one time.
    pub connections_max: u32,
    /// Unsent bytes of a connection above which it is not read from until they are sent.
    pub send_bytes_pause: usize,
    /// Unsent bytes of a connection above which it is closed.
    pub send_bytes_max: usize,
    /// Unsent bytes of all connections, above which the one with most of them is closed.
    pub buffered_bytes_max: usize,
    /// Capacity kept in empty send buffers for reuse, all of them together.
    pub spare_bytes_max: usize,
    /// How long a peer may take none of its output before it is closed.
    pub stall_timeout_us: u64,
    /// How long a connection may take to be made.
    pub connect_timeout_us: u64,
    /// How long a closed connection waits for the peer's end, so that its last bytes arrive.
    pub linger_us: u64,
    /// TCP keep-alive of every connection.
    pub keepalive: Keepalive,
    /// How long sent bytes may stay unacknowledged by the peer's TCP.
    pub user_timeout_ms: u32,
}

impl Default for ReactorConfig {
    fn default() -> Self {
        Self {
            io: IoMode::Auto,
            entries: 512,
            completion_entries: 2048,
            buffer_count: 128,
            buffer_bytes: 64 * 1024,
            ring_attempts: 8,
            spin_us: 20,
            connections_max: 4096,
            send_bytes_pause: 256 * 1024,
            send_bytes_max: 4 * 1024 * 1024,
            buffered_bytes_max: 32 * 1024 * 1024,
            spare_bytes_max: 4 * 1024 * 1024,
            stall_timeout_us: 10_000_000,
            connect_timeout_us: 5_000_000,
            linger_us: 1_000_000,
            keepalive: Keepalive { idle_s: 30, interval_s: 10, probes: 3 },
            user_timeout_ms: 30_000,
        }
    }
}

/// Slots are numbered in 24 bits of an operation's tag.
const CONNECTIONS_CEILING: u32 = 1 << 24;

impl ReactorConfig {
    /// Refuses values that no reactor can work with, by name.
    pub(crate) fn check(&self) -> Result<(), ReactorError> {
        let wrong = |field, rule| Err(ReactorError::Config { field, rule });
        if self.entries == 0 || self.entries > 32_768 {
            return wrong("entries", "must be 1 to 32768");
        }
        if self.completion_entries < self.entries || self.completion_entries > 65_536 {
            return wrong("completion_entries", "must be at least entries and at most 65536");
        }
        if !self.buffer_count.is_power_of_two() || self.buffer_count > 32_768 {
            return wrong("buffer_count", "must be a power of two of at most 32768");
        }
        if self.buffer_bytes == 0 || !self.buffer_bytes.is_multiple_of(16) {
            return wrong("buffer_bytes", "must be a multiple of 16 and not 0");
        }
        if self.connections_max == 0 || self.connections_max > CONNECTIONS_CEILING {
            return wrong("connections_max", "must be 1 to 16777216");
        }
        if self.send_bytes_max < self.send_bytes_pause {
            return wrong("send_bytes_max", "must be at least send_bytes_pause");
        }
        if self.buffered_bytes_max < self.send_bytes_max {
            return wrong("buffered_bytes_max", "must be at least send_bytes_max");
        }
        Ok(())
    }
}
