//! `maru-shardd`: a pool node of maru-shard, its operator's commands, and its demo.

#![cfg_attr(not(test), forbid(unsafe_code))]

use std::process::ExitCode;

use clap::Parser as _;

mod acceptor;
mod ask;
mod cli;
mod config;
mod connection;
mod demo;
mod executor;
mod log;
mod mail;
mod ping;
mod reasons;
mod serve;
mod shard_loop;
mod stats;

use cli::{Cli, Command};

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Serve(args) => serve::run(&args),
        Command::Stats(args) => stats::run(&args),
        Command::Ping(args) => ping::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::DemoWorker(args) => demo::run_worker(&args),
        Command::DemoChild(args) => demo::run_child(&args),
    }
}
