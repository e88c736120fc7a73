//! `fairness`: how long the pings of one client take while others load its shard.
//!
//! Each pair sets a hard load against a fair one: a round of the one, a round of the other, over
//! and over, so that the machine's noise meets both.

use std::path::PathBuf;

use clap::Args;
use indicatif::ProgressBar;

mod bulk;
mod crowd;
mod garbage;
mod ping;
mod random;
mod target;

use target::Target;

use crate::pace::progress;
use crate::result::{Measurement, Run, median};
use crate::server::ServerArgs;

/// The hard load may raise the p99 of pings so many times above the fair one's.
const RATIO_MAX: f64 = 2.0;
/// Memory that garbage may cost beyond an idle server.
const GROWTH_MAX_BYTES: f64 = (16 << 20) as f64;

/// What to measure, and how often.
#[derive(Args, Debug)]
#[command(after_help = "\
garbage   Attackers send random bytes, frames with bits turned over, frames that announce 100 MB, half
          frames, half and replayed hellos, single bytes, or nothing; each leaves or stays silent,
          and comes back. Against them: as many well-behaved clients that connect as often, send
          about as many bytes (exists, lookup, release), and keep as many connections open.
          The server's memory, without the pool, is watched as well.
evicting  Clients keep one reserve of 4,096 keys each in flight on a full pool, so that each key evicts
          another, and publish what they get. Against them: the same reserves on a pool with room,
          given back by abandon, so that nothing is ever evicted.

A ping is blocking, on its own connection, at a random moment. Every row shows medians over the rounds;
the ratios are those of neighbouring rounds. The bar is on the ratio of the p99: at most 2.
The server's shard has a core of its own; pings and other clients have each one too if there are three
cores, else they share the second.")]
pub(crate) struct FairnessArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Which loads to set against each other
    #[arg(long, value_delimiter = ',', default_value = "garbage,evicting")]
    pairs: Vec<Pair>,
    /// Clients beside the one that pings
    #[arg(long, value_name = "N", default_value_t = 16,
          value_parser = clap::value_parser!(u16).range(1..=256))]
    clients: u16,
    /// Rounds of each load
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Pings of a round
    #[arg(long, value_name = "N", default_value_t = 2000,
          value_parser = clap::value_parser!(u32).range(100..))]
    pings: u32,
    /// Mean pause before a ping
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 500)]
    pause_us: u64,
    /// garbage: connections that all clients make together; 0 for as many as they can, which are
    /// more for attackers: then their ratio says less
    #[arg(long, value_name = "PER SECOND", default_value_t = 1000)]
    sessions: u64,
    /// Where the result goes [default: target/bench/fairness-TIME.json]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Two loads to set against each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Pair {
    /// Frames that are no message, against well-behaved clients
    Garbage,
    /// Large reserves that evict, against the same on a pool with room
    Evicting,
}

/// What the others do in a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Others {
    Nothing,
    Behaved,
    Garbage,
    Roomy,
    Evicting,
}

impl Others {
    fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nobody else",
            Self::Behaved => "well-behaved clients",
            Self::Garbage => "attackers",
            Self::Roomy => "large reserves, nothing evicted",
            Self::Evicting => "large reserves that evict",
        }
    }
}

impl Pair {
    fn name(self) -> &'static str {
        match self {
            Self::Garbage => "garbage",
            Self::Evicting => "evicting",
        }
    }

    /// No load, the fair load, the hard load.
    fn loads(self) -> [Others; 3] {
        match self {
            Self::Garbage => [Others::Nothing, Others::Behaved, Others::Garbage],
            Self::Evicting => [Others::Nothing, Others::Roomy, Others::Evicting],
        }
    }
}

/// Measures every pair, round by round.
pub(crate) fn run(args: &FairnessArgs) -> anyhow::Result<()> {
    let mut run = Run::start("fairness");
    run.note("io", args.server.io.name());
    run.note("transport", args.server.transport.name());
    run.note("clients", args.clients);
    run.note("rounds", args.rounds);
    run.note("pings", args.pings);
    run.note("pause_us", args.pause_us);
    run.note("sessions_per_s", args.sessions);
    let bar = progress(args.pairs.len() * usize::from(args.rounds) * 3);
    for pair in &args.pairs {
        let rows = measure(args, *pair, &bar, &mut run)?;
        let [_, fair, hard] = &rows;
        for (metric, name) in [("p50_us", "p50"), ("p999_us", "p99.9")] {
            let ratio = median(&ratios(fair, hard, metric));
            run.derive(format!("{}: {name} of pings, hard / fair load", pair.name()), ratio);
        }
        let name = format!("{}: p99 of pings, hard / fair load", pair.name());
        run.bar(name, &ratios(fair, hard, "p99_us"), RATIO_MAX);
        if *pair == Pair::Garbage {
            let growth = hard.values("memory_growth_bytes").iter().copied().fold(0.0, f64::max);
            run.bar("garbage: most memory beyond idle, bytes", &[growth], GROWTH_MAX_BYTES);
        }
        for row in rows {
            run.add(row);
        }
    }
    bar.finish_and_clear();
    run.finish(args.output.as_deref())
}

fn measure(
    args: &FairnessArgs,
    pair: Pair,
    bar: &ProgressBar,
    run: &mut Run,
) -> anyhow::Result<[Measurement; 3]> {
    let mut rows = pair.loads().map(|load| {
        Measurement::new(format!("{}: {}", pair.name(), load.name())).with("pair", pair.name())
    });
    // One server for each load, so that no load finds what another left behind.
    let mut targets = Vec::new();
    for load in pair.loads() {
        targets.push(Target::start(args, pair, load)?);
    }
    for round in 0..args.rounds {
        for (target, row) in targets.iter_mut().zip(&mut rows) {
            bar.set_message(format!("{}: {}", pair.name(), target.load().name()));
            target.round(args, u64::from(round), row)?;
            bar.inc(1);
        }
    }
    for target in targets {
        target.close(run)?;
    }
    Ok(rows)
}

/// Sets each round of the hard load against the fair one beside it.
fn ratios(fair: &Measurement, hard: &Measurement, metric: &str) -> Vec<f64> {
    let pairs = hard.values(metric).iter().zip(fair.values(metric));
    pairs.map(|(hard, fair)| hard / fair).collect()
}
