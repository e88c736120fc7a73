//! The processes of the clients: each is kept, and watched, once for all its client objects.

use std::collections::{BTreeSet, HashMap};

use maru_transfer::shm::PeerProcess;
use maru_wire::Incarnation;

/// A process as the server knows it. A trait of few methods more than data, for the tests' sake.
pub(crate) trait Process {
    /// Process id; 0 when it is in another namespace.
    fn pid(&self) -> u32;
    /// Whether the process has ended for certain.
    fn is_dead(&self) -> bool;
    /// Whether its end will be known.
    fn is_watchable(&self) -> bool;
}

impl Process for PeerProcess {
    fn pid(&self) -> u32 {
        PeerProcess::pid(self)
    }

    fn is_dead(&self) -> bool {
        PeerProcess::is_dead(self)
    }

    fn is_watchable(&self) -> bool {
        self.pidfd().is_some()
    }
}

/// Names one process while a client object is bound to it. None recurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ProcessNumber(pub(crate) u64);

/// The processes that client objects are bound to.
#[derive(Debug)]
pub(crate) struct Processes<P> {
    bound: HashMap<ProcessNumber, Bound<P>>,
    /// The watchable ones by process id; of several with one id, the latest.
    by_pid: HashMap<u32, ProcessNumber>,
    next_number: u64,
}

#[derive(Debug)]
struct Bound<P> {
    process: P,
    clients: BTreeSet<Incarnation>,
}

impl<P: Process> Processes<P> {
    pub(crate) fn new() -> Self {
        Self { bound: HashMap::new(), by_pid: HashMap::new(), next_number: 0 }
    }

    /// Binds a client object to a process that was seen alive. Returns the process's number, and
    /// whether it is kept from here on, so that it must be watched.
    ///
    /// No two live processes have one id, so a known one that lives is the same one; or the new
    /// one has died and its id was reused, and its death is known late, never early. A process id
    /// of 0 says nothing.
    pub(crate) fn bind(&mut self, process: P, client: Incarnation) -> (ProcessNumber, bool) {
        let pid = process.pid();
        if let Some(number) = self.by_pid.get(&pid)
            && let Some(bound) = self.bound.get_mut(number)
            && !bound.process.is_dead()
        {
            bound.clients.insert(client);
            return (*number, false);
        }
        self.next_number += 1;
        let number = ProcessNumber(self.next_number);
        if pid != 0 && process.is_watchable() {
            self.by_pid.insert(pid, number);
        }
        self.bound.insert(number, Bound { process, clients: BTreeSet::from([client]) });
        (number, true)
    }

    /// Frees a client object from its process, which is let go with its last one.
    pub(crate) fn unbind(&mut self, number: ProcessNumber, client: Incarnation) {
        let Some(bound) = self.bound.get_mut(&number) else { return };
        bound.clients.remove(&client);
        if bound.clients.is_empty() {
            let pid = bound.process.pid();
            self.bound.remove(&number);
            if self.by_pid.get(&pid) == Some(&number) {
                self.by_pid.remove(&pid);
            }
        }
    }

    /// Lends a process while a client object is bound to it.
    pub(crate) fn get(&self, number: ProcessNumber) -> Option<&P> {
        self.bound.get(&number).map(|bound| &bound.process)
    }

    /// Lists the client objects that are bound to a process.
    pub(crate) fn clients(&self, number: ProcessNumber) -> Vec<Incarnation> {
        let bound = self.bound.get(&number);
        bound.map_or_else(Vec::new, |bound| bound.clients.iter().copied().collect())
    }

    /// How many processes are kept.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.bound.len()
    }
}
