//! What the server said about itself: what callers need to route and to split.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use maru_wire::{Generation, HelloReply, Limits, Mover, RegionInfo};

/// One generation's shape. Constant but for shards that answer for the first time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The run of the server.
    pub generation: Generation,
    /// How many shards it has.
    pub shard_count: u32,
    /// The node's name.
    pub node_name: String,
    /// The limits of a shard that answered.
    pub limits: Limits,
    /// The limits of each shard, as far as it answered.
    pub shard_limits: Vec<Option<Limits>>,
    /// The regions.
    pub regions: Vec<RegionInfo>,
    /// The movers offered.
    pub movers: Vec<Mover>,
}

impl Layout {
    /// Starts from the first reply of a generation.
    pub(crate) fn new(generation: Generation, reply: &HelloReply) -> Self {
        let mut layout = Self {
            generation,
            shard_count: reply.shard_count,
            node_name: reply.node_name.clone(),
            limits: reply.limits,
            shard_limits: vec![None; reply.shard_count as usize],
            regions: Vec::new(),
            movers: reply.movers.clone(),
        };
        layout.add(reply);
        layout
    }

    /// Adds what another shard said. Returns whether anything is new.
    pub(crate) fn add(&mut self, reply: &HelloReply) -> bool {
        let Some(known) = self.shard_limits.get_mut(reply.shard as usize) else { return false };
        let mut is_new = *known != Some(reply.limits);
        *known = Some(reply.limits);
        if reply.regions.len() > self.regions.len() {
            self.regions.clone_from(&reply.regions);
            is_new = true;
        }
        is_new
    }

    /// Returns the limits of `shard`; those of another while it has not answered.
    #[must_use]
    pub fn limits_of(&self, shard: u32) -> &Limits {
        self.shard_limits.get(shard as usize).and_then(Option::as_ref).unwrap_or(&self.limits)
    }

    /// Returns how many pages an object of `object_bytes` takes.
    #[must_use]
    pub fn pages_of(&self, object_bytes: u64) -> u64 {
        object_bytes.div_ceil(self.limits.page_bytes.max(1))
    }
}
