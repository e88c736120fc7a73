//! The one place that chooses between the real atomics and loom's.

#[cfg(not(loom))]
pub(crate) use std::sync::Arc;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU8, AtomicU16, Ordering};

#[cfg(loom)]
pub(crate) use loom::sync::Arc;
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU8, Ordering};

#[cfg(not(loom))]
pub(crate) use ::rtrb;
#[cfg(not(loom))]
pub(crate) use bell::Bell;
#[cfg(loom)]
pub(crate) use model::{Bell, queue as rtrb};

#[cfg(not(loom))]
mod bell;
#[cfg(loom)]
mod model;
