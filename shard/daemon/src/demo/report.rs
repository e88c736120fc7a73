//! The demo's result: what it says, as a table or as one JSON object, and whether it is a failure.

use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets::UTF8_BORDERS_ONLY};
use maru_wire::{PageCounts, StatsReply};
use serde::Serialize;

use super::ideal_lru::ratio;
use super::protocol::{Latency, WorkerReport};

/// Percentiles of one kind of call, in microseconds.
#[derive(Serialize, Clone, Copy, Debug)]
pub(crate) struct Percentiles {
    p50: f64,
    p99: f64,
    p999: f64,
    count: u64,
}

impl Percentiles {
    fn of(latency: &Latency) -> Self {
        Self {
            p50: latency.at_us(0.5),
            p99: latency.at_us(0.99),
            p999: latency.at_us(0.999),
            count: latency.count(),
        }
    }
}

/// How the run was set up.
#[derive(Serialize, Clone, Debug)]
pub(crate) struct Setup {
    /// The trace's path, or `conversations`.
    pub(crate) workload: String,
    /// Shards of the server.
    pub(crate) shards: u32,
    /// Worker processes.
    pub(crate) workers: u32,
    /// Objects that the pool holds.
    pub(crate) capacity_blocks: u64,
    /// Bytes of one object.
    pub(crate) object_bytes: u64,
    /// Seed of generated conversations.
    pub(crate) seed: u64,
}

/// What the server's statistics say after the last worker closed.
#[derive(Serialize, Clone, Default, Debug)]
pub(crate) struct ServerSide {
    /// The I/O backend of the first shard.
    pub(crate) io: String,
    /// Keys that lookups found.
    pub(crate) lookup_hits: u64,
    /// Keys that existence checks found.
    pub(crate) exists_hits: u64,
    /// Objects evicted for room.
    pub(crate) evictions: u64,
    /// Objects published.
    pub(crate) created: u64,
    /// CPU time of all shards, in microseconds.
    pub(crate) cpu_us: u64,
    /// Frames handled by all shards.
    pub(crate) frames: u64,
    /// Frames copied to scratch.
    pub(crate) scratch_frames: u64,
    /// What does not balance, one sentence each; empty when the books are right.
    pub(crate) imbalances: Vec<String>,
}

impl ServerSide {
    /// Sums the shards' statistics and checks their books.
    pub(crate) fn of(shards: &[StatsReply]) -> Self {
        let mut all = Self::default();
        if let Some(first) = shards.first() {
            all.io.clone_from(&first.io);
        }
        for stats in shards {
            all.lookup_hits += stats.lookup_hit_total;
            all.exists_hits += stats.exists_hit_total;
            all.evictions += stats.evicted_total;
            all.created += stats.created_total;
            all.cpu_us += stats.cpu_us;
            all.frames += stats.frame_total;
            all.scratch_frames += stats.scratch_frame_total;
            all.imbalances.extend(imbalances(stats));
        }
        all
    }
}

/// Lists what is wrong with one shard's books when no client is at work.
fn imbalances(stats: &StatsReply) -> Vec<String> {
    let PageCounts { free, reserved, overdue, fenced, published, cleared, unlinked, total } =
        stats.pages;
    let shard = stats.shard;
    let mut found = Vec::new();
    let sum = free + reserved + overdue + fenced + published + cleared + unlinked;
    if sum != total {
        found.push(format!("shard {shard}: the parts are {sum} pages of {total}"));
    }
    let left = [
        ("reserved pages", reserved),
        ("overdue pages", overdue),
        ("fenced pages", fenced),
        ("unlinked pages", unlinked),
        ("reservations", stats.reservation_count),
        ("overdue reservations", stats.overdue_count),
        ("leases", stats.lease_count),
        ("pinned objects", stats.pinned_count),
    ];
    let left = left.into_iter().filter(|(_, count)| *count > 0);
    found.extend(left.map(|(what, count)| format!("shard {shard}: {count} {what} left")));
    found
}

/// Everything that the demo found out.
#[derive(Serialize, Clone, Debug)]
pub(crate) struct Report {
    hit_ratio: f64,
    ideal_lru_hit_ratio: f64,
    wrong_bytes: u64,
    books_balanced: bool,
    evictions: u64,
    keys_per_s: f64,
    gb_per_s: f64,
    lookup_us: Percentiles,
    store_us: Percentiles,
    load_us: Percentiles,
    seconds: f64,
    requests: u64,
    blocks: u64,
    hits: u64,
    lost: u64,
    stored: u64,
    skipped: u64,
    full: u64,
    setup: Setup,
    server: ServerSide,
}

