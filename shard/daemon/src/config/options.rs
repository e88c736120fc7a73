//! The options of `serve`: one list for the flags and for the file, so that both have every key.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde::Deserialize;

use super::ConfigError;
use super::values::{Shards, Size, Span, TcpBind, UnixBind};

/// Most of a line of the file that an error shows.
const LINE_CHARS_MAX: usize = 80;

/// What the pool does when it is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EvictionChoice {
    /// Evict the least recently used chunks, exactly as many as are needed.
    Lru,
    /// Evict nothing: answer Full.
    None,
}

/// How the shards talk to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum IoChoice {
    /// io_uring, or epoll where io_uring is refused.
    Auto,
    /// io_uring or nothing.
    Uring,
    /// epoll.
    Epoll,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// What kind of pages the pool's memory has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
pub(crate) enum HugePages {
    /// The machine's ordinary pages.
    #[value(name = "none")]
    #[serde(rename = "none")]
    None,
    /// Reserved huge pages of 2 MiB.
    #[value(name = "2M")]
    #[serde(rename = "2M")]
    TwoMib,
    /// Reserved huge pages of 1 GiB.
    #[value(name = "1G")]
    #[serde(rename = "1G")]
    OneGib,
}

impl HugePages {
    /// Returns the size of a page, or `None` for ordinary ones.
    pub(crate) fn bytes(self) -> Option<u64> {
        match self {
            Self::None => None,
            Self::TwoMib => Some(2 << 20),
            Self::OneGib => Some(1 << 30),
        }
    }
}

/// Every option as it was given, in the file or by flags.
#[derive(Args, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Options {
    /// TCP address to listen at [default: 127.0.0.1:6278]
    #[arg(long, value_name = "IP:PORT|none", help_heading = "Addresses")]
    pub(crate) tcp: Option<TcpBind>,
    /// Unix socket to listen at [default: $XDG_RUNTIME_DIR or /run, then /maru-shard.sock]
    #[arg(long, value_name = "PATH|none", help_heading = "Addresses")]
    pub(crate) unix: Option<UnixBind>,
    /// File with the secret that clients must prove, 16 bytes or more, for the owner's eyes only
    #[arg(long, value_name = "PATH", help_heading = "Addresses")]
    pub(crate) secret_file: Option<PathBuf>,
    /// Listen beyond loopback without a secret
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", help_heading = "Addresses")]
    pub(crate) insecure: Option<bool>,
    /// Name of this pool node, as clients may expect it [default: the host's name]
    #[arg(long, value_name = "NAME", help_heading = "Addresses")]
    pub(crate) node_name: Option<String>,
    /// Name of the pool, shown in logs [default: maru]
    #[arg(long, value_name = "NAME", help_heading = "Addresses")]
    pub(crate) pool_id: Option<String>,
    /// Namespace that clients may use; repeat for more [default: any]
    #[arg(long = "namespace", value_name = "NAME", help_heading = "Addresses")]
    pub(crate) namespaces: Option<Vec<String>>,

    /// Memory of the pool, like 4G or 500M [default: 1G]
    #[arg(long, value_name = "SIZE", help_heading = "Memory")]
    pub(crate) pool_bytes: Option<Size>,
    /// Most memory that the pool may grow to; growth is not built yet, so it must equal
    /// --pool-bytes
    #[arg(long, value_name = "SIZE", help_heading = "Memory")]
    pub(crate) capacity_bytes: Option<Size>,
    /// Size of a page; an object takes 1 to 64 of them [default: 1M]
    #[arg(long, value_name = "SIZE", help_heading = "Memory")]
    pub(crate) page_bytes: Option<Size>,
    /// Take huge pages that the machine has reserved [default: none]
    #[arg(long, value_name = "KIND", help_heading = "Memory")]
    pub(crate) huge_pages: Option<HugePages>,
    /// What to do when the pool is full [default: lru]
    #[arg(long, value_name = "POLICY", help_heading = "Memory")]
    pub(crate) eviction: Option<EvictionChoice>,

    /// Life of a reservation before it is overdue [default: 60s]
    #[arg(long, value_name = "TIME", help_heading = "Times")]
    pub(crate) reservation_ttl: Option<Span>,
    /// Life of a lease [default: 120s]
    #[arg(long, value_name = "TIME", help_heading = "Times")]
    pub(crate) lease_ttl: Option<Span>,
    /// How long pages of a write that ended in an error stay fenced [default: 60s]
    #[arg(long, value_name = "TIME", help_heading = "Times")]
    pub(crate) fence: Option<Span>,
    /// Age of an overdue reservation that is warned about [default: 600s]
    #[arg(long, value_name = "TIME", help_heading = "Times")]
    pub(crate) quarantine_warning: Option<Span>,
    /// How long a frame may take to arrive whole [default: 10s]
    #[arg(long, value_name = "TIME", help_heading = "Times")]
    pub(crate) frame_timeout: Option<Span>,

    /// Shards, each a thread on a core of its own [default: auto, one for each core]
    #[arg(long, value_name = "N|auto", help_heading = "Shards")]
    pub(crate) shards: Option<Shards>,
    /// How to talk to the kernel [default: auto]
    #[arg(long, value_name = "KIND", help_heading = "Shards")]
    pub(crate) io: Option<IoChoice>,
    /// Most connections of one shard [default: 4096]
    #[arg(long, value_name = "N", help_heading = "Shards")]
    pub(crate) connections_max: Option<u32>,

    /// How log lines are written [default: text]
    #[arg(long, value_name = "FORMAT", help_heading = "Log")]
    pub(crate) log_format: Option<LogFormat>,
}

impl Options {
    /// Reads the file at `path`.
    pub(crate) fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
        toml::from_str(&text).map_err(|source: toml::de::Error| {
            let at = source.span().map_or(0, |span| span.start.min(text.len()));
            let line_number =
                text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
            let line = text.lines().nth(line_number - 1).unwrap_or_default().trim();
            let line = line.chars().take(LINE_CHARS_MAX).filter(|c| !c.is_control()).collect();
            ConfigError::Syntax {
                path: path.to_owned(),
                line_number,
                line,
                source: Box::new(source),
            }
        })
    }

    /// Takes from `file` what the flags leave open.
    pub(crate) fn or(self, file: Self) -> Self {
        Self {
            tcp: self.tcp.or(file.tcp),
            unix: self.unix.or(file.unix),
            secret_file: self.secret_file.or(file.secret_file),
            insecure: self.insecure.or(file.insecure),
            node_name: self.node_name.or(file.node_name),
            pool_id: self.pool_id.or(file.pool_id),
            namespaces: self.namespaces.or(file.namespaces),
            pool_bytes: self.pool_bytes.or(file.pool_bytes),
            capacity_bytes: self.capacity_bytes.or(file.capacity_bytes),
            page_bytes: self.page_bytes.or(file.page_bytes),
            huge_pages: self.huge_pages.or(file.huge_pages),
            eviction: self.eviction.or(file.eviction),
            reservation_ttl: self.reservation_ttl.or(file.reservation_ttl),
            lease_ttl: self.lease_ttl.or(file.lease_ttl),
            fence: self.fence.or(file.fence),
            quarantine_warning: self.quarantine_warning.or(file.quarantine_warning),
            frame_timeout: self.frame_timeout.or(file.frame_timeout),
            shards: self.shards.or(file.shards),
            io: self.io.or(file.io),
            connections_max: self.connections_max.or(file.connections_max),
            log_format: self.log_format.or(file.log_format),
        }
    }
}
