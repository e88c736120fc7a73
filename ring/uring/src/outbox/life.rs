//! The life of connections between the backend, which reports, and the user, who is told.

use nix::errno::Errno;

use super::{Outbox, Ready};
use crate::connection::{Connection, NEVER, Phase};
use crate::event::{Cause, ConnectionId, Event};

/// What the user gave to be told of events.
pub(crate) type OnEvent<'a> = &'a mut dyn FnMut(&mut Outbox, Event<'_>);

impl Outbox {
    pub(crate) fn set_now(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// True when the next turn has something to do without waiting.
    pub(crate) fn has_work(&self) -> bool {
        !self.dirty.is_empty() || !self.ready.is_empty()
    }

    /// Returns when a connection's wait may end at the earliest.
    pub(crate) fn check_ns(&self) -> u64 {
        self.check_ns
    }

    pub(crate) fn get(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.table.get_mut(id)
    }

    /// Notes that the backend must look at a connection.
    pub(crate) fn mark(&mut self, id: ConnectionId) {
        if let Some(found) = self.table.get_mut(id)
            && !found.is_dirty
        {
            found.is_dirty = true;
            self.dirty.push(id.index);
        }
    }

    /// Exchanges the list of changed slots for an empty one.
    pub(crate) fn swap_dirty(&mut self, empty: &mut Vec<u32>) {
        std::mem::swap(&mut self.dirty, empty);
    }

    /// Takes a slot of that list: ends what is flushed, and returns its connection's id.
    pub(crate) fn visit(&mut self, index: u32) -> Option<ConnectionId> {
        let id = self.table.id_at(index)?;
        self.table.get_mut(id)?.is_dirty = false;
        self.is_within_limits(id);
        self.settle(id);
        Some(id)
    }

    /// Ends the output of a connection that has sent all it should.
    pub(crate) fn settle(&mut self, id: ConnectionId) {
        let (now_ns, linger_us) = (self.now_ns, self.config.linger_us);
        let Some(found) = self.table.get_mut(id) else { return };
        if found.phase != Phase::Flushing || found.output.unsent() > 0 {
            return;
        }
        if found.cause == Some(Cause::PeerClosed) || linger_us == 0 {
            self.kill(id, Cause::PeerClosed);
            return;
        }
        // A close with unread input resets the connection and may destroy what was just sent.
        found.socket.end_output();
        found.phase = Phase::Lingering;
        self.set_deadline(id, after(now_ns, linger_us));
    }

    /// Counts a connection's unsent bytes and enforces both limits. False: it was closed.
    pub(crate) fn is_within_limits(&mut self, id: ConnectionId) -> bool {
        self.count(id);
        let Some(found) = self.table.get(id) else { return false };
        if found.counted_bytes > self.config.send_bytes_max {
            found.socket.reset_on_close();
            self.kill(id, Cause::BufferLimit);
            return false;
        }
        while self.buffered_bytes > self.config.buffered_bytes_max {
            self.close_largest();
        }
        self.table.get(id).is_some_and(|found| found.phase != Phase::Dead)
    }

    fn count(&mut self, id: ConnectionId) {
        let pause_bytes = self.config.send_bytes_pause;
        let Some(found) = self.table.get_mut(id) else { return };
        if found.phase == Phase::Dead {
            return;
        }
        let unsent = found.output.unsent();
        found.was_above |= unsent > pause_bytes;
        self.buffered_bytes = self.buffered_bytes - found.counted_bytes + unsent;
        found.counted_bytes = unsent;
    }

    fn close_largest(&mut self) {
        let slots = 0..self.table.slot_count();
        let ids = slots.filter_map(|index| self.table.id_at(index));
        let largest = ids.max_by_key(|id| self.table.get(*id).map_or(0, |c| c.counted_bytes));
        let largest = largest.expect("unsent bytes belong to connections");
        if let Some(found) = self.table.get(largest) {
            found.socket.reset_on_close();
        }
        self.kill(largest, Cause::BufferLimit);
    }

    /// Stops reading from a connection whose output the kernel does not take.
    pub(crate) fn hold_if_stuck(&mut self, id: ConnectionId) {
        let is_short = self.buffered_bytes > self.config.buffered_bytes_max / 2;
        let Some(found) = self.table.get_mut(id) else { return };
        if found.output.unsent() > 0 && (found.was_above || is_short) {
            found.was_above = true;
            found.is_held = true;
        }
    }

    /// Looks at a long output in the next turn again, when it is either gone or stuck.
    pub(crate) fn look_again_if_long(&mut self, id: ConnectionId) {
        if self.table.get(id).is_some_and(|found| found.was_above) {
            self.mark(id);
        }
    }

    /// Starts the wait for the peer to take output, unless it runs.
    pub(crate) fn send_started(&mut self, id: ConnectionId) {
        let stalled_ns = after(self.now_ns, self.config.stall_timeout_us);
        if self.table.get(id).is_some_and(|found| found.deadline_ns == NEVER) {
            self.set_deadline(id, stalled_ns);
        }
    }

    /// The kernel took `count` bytes.
    pub(crate) fn sent(&mut self, id: ConnectionId, count: usize) {
        self.count(id);
        let Some(found) = self.table.get_mut(id) else { return };
        if found.phase == Phase::Dead {
            return;
        }
        found.output.advance(count, &mut self.spare);
        let is_empty = found.output.unsent() == 0;
        if is_empty {
            found.is_held = false;
            if std::mem::take(&mut found.was_above) {
                self.ready.push_back(Ready::Drained(id));
            }
        }
        self.count(id);
        let stalled_ns = after(self.now_ns, self.config.stall_timeout_us);
        self.set_deadline(id, if is_empty { NEVER } else { stalled_ns });
    }

    /// The peer takes no more output. What it had sent before is still to be read.
    pub(crate) fn send_failed(&mut self, id: ConnectionId, errno: Errno) {
        let cause = Cause::of_errno(errno as i32);
        let lingering_ns = after(self.now_ns, self.config.linger_us);
        let Some(found) = self.table.get_mut(id) else { return };
        if found.phase != Phase::Open || found.is_paused {
            self.kill(id, cause);
            return;
        }
        found.blame(cause);
        found.phase = Phase::Broken;
        found.output.discard(&mut self.spare);
        self.count(id);
        self.set_deadline(id, lingering_ns);
        self.mark(id);
    }

    /// A socket that was connecting became writable.
    pub(crate) fn connect_ended(&mut self, id: ConnectionId) {
        let Some(found) = self.table.get_mut(id) else { return };
        if found.phase != Phase::Connecting {
            return;
        }
        let socket = &found.socket;
        let made = socket.connect_result().and_then(|()| socket.set_blocking(self.is_blocking));
        match made {
            Ok(()) => {
                found.phase = Phase::Open;
                found.deadline_ns = NEVER;
                self.ready.push_back(Ready::Connected(id));
                self.mark(id);
            }
            Err(errno) => self.kill(id, Cause::of_errno(errno as i32)),
        }
    }

    /// Bytes arrived.
    pub(crate) fn received(&mut self, id: ConnectionId, bytes: &[u8], on_event: OnEvent<'_>) {
        if self.table.get(id).is_some_and(Connection::delivers) {
            on_event(self, Event::Received { connection: id, bytes });
        }
    }

    /// The peer ended its stream.
    pub(crate) fn peer_ended(&mut self, id: ConnectionId) {
        let Some(found) = self.table.get_mut(id) else { return };
        if found.phase == Phase::Open && found.output.unsent() > 0 {
            found.blame(Cause::PeerClosed);
            found.phase = Phase::Flushing;
            self.mark(id);
        } else if matches!(found.phase, Phase::Open | Phase::Broken | Phase::Lingering) {
            self.kill(id, Cause::PeerClosed);
        }
    }

    /// The connection is lost.
    pub(crate) fn receive_failed(&mut self, id: ConnectionId, errno: Errno) {
        self.kill(id, Cause::of_errno(errno as i32));
    }

    /// Ends a connection: it is closed as soon as the kernel lets go of it.
    pub(crate) fn kill(&mut self, id: ConnectionId, cause: Cause) {
        let Some(found) = self.table.get_mut(id) else { return };
        if found.phase == Phase::Dead {
            return;
        }
        found.blame(cause);
        found.phase = Phase::Dead;
        found.deadline_ns = NEVER;
        found.output.discard(&mut self.spare);
        self.buffered_bytes -= std::mem::take(&mut found.counted_bytes);
        self.mark(id);
    }

    /// Closes a dead connection that the kernel has let go of.
    pub(crate) fn release(&mut self, id: ConnectionId) {
        let Some(mut found) = self.table.remove(id.index) else { return };
        assert!(found.kernel.is_idle(), "a descriptor outlives the kernel's work on it");
        found.output.discard(&mut self.spare);
        let cause = found.cause.expect("every way to be dead has a cause");
        self.ready.push_back(Ready::Closed(id, cause));
    }

    fn set_deadline(&mut self, id: ConnectionId, deadline_ns: u64) {
        if let Some(found) = self.table.get_mut(id) {
            found.deadline_ns = deadline_ns;
            self.check_ns = self.check_ns.min(deadline_ns);
        }
    }

    /// Ends every wait that is over. Looks at all connections, but seldom.
    pub(crate) fn expire(&mut self) {
        if self.now_ns < self.check_ns {
            return;
        }
        for index in 0..self.table.slot_count() {
            let Some(id) = self.table.id_at(index) else { continue };
            let Some(found) = self.table.get(id) else { continue };
            if self.now_ns >= found.deadline_ns {
                self.expired(id);
            }
        }
        let next = self.table.iter_mut().map(|found| found.deadline_ns).min().unwrap_or(NEVER);
        self.check_ns = if next == NEVER {
            NEVER
        } else {
            next.max(self.now_ns.saturating_add(self.grain_ns()))
        };
    }

    /// Returns how late a wait may end: an eighth of the shortest.
    fn grain_ns(&self) -> u64 {
        let config = &self.config;
        let waits = [config.stall_timeout_us, config.connect_timeout_us, config.linger_us];
        let shortest = waits.into_iter().filter(|wait_us| *wait_us > 0).min().unwrap_or(0);
        shortest.saturating_mul(1000) / 8
    }

    fn expired(&mut self, id: ConnectionId) {
        let Some(found) = self.table.get(id) else { return };
        let cause = match found.phase {
            Phase::Connecting => Cause::Error(libc::ETIMEDOUT),
            Phase::Broken => Cause::PeerReset,
            Phase::Open | Phase::Flushing | Phase::Lingering | Phase::Dead => Cause::SendStalled,
        };
        if found.phase != Phase::Lingering {
            found.socket.reset_on_close();
        }
        self.kill(id, cause);
    }

    /// Tells what became ready. Connections that were closed since are told of no more.
    pub(crate) fn deliver_ready(&mut self, on_event: &mut dyn FnMut(&mut Self, Event<'_>)) {
        for _ in 0..self.ready.len() {
            let Some(ready) = self.ready.pop_front() else { return };
            match ready {
                Ready::Connected(connection) if self.is_open(connection) => {
                    on_event(self, Event::Connected { connection });
                }
                Ready::Drained(connection) if self.is_open(connection) => {
                    on_event(self, Event::Drained { connection });
                }
                Ready::Connected(_) | Ready::Drained(_) => {}
                Ready::Closed(connection, cause) => {
                    on_event(self, Event::Closed { connection, cause });
                }
            }
        }
    }

    fn is_open(&self, id: ConnectionId) -> bool {
        self.table.get(id).is_some_and(Connection::takes_output)
    }

    /// Notes that the kernel is done with everything, after the backend has waited for that.
    pub(crate) fn kernel_is_done(&mut self) {
        for connection in self.table.iter_mut() {
            connection.output.take_back();
        }
    }
}

/// Returns the time `wait_us` microseconds after `now_ns`.
pub(super) fn after(now_ns: u64, wait_us: u64) -> u64 {
    now_ns.saturating_add(wait_us.saturating_mul(1000))
}
