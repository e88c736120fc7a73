//! `maru-bench`: what the machine can do, and how near to that the server comes.

mod control;
mod dial;
mod echo;
mod evict;
mod fairness;
mod idle;
mod keys;
mod limits;
mod load;
mod machine;
mod pace;
mod result;
mod server;
mod work;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Benchmarks of maru-shard. Every result is a table, and a JSON file with all that it rests on.
#[derive(Parser, Debug)]
#[command(name = "maru-bench", version, max_term_width = 100, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// What this machine can do: system calls, round trips, memory, and a bare echo on our ring
    Limits(limits::LimitsArgs),
    /// Control messages: exists, lookup + release, reserve + publish, beside the bare echo
    Control(control::ControlArgs),
    /// CPU per key of a reserve that evicts, from few to many resident keys
    Evict(evict::EvictArgs),
    /// Pings of one client while others send garbage, or as large frames as there are
    Fairness(fairness::FairnessArgs),
    /// CPU of a server that nobody asks anything
    Idle(idle::IdleArgs),
}

fn main() -> ExitCode {
    let run = match Cli::parse().command {
        Command::Limits(args) => limits::run(&args),
        Command::Control(args) => control::run(&args),
        Command::Evict(args) => evict::run(&args),
        Command::Fairness(args) => fairness::run(&args),
        Command::Idle(args) => idle::run(&args),
    };
    match run {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("maru-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
