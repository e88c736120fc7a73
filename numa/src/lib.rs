//! What the machine allows: CPUs, their NUMA nodes, and pinning.
//!
//! Best effort: a machine that says nothing, or a container that forbids, gives a value or an
//! error, never a panic. It decides nothing: `maru-plan` does.

mod cpus;
mod pin;

pub use cpus::{allowed_cpus, node_of_cpu};
pub use pin::{PinError, pin_current_thread};
