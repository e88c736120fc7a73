//! Values of the configuration as people write them: sizes, durations, addresses, counts.
//!
//! Each parses from text, for flags and the file alike, and says what it would have accepted.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{self, Deserializer, Visitor};

/// Why a value was refused. The key or flag is added by whoever read it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ValueError {
    #[error("`{0}` is no size: write bytes, or a number with K, M, G or T, like 500M or 4G")]
    Size(String),
    #[error("size `{0}` does not fit in 64 bits")]
    SizeTooLarge(String),
    #[error("size must be above 0")]
    SizeZero,
    #[error("`{0}` is no duration: write a whole number with us, ms, s, m or h, like 60s or 500ms")]
    Duration(String),
    #[error("duration `{0}` is longer than a year")]
    DurationTooLong(String),
    #[error("duration must be above 0")]
    DurationZero,
    #[error("`{0}` is no TCP address: write IP:PORT, like 127.0.0.1:6278, or none")]
    Tcp(String),
    #[error("`{0}` is no socket path: write an absolute path of at most 107 bytes, or none")]
    Unix(String),
    #[error("`{0}` is no number of shards: write auto, or a number from 1 to 1024")]
    Shards(String),
}

/// A number of bytes above 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

impl FromStr for Size {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let no_size = || ValueError::Size(text.to_owned());
        let digits_end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (digits, suffix) = text.split_at(digits_end);
        let shift = match suffix.to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kib" => 10,
            "m" | "mib" => 20,
            "g" | "gib" => 30,
            "t" | "tib" => 40,
            _ => return Err(no_size()),
        };
        if digits.is_empty() {
            return Err(no_size());
        }
        let too_large = || ValueError::SizeTooLarge(text.to_owned());
        let number: u64 = digits.parse().map_err(|_| too_large())?;
        let bytes = number.checked_mul(1 << shift).ok_or_else(too_large)?;
        if bytes == 0 { Err(ValueError::SizeZero) } else { Ok(Self(bytes)) }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shift, unit) in [(40, "T"), (30, "G"), (20, "M"), (10, "K")] {
            if self.0 >> shift > 0 && self.0.is_multiple_of(1 << shift) {
                return write!(f, "{}{unit}", self.0 >> shift);
            }
        }
        write!(f, "{}", self.0)
    }
}

/// A time above 0 and at most a year.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Duration);

const SPAN_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

impl FromStr for Span {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let no_duration = || ValueError::Duration(text.to_owned());
        let digits_end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (digits, unit) = text.split_at(digits_end);
        let unit_us: u64 = match unit {
            "us" => 1,
            "ms" => 1_000,
            "s" => 1_000_000,
            "m" => 60_000_000,
            "h" => 3_600_000_000,
            _ => return Err(no_duration()),
        };
        if digits.is_empty() {
            return Err(no_duration());
        }
        let too_long = || ValueError::DurationTooLong(text.to_owned());
        let number: u64 = digits.parse().map_err(|_| too_long())?;
        let span = number.checked_mul(unit_us).map(Duration::from_micros).ok_or_else(too_long)?;
        if span > SPAN_MAX {
            return Err(too_long());
        }
        if span.is_zero() { Err(ValueError::DurationZero) } else { Ok(Self(span)) }
    }
}

/// Where to listen for TCP, if at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TcpBind(pub(crate) Option<SocketAddr>);

impl FromStr for TcpBind {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text {
            "none" => Ok(Self(None)),
            _ => text
                .parse()
                .map(|address| Self(Some(address)))
                .map_err(|_| ValueError::Tcp(text.to_owned())),
        }
    }
}

/// Where to put the Unix socket, if anywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnixBind(pub(crate) Option<PathBuf>);

/// `sun_path` holds 108 bytes with the terminating zero.
const UNIX_PATH_BYTES_MAX: usize = 107;

impl FromStr for UnixBind {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if text == "none" {
            return Ok(Self(None));
        }
        let path = PathBuf::from(text);
        if !path.is_absolute() || text.len() > UNIX_PATH_BYTES_MAX || text.contains('\0') {
            return Err(ValueError::Unix(text.to_owned()));
        }
        Ok(Self(Some(path)))
    }
}

/// How many shards; `None` is one for each core that the process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shards(pub(crate) Option<u32>);

/// More shards than any machine has cores to spare for.
const SHARDS_MAX: u32 = 1024;

impl FromStr for Shards {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text.parse() {
            _ if text == "auto" => Ok(Self(None)),
            Ok(count) if (1..=SHARDS_MAX).contains(&count) => Ok(Self(Some(count))),
            Ok(_) | Err(_) => Err(ValueError::Shards(text.to_owned())),
        }
    }
}

/// Reads text, or a whole number as its decimal text, through `FromStr`.
struct TextVisitor<T>(std::marker::PhantomData<T>);

impl<T: FromStr<Err = ValueError>> Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a whole number")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }
}

macro_rules! deserialize_from_text {
    ($($name:ident),*) => {$(
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(TextVisitor(std::marker::PhantomData))
            }
        }
    )*};
}
deserialize_from_text!(Size, Span, TcpBind, UnixBind, Shards);

#[cfg(test)]
mod tests;
