//! The demo: a real server, worker processes that behave like engines, and the proof of each byte.

mod args;
mod child;
mod conversation;
mod error;
mod folder;
mod ideal_lru;
mod pattern;
mod protocol;
mod report;
mod run;
mod server;
mod trace;
mod worker;
mod workers;
mod workload;

pub(crate) use args::{ChildArgs, DemoArgs, WorkerArgs};
pub(crate) use child::run_child;
pub(crate) use run::run;
pub(crate) use worker::run_worker;
