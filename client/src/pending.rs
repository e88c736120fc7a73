//! Stand-ins until the crates below have these types.

/// How the ring thread does its I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum IoMode {
    /// io_uring, else epoll.
    #[default]
    Auto,
    /// io_uring.
    Uring,
    /// epoll.
    Epoll,
}

/// The shared secret.
#[derive(Clone)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Makes a secret.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
    /// No secret.
    #[must_use]
    pub fn none() -> Self {
        Self(Vec::new())
    }
    /// Whether it is none.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}
