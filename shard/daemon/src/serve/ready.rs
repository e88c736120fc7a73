//! What a server says once it serves.

use maru_wire::Generation;

use super::Run;
use super::error::StartError;
use crate::acceptor::Listeners;
use crate::config::Size;

/// Where clients connect, as text; `none` where they cannot.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    tcp: String,
    unix: String,
}

impl Addresses {
    /// Reads the addresses off the listeners.
    pub(crate) fn of(listeners: &Listeners) -> Self {
        let none = || "none".to_owned();
        let tcp = listeners.tcp.as_ref().map(|tcp| tcp.address().to_string());
        let unix = listeners.unix.as_ref().map(|unix| unix.path().display().to_string());
        Self { tcp: tcp.unwrap_or_else(none), unix: unix.unwrap_or_else(none) }
    }
}

/// Logs whom the server trusts and that it serves, and tells whoever waits at `ready_fd`.
pub(crate) fn announce(
    run: &Run<'_>,
    addresses: &Addresses,
    ready_fd: Option<u32>,
) -> Result<(), StartError> {
    let config = run.config;
    let Generation(generation) = run.generation;
    if config.secret.is_none() {
        tracing::warn!(
            insecure = config.insecure,
            "trust: there is no secret; whoever can connect can read and overwrite all pool memory"
        );
    } else {
        tracing::info!("trust: whoever proves the secret can read and overwrite all pool memory");
    }
    tracing::info!(
        pool = config.pool_id,
        node = config.node_name,
        tcp = addresses.tcp,
        unix = addresses.unix,
        shards = run.plan.shards.len(),
        pool_bytes = %Size(config.pool_bytes),
        page_bytes = %Size(config.page_bytes),
        generation = format_args!("{generation:016x}"),
        "ready"
    );
    let Some(fd) = ready_fd else { return Ok(()) };
    let line = format!("ready tcp={} unix={}\n", addresses.tcp, addresses.unix);
    let path = format!("/proc/self/fd/{fd}");
    let opened = std::fs::OpenOptions::new().append(true).open(path);
    let written = opened.and_then(|mut file| std::io::Write::write_all(&mut file, line.as_bytes()));
    written.map_err(|source| StartError::Ready { fd, source })
}
