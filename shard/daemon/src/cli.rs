//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::config::{Options, Span};
use crate::demo;

/// A pool node of maru-shard: lends its memory to LLM engines as a shared KV cache.
#[derive(Parser, Debug)]
#[command(name = "maru-shardd", version, max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Serve a pool until SIGTERM or SIGINT
    Serve(Box<ServeArgs>),
    /// Show a server's books and counters, per shard and summed
    Stats(StatsArgs),
    /// Ask every shard of a server for a sign of life
    Ping(PingArgs),
    /// Start a server and workers that behave like engines, and check every byte
    Demo(Box<demo::DemoArgs>),
    /// One worker of the demo
    #[command(hide = true)]
    DemoWorker(Box<demo::WorkerArgs>),
    /// Another command of the demo, tied to its life; `demo::run_child` carries it out
    #[command(hide = true)]
    DemoChild(demo::ChildArgs),
}

/// Serve a pool until SIGTERM or SIGINT.
///
/// Every option can stand in the file too, under the flag's name with `_` for `-`
/// (`namespaces` is a list there). Flags win.
#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    /// TOML file with options
    #[arg(long, short, value_name = "PATH")]
    pub(crate) config: Option<PathBuf>,
    /// Write one line to this descriptor once the server serves: `ready`, then its addresses
    #[arg(long, value_name = "FD")]
    pub(crate) ready_fd: Option<u32>,
    #[command(flatten)]
    pub(crate) options: Options,
}

/// Which server to ask, and how.
#[derive(Args, Debug)]
pub(crate) struct ServerArgs {
    /// The server: unix:PATH or tcp:HOST:PORT [default: the Unix socket that serve uses]
    #[arg(long, short, value_name = "ADDRESS")]
    pub(crate) address: Option<String>,
    /// File with the server's secret
    #[arg(long, value_name = "PATH")]
    pub(crate) secret_file: Option<PathBuf>,
    /// How long to wait in all
    #[arg(long, value_name = "TIME", default_value = "5s")]
    pub(crate) timeout: Span,
}

#[derive(Args, Debug)]
pub(crate) struct StatsArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct PingArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
