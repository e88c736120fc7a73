//! `ping`: asks every shard for a sign of life.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Instant;

use maru_client::Pong;
use serde_json::json;

use crate::ask::{self, AskError};
use crate::cli::PingArgs;

/// Pings every shard once and prints the answers.
pub(crate) fn run(args: &PingArgs) -> ExitCode {
    ask::exit_code(ping(args))
}

fn ping(args: &PingArgs) -> Result<(), AskError> {
    let client = ask::client(&args.server)?;
    let deadline = Instant::now() + args.server.timeout.0;
    let left = || deadline.saturating_duration_since(Instant::now());
    let ping = |shard| client.ping(shard, left()).map_err(ask::within(args.server.timeout.0));
    // The first answer brings the number of shards.
    let mut pongs = vec![ping(0)?];
    for shard in 1..client.shard_count(left())? {
        pongs.push(ping(shard)?);
    }
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", to_json(&pongs))?;
        return Ok(());
    }
    for (shard, pong) in pongs.iter().enumerate() {
        writeln!(
            out,
            "shard {shard}: {} us, generation {:016x}, {} connections, {} waiting",
            pong.round_trip.as_micros(),
            pong.generation.0,
            pong.reply.connection_count,
            pong.reply.waiting_count,
        )?;
    }
    Ok(())
}

fn to_json(pongs: &[Pong]) -> serde_json::Value {
    let generation = pongs.first().map_or(0, |pong| pong.generation.0);
    let shards = pongs.iter().enumerate().map(|(shard, pong)| {
        json!({
            "shard": shard,
            "round_trip_us": u64::try_from(pong.round_trip.as_micros()).unwrap_or(u64::MAX),
            "eviction_number": pong.reply.eviction_number,
            "connection_count": pong.reply.connection_count,
            "waiting_count": pong.reply.waiting_count,
        })
    });
    json!({
        "generation": format!("{generation:016x}"),
        "shards": shards.collect::<Vec<_>>(),
    })
}