impl Report {
    /// Puts the workers' and the server's sides together.
    pub(crate) fn new(
        setup: Setup,
        workers: &WorkerReport,
        server: ServerSide,
        elapsed: Duration,
        ideal_lru_hit_ratio: f64,
    ) -> Self {
        let seconds = elapsed.as_secs_f64().max(1e-9);
        let moved_bytes = (workers.loaded + workers.stored) as f64 * setup.object_bytes as f64;
        Self {
            hit_ratio: ratio(workers.loaded, workers.blocks),
            ideal_lru_hit_ratio,
            wrong_bytes: workers.wrong_bytes,
            books_balanced: server.imbalances.is_empty(),
            evictions: server.evictions,
            keys_per_s: workers.blocks as f64 / seconds,
            gb_per_s: moved_bytes / 1e9 / seconds,
            lookup_us: Percentiles::of(&workers.lookup),
            store_us: Percentiles::of(&workers.store),
            load_us: Percentiles::of(&workers.load),
            seconds,
            requests: workers.requests,
            blocks: workers.blocks,
            hits: workers.loaded,
            lost: workers.lost,
            stored: workers.stored,
            skipped: workers.skipped,
            full: workers.full,
            setup,
            server,
        }
    }

    /// Whether every byte was right and the books balance.
    pub(crate) fn is_good(&self) -> bool {
        self.wrong_bytes == 0 && self.books_balanced
    }

    /// Returns the report as one line of JSON.
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("plain numbers and strings")
    }

    /// Returns the report as tables for people.
    pub(crate) fn to_table(&self) -> String {
        let mut text = format!("{}\n{}\n", self.table_of_results(), self.table_of_latencies());
        for imbalance in &self.server.imbalances {
            text.push_str(&format!("NOT BALANCED: {imbalance}\n"));
        }
        if self.wrong_bytes > 0 {
            text.push_str(&format!("WRONG BYTES: {}\n", self.wrong_bytes));
        }
        text
    }

    fn table_of_results(&self) -> Table {
        let setup = &self.setup;
        let yes_no = |yes| if yes { "yes" } else { "NO" };
        let rows = [
            ("workload", setup.workload.clone()),
            (
                "shards, workers",
                format!("{}, {} ({})", setup.shards, setup.workers, self.server.io),
            ),
            (
                "pool",
                format!("{} objects of {}", setup.capacity_blocks, bytes_text(setup.object_bytes)),
            ),
            ("requests, keys", format!("{}, {}", self.requests, self.blocks)),
            ("hit ratio", format!("{:.4}", self.hit_ratio)),
            ("hit ratio of an ideal LRU", format!("{:.4}", self.ideal_lru_hit_ratio)),
            ("keys stored, evicted", format!("{}, {}", self.stored, self.evictions)),
            ("keys lost between lookup and load", self.lost.to_string()),
            ("keys refused for want of room", self.full.to_string()),
            ("keys/s", format!("{:.0}", self.keys_per_s)),
            ("GB/s loaded and stored", format!("{:.3}", self.gb_per_s)),
            ("seconds", format!("{:.2}", self.seconds)),
            ("wrong bytes", self.wrong_bytes.to_string()),
            ("books balanced", yes_no(self.books_balanced).to_owned()),
        ];
        let mut table = Table::new();
        table.load_style(UTF8_BORDERS_ONLY).set_header(["demo", ""]);
        for (name, value) in rows {
            table.add_row([name.to_owned(), value]);
        }
        table
    }

    fn table_of_latencies(&self) -> Table {
        let mut table = Table::new();
        table.load_style(UTF8_BORDERS_ONLY);
        table.set_header(["latency of a request's", "p50 us", "p99 us", "p99.9 us", "calls"]);
        let kinds = [("lookup", self.lookup_us), ("load", self.load_us), ("store", self.store_us)];
        for (name, percentiles) in kinds {
            table.add_row([
                name.to_owned(),
                format!("{:.1}", percentiles.p50),
                format!("{:.1}", percentiles.p99),
                format!("{:.1}", percentiles.p999),
                percentiles.count.to_string(),
            ]);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }
}

fn bytes_text(bytes: u64) -> String {
    match bytes {
        _ if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests;
