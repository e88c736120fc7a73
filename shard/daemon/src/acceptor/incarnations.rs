//! What is known of each client object: its process, its connections, and when it is proven dead.
//!
//! Dead is who cannot write any more: the process that connected has ended, and every connection
//! of the client object gave end of file. A closed connection alone proves nothing.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use maru_wire::{Incarnation, Refusal};

use super::processes::{Process, ProcessNumber, Processes};

/// Attach connections of one client object.
const ATTACHED_MAX: u32 = 4;
/// Dead client objects that are remembered, so that a late hello of one is refused.
const DEAD_KEPT: usize = 4096;

/// All client objects that have a connection, or that may hold something and are not proven dead.
#[derive(Debug)]
pub(crate) struct Incarnations<P> {
    known: HashMap<Incarnation, Known>,
    known_max: usize,
    processes: Processes<P>,
    /// Those without a connection by their numbers.
    idle: BTreeMap<u64, Incarnation>,
    /// Numbers the client objects in the order of their first connection.
    next_number: u64,
    /// Forgotten for lack of room, since it was asked.
    forgotten_count: u64,
    dead: HashSet<Incarnation>,
    dead_order: VecDeque<Incarnation>,
}

#[derive(Debug)]
struct Known {
    /// None: it came by TCP, and nothing is known of its process.
    process: Option<ProcessNumber>,
    number: u64,
    attached_count: u32,
    open_count: u32,
    /// It had a connection that could reserve pages. What it held may be written until it is dead.
    may_hold: bool,
}

impl Known {
    fn is_idle(&self) -> bool {
        self.attached_count == 0 && self.open_count == 0
    }
}

/// What a connection may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Map the regions; it sends no request.
    Attach,
    /// Ask for nothing but the shard's state.
    Watch,
    /// Reserve pages.
    Hold,
}

impl Role {
    /// Returns where the connection is kept.
    pub(crate) fn part(self) -> Part {
        match self {
            Self::Attach => Part::Attached,
            Self::Watch | Self::Hold => Part::Open,
        }
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
            processes: Processes::new(),
            idle: BTreeMap::new(),
            next_number: 0,
            forgotten_count: 0,
            dead: HashSet::new(),
            dead_order: VecDeque::new(),
        }
    }

    /// Counts a connection of `incarnation`, and binds it to its process if it came from one.
    ///
    /// Returns the process when it was not known: it must be watched from here on.
    pub(crate) fn connect(
        &mut self,
        incarnation: Incarnation,
        process: Option<P>,
        role: Role,
    ) -> Result<Option<ProcessNumber>, Refusal> {
        if self.dead.contains(&incarnation) {
            return Err(Refusal::IncarnationTaken(incarnation.process_id()));
        }
        self.check_known(incarnation, process.as_ref(), role)?;
        if !self.known.contains_key(&incarnation) {
            self.make_room()?;
            self.next_number += 1;
            let number = self.next_number;
            let (attached_count, open_count, may_hold) = (0, 0, false);
            let known = Known { process: None, number, attached_count, open_count, may_hold };
            self.known.insert(incarnation, known);
        }
        let known = self.known.get_mut(&incarnation).expect("inserted above when it was missing");
        self.idle.remove(&known.number);
        known.may_hold |= role == Role::Hold;
        match role.part() {
            Part::Attached => known.attached_count += 1,
            Part::Open => known.open_count += 1,
        }
        if known.process.is_some() {
            return Ok(None);
        }
        let Some(process) = process else { return Ok(None) };
        let (number, is_new) = self.processes.bind(process, incarnation);
        known.process = Some(number);
        Ok(is_new.then_some(number))
    }

    /// Refuses a connection of a known client object from another process, or one too many.
    fn check_known(
        &self,
        incarnation: Incarnation,
        process: Option<&P>,
        role: Role,
    ) -> Result<(), Refusal> {
        let Some(known) = self.known.get(&incarnation) else { return Ok(()) };
        let bound = known.process.and_then(|number| self.processes.get(number));
        if let (Some(bound), Some(process)) = (bound, process)
            && (bound.pid() != process.pid() || bound.is_dead())
        {
            return Err(Refusal::IncarnationTaken(bound.pid()));
        }
        if role.part() == Part::Attached && known.attached_count == ATTACHED_MAX {
            return Err(Refusal::TooManyConnections(ATTACHED_MAX));
        }
        Ok(())
    }

    /// Counts a connection as closed. Returns whether the client object is dead by that.
    pub(crate) fn disconnect(&mut self, incarnation: Incarnation, part: Part) -> bool {
        let Some(known) = self.known.get_mut(&incarnation) else { return false };
        match part {
            Part::Attached => known.attached_count -= 1,
            Part::Open => known.open_count -= 1,
        }
        if !known.is_idle() {
            return false;
        }
        if known.process.is_none() || !known.may_hold {
            self.forget(incarnation);
            return false;
        }
        self.idle.insert(known.number, incarnation);
        self.bury_if_dead(incarnation)
    }

    /// Looks again whether the process has ended. Returns whether the client object is dead.
    fn bury_if_dead(&mut self, incarnation: Incarnation) -> bool {
        let Some(known) = self.known.get(&incarnation) else { return false };
        let process = known.process.and_then(|number| self.processes.get(number));
        let is_dead = known.is_idle() && process.is_some_and(Process::is_dead);
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

    /// Looks at every client object of a process that has ended. Returns those that are dead.
    pub(crate) fn bury_all(&mut self, number: ProcessNumber) -> Vec<Incarnation> {
        let mut clients = self.processes.clients(number);
        clients.retain(|client| self.bury_if_dead(*client));
        clients
    }

    /// Lends a process while a client object is bound to it.
    pub(crate) fn process(&self, number: ProcessNumber) -> Option<&P> {
        self.processes.get(number)
    }

    /// Returns how many client objects were forgotten for lack of room since the last call.
    pub(crate) fn take_forgotten(&mut self) -> u64 {
        std::mem::take(&mut self.forgotten_count)
    }

    /// Forgets the oldest client object without a connection when there is no room. Its death can
    /// then not be proven: its pages stay overdue.
    fn make_room(&mut self) -> Result<(), Refusal> {
        if self.known.len() < self.known_max {
            return Ok(());
        }
        let Some((_, oldest)) = self.idle.pop_first() else {
            let most = u32::try_from(self.known_max).unwrap_or(u32::MAX);
            return Err(Refusal::TooManyIncarnations(most));
        };
        self.forgotten_count += 1;
        self.forget(oldest);
        Ok(())
    }

    fn forget(&mut self, incarnation: Incarnation) {
        if let Some(known) = self.known.remove(&incarnation) {
            self.idle.remove(&known.number);
            if let Some(process) = known.process {
                self.processes.unbind(process, incarnation);
            }
        }
    }
}

#[cfg(test)]
mod tests;
