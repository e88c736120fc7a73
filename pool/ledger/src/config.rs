//! What a shard is started with: limits, times, extents. Sizes of tables are fixed here.

use maru_wire::{Generation, Limits, PAGES_PER_OBJECT_MAX, TICKETS_PER_HELLO_MAX};

/// A point in time, in microseconds since the server's start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Time(pub u64);

impl Time {
    /// Returns the time `us` microseconds later.
    #[must_use]
    pub fn after(self, us: u64) -> Self {
        Self(self.0.saturating_add(us))
    }

    /// Returns the microseconds from `earlier` to this time, 0 when it is not earlier.
    #[must_use]
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Consecutive pages of one region that belong to the shard. Runs never cross an extent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// The region's number.
    pub region: u32,
    /// Index of the first page in the region.
    pub page_index: u32,
    /// How many pages, at least 1.
    pub page_count: u32,
}

/// What makes room when no page is free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Eviction {
    /// The chunks that were stored or read least recently go first.
    Lru,
    /// Nothing is evicted: a full shard answers Full.
    None,
}

/// Where the far end of a connection is, as far as the server can prove it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Peer {
    /// The user of a process on this host.
    Uid(u32),
    /// An IPv6 address, or an IPv4 address mapped into IPv6.
    Address([u8; 16]),
}

/// Whether the shard can get more pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Growth {
    /// Never, or not before a back-off ends.
    Impossible,
    /// A Reserve that lacks pages asks for growth; see `Shard::take_growth_wanted`.
    Startable,
    /// Pages are being added.
    Running {
        /// What a Reserve that lacks pages is told to wait, in microseconds.
        retry_after_us: u32,
    },
}

/// What a shard is started with.
#[derive(Clone, Debug)]
pub struct Config {
    /// The shard's number.
    pub shard: u32,
    /// How many shards the server has.
    pub shard_count: u32,
    /// This run of the server.
    pub generation: Generation,
    /// Limits and times. A cap of 0 pages is computed from the shard's size and the largest
    /// object that the client announces, see [`Config::caps_for`].
    pub limits: Limits,
    /// What makes room when no page is free.
    pub eviction: Eviction,
    /// Secret of the tickets, the leases and the hash tables. Random for each generation.
    pub seed: [u8; 32],
    /// Most pages that the shard may ever have; 0 is the sum of the first extents.
    pub page_count_max: u32,
    /// Most extents that the shard may ever have.
    pub extents_max: u32,
    /// Most client objects that the shard knows.
    pub incarnations_max: u32,
    /// Most namespaces that the shard knows.
    pub namespaces_max: u16,
    /// Most reservations of all clients, fenced ones included.
    pub reservations_max: u32,
    /// Most leases of all clients.
    pub leases_max: u32,
    /// Most pins of all leases.
    pub pins_max: u32,
    /// How many of the latest vanished keys the eviction log tells.
    pub eviction_log_keys: u32,
    /// What a Reserve is told to wait when it makes growth start, in microseconds.
    pub growth_retry_us: u32,
}

/// The pages that one incarnation may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caps {
    /// Most pages of its live and overdue reservations.
    pub reserved_pages_max: u32,
    /// Most pages that its leases pin, counted once for each pin.
    pub pinned_pages_max: u32,
}

impl Config {
    /// Returns the defaults for the shard `shard` of `shard_count`, with pages of `page_bytes`.
    ///
    /// Times are those of the original: reservations 60 s, leases 120 s, fence 60 s.
    #[must_use]
    pub fn new(shard: u32, shard_count: u32, generation: Generation, page_bytes: u64) -> Self {
        Self {
            shard,
            shard_count,
            generation,
            limits: Limits {
                body_bytes_max: maru_wire::BODY_BYTES_MAX,
                keys_per_frame_max: maru_wire::KEYS_PER_FRAME_MAX,
                page_bytes,
                object_bytes_max: page_bytes.saturating_mul(u64::from(PAGES_PER_OBJECT_MAX)),
                reserved_pages_max: 0,
                pinned_pages_max: 0,
                leases_max: 4096,
                connections_max: 16,
                reservation_ttl_us: 60_000_000,
                lease_ttl_us: 120_000_000,
                fence_us: 60_000_000,
            },
            eviction: Eviction::Lru,
            seed: [0; 32],
            page_count_max: 0,
            extents_max: 1024,
            incarnations_max: 16_384,
            namespaces_max: 1024,
            reservations_max: 1 << 18,
            leases_max: 1 << 16,
            pins_max: 1 << 22,
            eviction_log_keys: 65_536,
            growth_retry_us: 100_000,
        }
    }

    /// Returns the caps of an incarnation whose largest object has `object_pages` pages, on a
    /// shard of `page_count` pages: an eighth reserved, but at least 8 objects; a quarter pinned,
    /// but at least 32 objects. Caps that the limits state win.
    #[must_use]
    pub fn caps_for(&self, page_count: u32, object_pages: u32) -> Caps {
        let stated = |stated: u32, computed: u32| if stated > 0 { stated } else { computed };
        let reserved = (page_count / 8).max(object_pages.saturating_mul(8));
        let pinned = (page_count / 4).max(object_pages.saturating_mul(32));
        Caps {
            reserved_pages_max: stated(self.limits.reserved_pages_max, reserved),
            pinned_pages_max: stated(self.limits.pinned_pages_max, pinned),
        }
    }

    /// Returns how many pages an object of `object_bytes` takes; None when it is too large for
    /// any shard of this server.
    #[must_use]
    pub fn pages_of(&self, object_bytes: u64) -> Option<u32> {
        if object_bytes > self.limits.object_bytes_max {
            return None;
        }
        let pages = object_bytes.max(1).div_ceil(self.limits.page_bytes);
        u32::try_from(pages).ok().filter(|pages| *pages <= PAGES_PER_OBJECT_MAX)
    }

    /// Most reservations of one incarnation: as many as its hello may list.
    pub(crate) fn tickets_max(&self) -> u32 {
        TICKETS_PER_HELLO_MAX.min(self.reservations_max)
    }
}

#[cfg(test)]
mod tests;
