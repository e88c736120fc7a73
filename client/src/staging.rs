//! The storage contract of an engine that stages: slots it fills and hands over, slots it gets
//! filled and gives back.
//!
//! Taking, freeing and giving back slots never waits behind a transfer. The mapping is made only
//! after the server accepted this client.

mod counters;
mod lease;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use maru_session::Failure;
use maru_transfer::slots::Slots;
use maru_wire::{Generation, Key, Match};

use crate::shared::lock;
use crate::{Client, Error, LookedUp, Pinned, StoreItem, StoreOutcome};
use counters::Counters;

pub use counters::StagingStats;
pub use lease::{ReadLease, StagingSlot};

/// Least default size of the staging memory.
const DEFAULT_BYTES_MIN: u64 = 1 << 30;
/// Largest default size of the staging memory.
const DEFAULT_BYTES_MAX: u64 = 4 << 30;
/// Fewest objects that the default holds, room permitting.
const DEFAULT_OBJECTS_MIN: u64 = 64;
/// Most keys remembered as stored or read.
const REMEMBERED_MAX: usize = 65_536;

/// Sizes of the staging memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StagingConfig {
    /// Size of a slot, in bytes: that of the largest object.
    pub slot_bytes: usize,
    /// How many slots.
    pub slot_count: usize,
    /// Share of the slots that stores leave free for loads, at least 0 and below 1.
    pub load_reserve: f64,
}

impl StagingConfig {
    /// Returns the default for objects of `slot_bytes`: 1 GiB, 64 objects or one prompt of
    /// `prompt_objects`, whichever is most; capped at 4 GiB and a quarter of `free_bytes`.
    #[must_use]
    pub fn for_objects(slot_bytes: usize, prompt_objects: u64, free_bytes: u64) -> Self {
        let load_reserve = 0.5;
        let slot = slot_bytes.max(1) as u64;
        // With half of the slots left to loads, a prompt needs twice its objects.
        let prompt_bytes = prompt_objects.saturating_mul(2).saturating_mul(slot);
        let wanted = DEFAULT_BYTES_MIN
            .max(slot.saturating_mul(DEFAULT_OBJECTS_MIN))
            .max(prompt_bytes)
            .min(DEFAULT_BYTES_MAX)
            .min(free_bytes / 4);
        let slot_count = usize::try_from(wanted / slot).unwrap_or(usize::MAX).max(1);
        Self { slot_bytes, slot_count, load_reserve }
    }
}

/// Whether the contract's calls can work at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// `connect` has not succeeded yet.
    NotConnected,
    /// Connected, and the server's regions are attached.
    Ready,
    /// The server was lost; calls attach anew when it is back.
    Lost,
    /// Closed for good.
    Closed,
}

/// What happened to one chunk of [`Staging::batch_load`].
#[derive(Debug)]
pub enum Staged {
    /// Its bytes are in this slot. Drop the lease after the copy.
    Loaded(ReadLease),
    /// Not in the pool.
    Missing,
    /// Not loaded now: the client pins as much as it may, the slot is too small for it, or its
    /// lease ended before the copy did.
    Skipped,
    /// Its shard or the copy failed.
    Failed(Failure),
}

#[derive(Debug)]
enum State {
    New,
    Connected(Slots),
    Closed,
}

/// Keys known to be in the pool in one generation. A hint: the pool may have evicted them since.
#[derive(Debug, Default)]
struct Remembered {
    generation: Generation,
    keys: BTreeSet<Key>,
}

/// Staging memory in front of a client.
#[derive(Debug)]
pub struct Staging {
    client: Arc<Client>,
    config: StagingConfig,
    /// Slots that only loads may take.
    kept_count: usize,
    state: Mutex<State>,
    remembered: Mutex<Remembered>,
    counters: Counters,
    lease_count: Arc<AtomicUsize>,
    /// Calls that move bytes now.
    busy_count: AtomicUsize,
}

