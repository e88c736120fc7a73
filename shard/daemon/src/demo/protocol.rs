//! What a worker process tells the demo: JSON lines on its standard output. What it hears: how
//! many requests it may begin, a number a line on its standard input.

use std::io::{self, BufRead, Write};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Largest latency that is told apart, in nanoseconds: two minutes.
const LATENCY_NS_MAX: u64 = 120_000_000_000;

/// One line from a worker.
#[derive(Serialize, Deserialize, PartialEq, Debug)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Message {
    /// The worker reached the server and waits for its first permit.
    Ready,
    /// How many requests the worker has ended since its last line.
    Progress {
        /// A count.
        requests: u64,
    },
    /// The worker ended; the last line.
    Done(Box<WorkerReport>),
    /// The worker gave up; the last line.
    Failed {
        /// The error with its causes.
        error: String,
    },
}

/// What one worker did, or all of them together.
#[derive(Serialize, Deserialize, Clone, PartialEq, Default, Debug)]
pub(crate) struct WorkerReport {
    /// Requests replayed.
    pub(crate) requests: u64,
    /// Blocks of all requests.
    pub(crate) blocks: u64,
    /// Blocks that the server found at lookup, in the leading run.
    pub(crate) found: u64,
    /// Blocks loaded and verified: the hits.
    pub(crate) loaded: u64,
    /// Blocks found but gone before they were loaded, or not held to the end.
    pub(crate) lost: u64,
    /// Blocks stored by this worker.
    pub(crate) stored: u64,
    /// Blocks to store that were there already, or on their way by another worker.
    pub(crate) skipped: u64,
    /// Blocks that the server had no room for.
    pub(crate) full: u64,
    /// Bytes that differ from what was stored.
    pub(crate) wrong_bytes: u64,
    /// Latency of each lookup.
    pub(crate) lookup: Latency,
    /// Latency of each request's load.
    pub(crate) load: Latency,
    /// Latency of each request's store.
    pub(crate) store: Latency,
}

impl WorkerReport {
    /// Adds what another worker did.
    pub(crate) fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.blocks += other.blocks;
        self.found += other.found;
        self.loaded += other.loaded;
        self.lost += other.lost;
        self.stored += other.stored;
        self.skipped += other.skipped;
        self.full += other.full;
        self.wrong_bytes += other.wrong_bytes;
        self.lookup.add(&other.lookup);
        self.load.add(&other.load);
        self.store.add(&other.store);
    }
}

/// A histogram of latencies in nanoseconds. Travels as pairs of value and count.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
#[serde(from = "Vec<(u64, u64)>", into = "Vec<(u64, u64)>")]
pub(crate) struct Latency(Histogram<u64>);

impl Default for Latency {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3);
        Self(histogram.expect("constant bounds that the histogram takes"))
    }
}

impl Latency {
    /// Counts one latency; beyond two minutes it counts as two minutes.
    pub(crate) fn record(&mut self, latency: std::time::Duration) {
        self.0.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(LATENCY_NS_MAX));
    }

    /// Returns the latency below which `share` (0 to 1) of all lie, in microseconds; 0 for none.
    pub(crate) fn at_us(&self, share: f64) -> f64 {
        self.0.value_at_quantile(share) as f64 / 1e3
    }

    /// Returns how many latencies were counted.
    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("histograms of equal bounds");
    }
}

impl From<Vec<(u64, u64)>> for Latency {
    fn from(pairs: Vec<(u64, u64)>) -> Self {
        let mut latency = Self::default();
        for (value, count) in pairs {
            latency.0.saturating_record_n(value, count);
        }
        latency
    }
}

impl From<Latency> for Vec<(u64, u64)> {
    fn from(latency: Latency) -> Self {
        let recorded = latency.0.iter_recorded();
        recorded.map(|value| (value.value_iterated_to(), value.count_at_value())).collect()
    }
}

/// Writes `message` as one line, at once.
pub(crate) fn send(writer: &mut impl Write, message: &Message) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    writer.write_all(&line)?;
    writer.flush()
}

/// Reads the next message; `None` at the end of the pipe.
pub(crate) fn receive(reader: &mut impl BufRead) -> io::Result<Option<Message>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    Ok(Some(serde_json::from_str(&line)?))
}

/// Allows the worker at the pipe's other end to begin `count` requests in all.
pub(crate) fn send_permit(writer: &mut impl Write, count: u64) -> io::Result<()> {
    writer.write_all(format!("{count}\n").as_bytes())
}

/// Reads the next permit. The end of the pipe is an error: the demo is gone.
pub(crate) fn receive_permit(reader: &mut impl BufRead) -> io::Result<u64> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    line.trim_end().parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn report(latencies_us: &[u64]) -> WorkerReport {
        let mut report = WorkerReport { requests: 1, blocks: 10, loaded: 4, ..Default::default() };
        for latency in latencies_us {
            report.lookup.record(Duration::from_micros(*latency));
        }
        report
    }

    #[test]
    fn messages_pass_a_pipe_unchanged() {
        let messages = [
            Message::Ready,
            Message::Progress { requests: 3 },
            Message::Done(Box::new(report(&[1, 2, 5_000, 70_000_000]))),
            Message::Failed { error: "no \"server\"\nthere".to_owned() },
        ];
        let mut pipe = Vec::new();
        for message in &messages {
            send(&mut pipe, message).unwrap();
        }
        let mut reader = &pipe[..];
        for message in messages {
            assert_eq!(receive(&mut reader).unwrap(), Some(message));
        }
        assert_eq!(receive(&mut reader).unwrap(), None);
    }

    #[test]
    fn a_line_that_is_no_message_is_an_error() {
        assert!(receive(&mut &b"Segmentation fault\n"[..]).is_err());
        assert!(receive(&mut &b"\"rea"[..]).is_err());
    }

    #[test]
    fn permits_pass_a_pipe_and_end_with_it() {
        let mut pipe = Vec::new();
        send_permit(&mut pipe, 8).unwrap();
        send_permit(&mut pipe, u64::MAX).unwrap();
        let mut reader = &pipe[..];
        assert_eq!(receive_permit(&mut reader).unwrap(), 8);
        assert_eq!(receive_permit(&mut reader).unwrap(), u64::MAX);
        assert!(receive_permit(&mut reader).is_err());
        assert!(receive_permit(&mut &b"go\n"[..]).is_err());
    }

    #[test]
    fn merged_reports_count_every_worker() {
        let mut all = report(&[10; 99]);
        all.add(&report(&[1_000; 1]));
        assert_eq!((all.requests, all.blocks, all.loaded, all.lookup.count()), (2, 20, 8, 100));
        assert!((9.9..10.1).contains(&all.lookup.at_us(0.99)), "{}", all.lookup.at_us(0.99));
        assert!((990.0..1010.0).contains(&all.lookup.at_us(0.999)));
    }

    #[test]
    fn latencies_beyond_the_bounds_are_kept_at_the_bounds() {
        let mut latency = Latency::default();
        latency.record(Duration::ZERO);
        latency.record(Duration::from_secs(100_000));
        assert_eq!(latency.count(), 2);
        assert!(latency.at_us(1.0) >= 119_000_000.0);
    }
}
