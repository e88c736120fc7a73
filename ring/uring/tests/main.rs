//! The reactor over real sockets. Every test runs on both backends.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

/// Makes a test of each function for each backend.
macro_rules! on_both_backends {
    ($($name:ident),* $(,)?) => {
        mod uring {
            $(#[test] fn $name() { super::$name(maru_uring::IoMode::Uring); })*
        }
        mod epoll {
            $(#[test] fn $name() { super::$name(maru_uring::IoMode::Epoll); })*
        }
    };
}

mod allocations;
mod bench;
mod closing;
mod connecting;
mod echo;
mod limits;
mod pressure;
mod refused;
mod storm;
mod waking;