impl Staging {
    /// Makes staging without memory; `connect` maps it.
    ///
    /// # Errors
    ///
    /// A size is zero or the reserve is not in [0, 1): a configuration error.
    pub fn new(client: Arc<Client>, config: StagingConfig) -> Result<Self, Error> {
        let refuse = |setting, reason| Err(Error::Config { setting, reason });
        if config.slot_bytes == 0 || config.slot_count == 0 {
            return refuse("staging size", "it must hold at least one object");
        }
        // C21, R1: also refuses what is not a number.
        if !(0.0..1.0).contains(&config.load_reserve) {
            return refuse("load_reserve", "it must be at least 0 and below 1");
        }
        Ok(Self {
            kept_count: kept_count(config.slot_count, config.load_reserve),
            client,
            config,
            state: Mutex::new(State::New),
            remembered: Mutex::default(),
            counters: Counters::default(),
            lease_count: Arc::default(),
            busy_count: AtomicUsize::new(0),
        })
    }

    /// Returns the client behind it.
    #[must_use]
    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// Connects, attaches, checks that an object fits, then maps the slots. Repeating it is free.
    ///
    /// # Errors
    ///
    /// `Config` when the server takes no object of a slot's size or the memory cannot be mapped:
    /// correct the configuration. [`Error::Closed`] after `close`. Others: the server is
    /// unavailable; try again later.
    pub fn connect(&self, deadline: Duration) -> Result<(), Error> {
        self.client.inner.check_process()?;
        match &*lock(&self.state) {
            State::Connected(_) => return Ok(()),
            State::Closed => return Err(Error::Closed),
            State::New => {}
        }
        let (_, limits) = self.client.server_limits(deadline)?;
        self.client.attachment(deadline)?;
        let setting = "staging slot";
        if self.config.slot_bytes as u64 > limits.object_bytes_max {
            let reason = "the server takes no object of this size; enlarge its pages";
            return Err(Error::Config { setting, reason });
        }
        let slots = Slots::new(self.config.slot_bytes, self.config.slot_count)
            .map_err(|source| Error::Memory { source })?;
        let mut state = lock(&self.state);
        match &*state {
            State::New => *state = State::Connected(slots),
            State::Connected(_) => {}
            State::Closed => return Err(Error::Closed),
        }
        Ok(())
    }

    /// Takes a slot to fill for a store. Never waits behind a transfer.
    ///
    /// # Errors
    ///
    /// [`Error::NoSlots`] while stores may have no more: skip the chunk. [`Error::Closed`].
    pub fn alloc(&self) -> Result<StagingSlot, Error> {
        let slots = self.slots()?;
        let slot = slots.take(self.kept_count);
        slot.map(StagingSlot::new).ok_or_else(|| {
            let free = slots.free_count().saturating_sub(self.kept_count);
            Error::NoSlots { needed: 1, free }
        })
    }

    /// Stores filled slots and takes them over: they are free again when this returns.
    ///
    /// `true`: the key is in the pool. Blocks at most `deadline` plus the copy in progress.
    ///
    /// # Errors
    ///
    /// As [`Client::store`]; nothing is known to be stored.
    pub fn batch_store(
        &self,
        items: Vec<(Key, StagingSlot)>,
        deadline: Duration,
    ) -> Result<Vec<bool>, Error> {
        let _busy = self.begin()?;
        let begun = Instant::now();
        let stored: Vec<StoreItem<'_>> =
            items.iter().map(|(key, slot)| StoreItem { key: *key, bytes: slot.filled() }).collect();
        let asked_in = self.generation();
        let result = self.client.store(&stored, deadline);
        self.counters.wrote(&stored, result.as_deref().ok(), begun.elapsed());
        let outcomes = result?;
        let keys = stored.iter().map(|item| item.key);
        self.remember(asked_in, keys.zip(outcomes.iter().map(StoreOutcome::is_stored)));
        Ok(outcomes.iter().map(StoreOutcome::is_stored).collect())
    }

