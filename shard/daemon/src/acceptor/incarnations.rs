//! What is known of each client object: its process, its connections, and when it is proven dead.
//!
//! Dead is who cannot write any more: the process that connected has ended, and every connection
//! of the client object gave end of file. A closed connection alone proves nothing.

use std::collections::{HashMap, HashSet, VecDeque};

use maru_transfer::shm::PeerProcess;
use maru_wire::{Incarnation, Refusal};

/// Attach connections of one client object.
const ATTACHED_MAX: u32 = 4;
/// Dead client objects that are remembered, so that a late hello of one is refused.
const DEAD_KEPT: usize = 4096;

/// A process as the server knows it. A trait of one method more than data, for the tests' sake.
pub(crate) trait Process {
    /// Process id; 0 when it is in another namespace.
    fn pid(&self) -> u32;
    /// Whether the process has ended for certain.
    fn is_dead(&self) -> bool;
}

impl Process for PeerProcess {
    fn pid(&self) -> u32 {
        PeerProcess::pid(self)
    }

    fn is_dead(&self) -> bool {
        PeerProcess::is_dead(self)
    }
}

/// All client objects that have a connection, or whose process is not proven dead yet.
#[derive(Debug)]
pub(crate) struct Incarnations<P> {
    known: HashMap<Incarnation, Known<P>>,
    known_max: usize,
    /// The known ones by their numbers.
    by_number: HashMap<u64, Incarnation>,
    /// Numbers the client objects in the order of their first connection.
    next_number: u64,
    dead: HashSet<Incarnation>,
    dead_order: VecDeque<Incarnation>,
}

#[derive(Debug)]
struct Known<P> {
    /// None: it came by TCP, and nothing is known of its process.
    process: Option<P>,
    number: u64,
    attached_count: u32,
    open_count: u32,
}

impl<P> Known<P> {
    fn is_idle(&self) -> bool {
        self.attached_count == 0 && self.open_count == 0
    }
}

/// What a connection is to its client object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// It holds the regions' descriptors and is kept by the acceptor.
    Attached,
    /// It was mailed to a shard.
    Open,
}

impl<P: Process> Incarnations<P> {
    /// Makes room for `known_max` client objects.
    pub(crate) fn new(known_max: usize) -> Self {
        Self {
            known: HashMap::new(),
            known_max,
            by_number: HashMap::new(),
            next_number: 0,
            dead: HashSet::new(),
            dead_order: VecDeque::new(),
        }
    }

    /// Counts a connection of `incarnation`, and binds it to its process if it came from one.
    ///
    /// Returns whether it was bound just now: its process must be watched from here on.
    pub(crate) fn connect(
        &mut self,
        incarnation: Incarnation,
        process: Option<P>,
        part: Part,
    ) -> Result<bool, Refusal> {
        if self.dead.contains(&incarnation) {
            return Err(Refusal::IncarnationTaken(incarnation.process_id()));
        }
        if !self.known.contains_key(&incarnation) {
            self.make_room()?;
            self.next_number += 1;
            let number = self.next_number;
            let known = Known { process: None, number, attached_count: 0, open_count: 0 };
            self.known.insert(incarnation, known);
            self.by_number.insert(number, incarnation);
        }
        let known = self.known.get_mut(&incarnation).expect("inserted above when it was missing");
        let bound_now = match (&known.process, process) {
            (Some(bound), Some(process)) if bound.pid() != process.pid() || bound.is_dead() => {
                return Err(Refusal::IncarnationTaken(bound.pid()));
            }
            (None, Some(process)) => {
                known.process = Some(process);
                true
            }
            (Some(_) | None, None) | (Some(_), Some(_)) => false,
        };
        match part {
            Part::Attached if known.attached_count == ATTACHED_MAX => {
                return Err(Refusal::TooManyConnections(ATTACHED_MAX));
            }
            Part::Attached => known.attached_count += 1,
            Part::Open => known.open_count += 1,
        }
        Ok(bound_now)
    }

    /// Counts a connection as closed. Returns whether the client object is dead by that.
    pub(crate) fn disconnect(&mut self, incarnation: Incarnation, part: Part) -> bool {
        let Some(known) = self.known.get_mut(&incarnation) else { return false };
        match part {
            Part::Attached => known.attached_count -= 1,
            Part::Open => known.open_count -= 1,
        }
        if known.is_idle() && known.process.is_none() {
            self.forget(incarnation);
            return false;
        }
        self.bury_if_dead(incarnation)
    }

    /// Looks again whether the process has ended. Returns whether the client object is dead.
    pub(crate) fn bury_if_dead(&mut self, incarnation: Incarnation) -> bool {
        let Some(known) = self.known.get(&incarnation) else { return false };
        let is_dead = known.is_idle() && known.process.as_ref().is_some_and(Process::is_dead);
        if is_dead {
            self.forget(incarnation);
            if self.dead_order.len() == DEAD_KEPT
                && let Some(oldest) = self.dead_order.pop_front()
            {
                self.dead.remove(&oldest);
            }
            self.dead.insert(incarnation);
            self.dead_order.push_back(incarnation);
        }
        is_dead
    }

    /// Returns the number of a known client object. None recurs.
    pub(crate) fn number(&self, incarnation: Incarnation) -> Option<u64> {
        self.known.get(&incarnation).map(|known| known.number)
    }

    /// Returns the client object with this number, while it is known.
    pub(crate) fn numbered(&self, number: u64) -> Option<Incarnation> {
        self.by_number.get(&number).copied()
    }

    /// Lends the process that `incarnation` is bound to.
    pub(crate) fn process(&self, incarnation: Incarnation) -> Option<&P> {
        self.known.get(&incarnation)?.process.as_ref()
    }

    /// Forgets the oldest client object without a connection when there is no room. Its death can
    /// then not be proven: its pages stay overdue.
    fn make_room(&mut self) -> Result<(), Refusal> {
        if self.known.len() < self.known_max {
            return Ok(());
        }
        let idle = self.known.iter().filter(|(_, known)| known.is_idle());
        let oldest = idle.min_by_key(|(_, known)| known.number).map(|(name, _)| *name);
        let Some(oldest) = oldest else {
            let most = u32::try_from(self.known_max).unwrap_or(u32::MAX);
            return Err(Refusal::TooManyIncarnations(most));
        };
        tracing::warn!(incarnation = %oldest, "forgot a client without connections: no room");
        self.forget(oldest);
        Ok(())
    }

    fn forget(&mut self, incarnation: Incarnation) {
        if let Some(known) = self.known.remove(&incarnation) {
            self.by_number.remove(&known.number);
        }
    }
}

#[cfg(test)]
mod tests;
