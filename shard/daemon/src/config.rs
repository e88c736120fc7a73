//! The configuration of `serve`: read from a file and flags, completed by defaults, checked.
//!
//! It refuses what cannot work and names the key. It touches the file, the secret and the host's
//! name, nothing else.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use maru_client::{SecretError, read_secret_file};
use maru_wire::{NAME_BYTES_MAX, Secret};

mod options;
mod values;

pub(crate) use options::{EvictionChoice, HugePages, IoChoice, LogFormat, Options};
use values::{Shards, TcpBind, UnixBind};
pub(crate) use values::{Size, Span};

/// Port of the TCP listener when none is named: MARU on a telephone's keys.
pub(crate) const TCP_PORT_DEFAULT: u16 = 6278;
/// Fewest pages of a shard: with fewer no object could ever meet the caps.
const SHARD_PAGES_MIN: u64 = 16;
/// Most connections of a shard: a table of them is made at start.
const CONNECTIONS_CEILING: u32 = 1 << 20;

/// Shortest time of any setting: with less no client on a busy machine could keep up.
const SPAN_MIN: Duration = Duration::from_millis(100);

/// A configuration that is complete and free of contradictions.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) tcp: Option<SocketAddr>,
    pub(crate) unix: Option<PathBuf>,
    pub(crate) secret: Secret,
    pub(crate) insecure: bool,
    pub(crate) node_name: String,
    pub(crate) pool_id: String,
    /// Empty allows any.
    pub(crate) namespaces: Vec<String>,
    pub(crate) pool_bytes: u64,
    pub(crate) page_bytes: u64,
    pub(crate) huge_pages: HugePages,
    pub(crate) eviction: EvictionChoice,
    pub(crate) reservation_ttl: Duration,
    pub(crate) lease_ttl: Duration,
    pub(crate) fence: Duration,
    pub(crate) quarantine_warning: Duration,
    pub(crate) frame_timeout: Duration,
    /// `None` is one for each core that the process may use.
    pub(crate) shards: Option<u32>,
    pub(crate) io: IoChoice,
    pub(crate) connections_max: u32,
    pub(crate) log_format: LogFormat,
}

/// Why a configuration was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ConfigError {
    #[error("cannot read the configuration file {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error(
        "configuration file {}, line {line_number} (`{line}`): {}",
        path.display(), one_line(source.message())
    )]
    Syntax { path: PathBuf, line_number: usize, line: String, source: Box<toml::de::Error> },
    #[error("{key}: {reason}")]
    Value { key: &'static str, reason: String },
    #[error("{key} and {other} contradict each other: {reason}")]
    Contradiction { key: &'static str, other: &'static str, reason: String },
    #[error("secret_file: {0}")]
    Secret(#[from] SecretError),
    #[error(
        "tcp: {address} is reachable from other machines and there is no secret_file: whoever \
         connects could read and overwrite the pool. Give a secret_file, listen at 127.0.0.1, or \
         say insecure"
    )]
    OpenToAll { address: SocketAddr },
}

impl Config {
    /// Reads the file, if any, lets the flags win, and completes and checks the outcome.
    pub(crate) fn load(flags: Options, file: Option<&Path>) -> Result<Self, ConfigError> {
        let given = match file {
            Some(path) => flags.or(Options::read(path)?),
            None => flags,
        };
        Self::complete(given)
    }

    fn complete(given: Options) -> Result<Self, ConfigError> {
        let pool_bytes = given.pool_bytes.unwrap_or(Size(1 << 30)).0;
        let loopback = SocketAddr::from(([127, 0, 0, 1], TCP_PORT_DEFAULT));
        let span =
            |span: Option<Span>, default_s| span.map_or(Duration::from_secs(default_s), |s| s.0);
        let config = Self {
            tcp: given.tcp.unwrap_or(TcpBind(Some(loopback))).0,
            unix: given.unix.unwrap_or_else(|| UnixBind(Some(unix_path_default()))).0,
            secret: given.secret_file.as_deref().map_or(Ok(Secret::none()), read_secret_file)?,
            insecure: given.insecure.unwrap_or(false),
            node_name: given.node_name.unwrap_or_else(host_name),
            pool_id: given.pool_id.unwrap_or_else(|| "maru".to_owned()),
            namespaces: given.namespaces.unwrap_or_default(),
            pool_bytes,
            page_bytes: given.page_bytes.unwrap_or(Size(1 << 20)).0,
            huge_pages: given.huge_pages.unwrap_or(HugePages::None),
            eviction: given.eviction.unwrap_or(EvictionChoice::Lru),
            reservation_ttl: span(given.reservation_ttl, 60),
            lease_ttl: span(given.lease_ttl, 120),
            fence: span(given.fence, 60),
            quarantine_warning: span(given.quarantine_warning, 600),
            frame_timeout: span(given.frame_timeout, 10),
            shards: given.shards.unwrap_or(Shards(None)).0,
            io: given.io.unwrap_or(IoChoice::Auto),
            connections_max: given.connections_max.unwrap_or(4096),
            log_format: given.log_format.unwrap_or(LogFormat::Text),
        };
        config.check_addresses()?;
        config.check_names()?;
        config.check_memory(given.capacity_bytes)?;
        config.check_times()?;
        Ok(config)
    }