    /// Loads chunks into slots; each counts only if its pin was held to the end.
    ///
    /// Blocks at most `deadline` plus the copy in progress.
    ///
    /// # Errors
    ///
    /// [`Error::NoSlots`] when fewer slots are free than chunks were found: nothing was read, ask
    /// for fewer. Else as [`Client::load`].
    pub fn batch_load(&self, keys: &[Key], deadline: Duration) -> Result<Vec<Staged>, Error> {
        let _busy = self.begin()?;
        let begun = Instant::now();
        let until = begun.checked_add(deadline);
        let left = || match until {
            Some(until) => until.saturating_duration_since(Instant::now()),
            None => deadline,
        };
        let asked_in = self.generation();
        let result = self.load_found(keys, &left);
        self.counters.read(keys.len(), result.as_deref().ok(), begun.elapsed());
        let staged = result?;
        let known = staged.iter().map(|staged| matches!(staged, Staged::Loaded(_)));
        self.remember(asked_in, keys.iter().copied().zip(known));
        Ok(staged)
    }

    /// Asks the pool which keys are there.
    ///
    /// # Errors
    ///
    /// As [`Client::exists`]: treat the keys as missing.
    pub fn exists(&self, keys: &[Key], deadline: Duration) -> Result<Vec<bool>, Error> {
        let asked_in = self.generation();
        let presence = self.client.exists(keys, Match::All, deadline)?;
        let gone = keys.iter().copied().zip(presence.present.iter().copied());
        self.remember(asked_in, gone.filter(|(_, is_present)| !is_present));
        Ok(presence.present)
    }

    /// Says from memory alone whether a key was stored or read in this generation of the server.
    #[must_use]
    pub fn has_local(&self, key: &Key) -> bool {
        if self.client.inner.is_forked() {
            return false;
        }
        let remembered = lock(&self.remembered);
        Some(remembered.generation) == self.generation() && remembered.keys.contains(key)
    }

    /// Returns how many chunks a `batch_load` may ask for now.
    #[must_use]
    pub fn retrieve_capacity(&self) -> usize {
        self.slots().map_or(0, |slots| slots.free_count())
    }

    /// Says whether calls can work at present. Touches no network.
    #[must_use]
    pub fn health(&self) -> Health {
        if self.client.inner.is_forked() {
            return Health::Closed;
        }
        match &*lock(&self.state) {
            State::New => Health::NotConnected,
            State::Closed => Health::Closed,
            State::Connected(_) if self.client.inner.attacher.is_attached() => Health::Ready,
            State::Connected(_) => Health::Lost,
        }
    }

    /// Returns what was stored and loaded so far.
    #[must_use]
    pub fn stats(&self) -> StagingStats {
        let free = self.retrieve_capacity();
        self.counters.stats(self.config.slot_count, free)
    }

    /// Closes it: the slots' memory goes when the last slot does. May be retried.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`] while read leases are out or a transfer runs: end them first.
    pub fn close(&self) -> Result<(), Error> {
        self.client.inner.check_process()?;
        let mut state = lock(&self.state);
        let leases = self.lease_count.load(Ordering::Acquire);
        let transfers = self.busy_count.load(Ordering::Acquire);
        if leases > 0 || transfers > 0 {
            return Err(Error::InUse { leases, transfers });
        }
        *state = State::Closed;
        Ok(())
    }

    fn slots(&self) -> Result<Slots, Error> {
        self.client.inner.check_process()?;
        match &*lock(&self.state) {
            State::Connected(slots) => Ok(slots.clone()),
            State::New => Err(Error::NotConnected),
            State::Closed => Err(Error::Closed),
        }
    }

    /// Counts a call that moves bytes. Under the state's lock, so that `close` sees it.
    fn begin(&self) -> Result<Busy<'_>, Error> {
        self.client.inner.check_process()?;
        match &*lock(&self.state) {
            State::New => return Err(Error::NotConnected),
            State::Closed => return Err(Error::Closed),
            State::Connected(_) => self.busy_count.fetch_add(1, Ordering::AcqRel),
        };
        Ok(Busy(&self.busy_count))
    }

    fn load_found(&self, keys: &[Key], left: &impl Fn() -> Duration) -> Result<Vec<Staged>, Error> {
        let slots = self.slots()?;
        let mut is_again = false;
        loop {
            let attachment = self.client.attachment(left())?;
            let pinned = self.client.lookup(keys, Match::All, left())?;
            if pinned.generation() != attachment.generation() && !is_again {
                // C29: the server was restarted in between.
                is_again = true;
                continue;
            }
            let is_over = || left().is_zero();
            let staged = self.read(&slots, (&attachment, &pinned), is_over)?;
            let held = self.client.release(pinned, left());
            let judge = |(staged, held): (Staged, bool)| match staged {
                Staged::Loaded(_) if !held => Staged::Skipped,
                staged => staged,
            };
            return Ok(staged.into_iter().zip(held).map(judge).collect());
        }
    }

    /// Copies what was found into slots, as far as the time reaches.
    fn read(
        &self,
        slots: &Slots,
        (attachment, pinned): (&crate::Attachment, &Pinned),
        is_over: impl Fn() -> bool,
    ) -> Result<Vec<Staged>, Error> {
        let is_found = |looked: &&LookedUp| matches!(looked, LookedUp::Found(_));
        let needed = pinned.outcomes().iter().filter(is_found).count();
        let mut taken: Vec<_> = std::iter::from_fn(|| slots.take(0)).take(needed).collect();
        if taken.len() < needed {
            return Err(Error::NoSlots { needed, free: taken.len() });
        }
        let stage = |(index, looked): (usize, &LookedUp)| match looked {
            LookedUp::Found(_) if is_over() => Staged::Failed(Failure::Timeout),
            LookedUp::Found(_) => {
                let mut slot = taken.pop().expect("one slot for each chunk found");
                match attachment.read(pinned, index, &mut slot) {
                    Ok(bytes) => Staged::Loaded(ReadLease::new(slot, bytes, &self.lease_count)),
                    Err(Error::CopyBounds { .. }) => Staged::Skipped,
                    Err(_) => Staged::Failed(Failure::Copy),
                }
            }
            LookedUp::Missing => Staged::Missing,
            LookedUp::ClientLimit | LookedUp::NotTried => Staged::Skipped,
            LookedUp::Failed(failure) => Staged::Failed(*failure),
        };
        Ok(pinned.outcomes().iter().enumerate().map(stage).collect())
    }

    fn generation(&self) -> Option<Generation> {
        self.client.inner.shared.layout().map(|layout| layout.generation)
    }

    /// Notes which keys are in the pool and which are not.
    fn remember(&self, asked_in: Option<Generation>, known: impl Iterator<Item = (Key, bool)>) {
        if let Some(generation) = self.generation() {
            lock(&self.remembered).note((asked_in, generation), known);
        }
    }
}

impl Remembered {
    /// Notes keys of one generation; those of another are forgotten.
    ///
    /// Takes the generation before the call and the one after it: when they differ, part of the
    /// answers may be of either.
    fn note(
        &mut self,
        (asked_in, generation): (Option<Generation>, Generation),
        known: impl Iterator<Item = (Key, bool)>,
    ) {
        if self.generation != generation {
            *self = Self { generation, keys: BTreeSet::new() };
        }
        if asked_in != Some(generation) {
            return;
        }
        for (key, is_there) in known {
            if !is_there {
                self.keys.remove(&key);
            } else if self.keys.len() < REMEMBERED_MAX || self.keys.contains(&key) {
                self.keys.insert(key);
            }
        }
    }
}

struct Busy<'a>(&'a AtomicUsize);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// How many of `slot_count` slots stores leave to loads; stores keep at least one.
fn kept_count(slot_count: usize, load_reserve: f64) -> usize {
    let mut kept = 0;
    // Counted up instead of cast: a share of a count is no whole number.
    while kept + 1 < slot_count && ((kept + 1) as f64) <= slot_count as f64 * load_reserve {
        kept += 1;
    }
    kept
}

#[cfg(test)]
mod tests;