    fn check_addresses(&self) -> Result<(), ConfigError> {
        if self.tcp.is_none() && self.unix.is_none() {
            let reason = "both are none, so nobody could connect".to_owned();
            return Err(ConfigError::Contradiction { key: "tcp", other: "unix", reason });
        }
        if self.insecure && !self.secret.is_none() {
            let reason = "with a secret nothing is open".to_owned();
            return Err(ConfigError::Contradiction {
                key: "insecure",
                other: "secret_file",
                reason,
            });
        }
        match self.tcp {
            Some(address)
                if !address.ip().is_loopback() && self.secret.is_none() && !self.insecure =>
            {
                Err(ConfigError::OpenToAll { address })
            }
            Some(_) | None => Ok(()),
        }
    }

    fn check_names(&self) -> Result<(), ConfigError> {
        let named = [("node_name", &self.node_name), ("pool_id", &self.pool_id)];
        let namespaces = self.namespaces.iter().map(|name| ("namespaces", name));
        for (key, name) in named.into_iter().chain(namespaces) {
            if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control)
            {
                let reason =
                    format!("`{name}` is no name: 1 to {NAME_BYTES_MAX} bytes of plain text");
                return Err(ConfigError::Value { key, reason });
            }
        }
        if let Some(twice) = first_repeated(&self.namespaces) {
            let reason = format!("`{twice}` is listed twice");
            return Err(ConfigError::Value { key: "namespaces", reason });
        }
        Ok(())
    }

    fn check_memory(&self, capacity: Option<Size>) -> Result<(), ConfigError> {
        let contradiction =
            |key, other, reason| Err(ConfigError::Contradiction { key, other, reason });
        let pool = Size(self.pool_bytes);
        let page = Size(self.page_bytes);
        if let Some(capacity) = capacity
            && capacity != pool
        {
            let reason = format!("{capacity} is not {pool}, and growth is not built yet");
            return contradiction("capacity_bytes", "pool_bytes", reason);
        }
        if self.page_bytes < 4096 || !self.page_bytes.is_multiple_of(4096) {
            let reason = format!("{page} is no multiple of 4K");
            return Err(ConfigError::Value { key: "page_bytes", reason });
        }
        if !self.pool_bytes.is_multiple_of(self.page_bytes) {
            let reason = format!("{pool} is no multiple of {page}");
            return contradiction("pool_bytes", "page_bytes", reason);
        }
        if let Some(huge) = self.huge_pages.bytes()
            && !self.pool_bytes.is_multiple_of(huge)
        {
            let reason = format!("{pool} is no multiple of {}", Size(huge));
            return contradiction("pool_bytes", "huge_pages", reason);
        }
        let page_count = self.pool_bytes / self.page_bytes;
        if page_count > u64::from(u32::MAX) {
            let reason = format!("{page_count} pages are too many: take larger ones");
            return contradiction("pool_bytes", "page_bytes", reason);
        }
        let shards = u64::from(self.shards.unwrap_or(1));
        if page_count / shards < SHARD_PAGES_MIN {
            let reason = format!(
                "{page_count} pages of {page} for {shards} shards: each needs at least \
                 {SHARD_PAGES_MIN}"
            );
            return contradiction("pool_bytes", "shards", reason);
        }
        if !(1..=CONNECTIONS_CEILING).contains(&self.connections_max) {
            let reason = format!("must be 1 to {CONNECTIONS_CEILING}");
            return Err(ConfigError::Value { key: "connections_max", reason });
        }
        Ok(())
    }

    fn check_times(&self) -> Result<(), ConfigError> {
        for (key, span) in [
            ("reservation_ttl", self.reservation_ttl),
            ("lease_ttl", self.lease_ttl),
            ("fence", self.fence),
            ("quarantine_warning", self.quarantine_warning),
            ("frame_timeout", self.frame_timeout),
        ] {
            if span < SPAN_MIN {
                let reason = format!("{span:?} is too short: at least {SPAN_MIN:?} are needed");
                return Err(ConfigError::Value { key, reason });
            }
        }
        if self.quarantine_warning < self.reservation_ttl {
            let reason = "a reservation would be warned about before it is overdue".to_owned();
            return Err(ConfigError::Contradiction {
                key: "quarantine_warning",
                other: "reservation_ttl",
                reason,
            });
        }
        Ok(())
    }
}

/// Where the Unix socket is when no path is named; the commands look there too.
pub(crate) fn unix_path_default() -> PathBuf {
    let folder = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
    folder.map_or_else(|| PathBuf::from("/run"), PathBuf::from).join("maru-shard.sock")
}

fn host_name() -> String {
    let name = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    name.filter(|name| !name.is_empty()).unwrap_or_else(|| "maru".to_owned())
}

/// Joins the lines of a message.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn first_repeated(names: &[String]) -> Option<&String> {
    names.iter().enumerate().find(|(i, name)| names[..*i].contains(name)).map(|(_, name)| name)
}

#[cfg(test)]
mod tests;
