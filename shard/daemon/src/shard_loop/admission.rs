//! How connections come to a shard, and how they leave it.

use maru_ledger::Time;
use maru_uring::{Cause, ConnectionId, Outbox};
use maru_wire::{Hello, Op, Purpose, Refusal, encode_hello_reply, encode_refusal};

use super::{ShardLoop, find, micros};
use crate::connection::{Connection, Identity};
use crate::mail::{Greeted, ToAcceptor};
use crate::reasons::refusal_reason;

impl ShardLoop {
    /// Answers a hello that the acceptor found good: the ledger decides.
    pub(super) fn greet(&mut self, outbox: &mut Outbox, greeted: Greeted) {
        let Greeted { socket, hello, proof, server_nonce, request_id, peer } = greeted;
        #[cfg(debug_assertions)]
        panic_if_asked(&hello);
        let Ok(id) = outbox.add(socket) else {
            self.executor.closed.count("no_room");
            self.tell_closed(&hello);
            return;
        };
        let now = self.now();
        let admitted = match self.phase {
            super::Phase::Serving => self.executor.ledger.hello(now, &hello, peer),
            super::Phase::Draining { .. } | super::Phase::Closing { .. } => {
                Err(Refusal::ShuttingDown)
            }
        };
        let generation = self.executor.facts.generation;
        let out = outbox.send(id).expect("added above");
        let admission = match admitted {
            Ok(admission) => admission,
            Err(refusal) => {
                encode_refusal(out, Op::Hello, request_id, generation, refusal);
                outbox.close(id, refusal_reason(&refusal));
                self.tell_closed(&hello);
                return;
            }
        };
        let terms = &self.executor.facts.terms;
        let eviction_number = self.executor.ledger.eviction_number();
        let reply = terms.reply(self.shard, eviction_number, &admission.limits);
        let handshake = terms.handshake(&server_nonce);
        encode_hello_reply(out, generation, &reply, &proof, &handshake);
        let identity = Identity {
            client: admission.client,
            incarnation: hello.incarnation,
            purpose: hello.purpose,
            connection_number: hello.connection_number,
            may_only_watch: !terms.serves(&hello.namespace_name),
        };
        if admission.superseded {
            self.supersede(outbox, &identity);
        }
        self.insert(Connection::new(id, identity, admission.limits.body_bytes_max));
    }

    /// Closes the older data connections of a client object, and drops what they have sent.
    fn supersede(&mut self, outbox: &mut Outbox, newer: &Identity) {
        let older: Vec<ConnectionId> = self
            .connections
            .iter()
            .flatten()
            .filter(|connection| {
                let identity = &connection.identity;
                identity.client == newer.client && identity.purpose == Purpose::Data
            })
            .map(|connection| connection.id)
            .collect();
        for id in older {
            self.drop_input(id);
            outbox.abort(id, "superseded");
        }
    }

    fn insert(&mut self, connection: Connection) {
        let index = connection.id.index();
        if self.connections.len() <= index {
            self.connections.resize_with(index + 1, || None);
        }
        self.connections[index] = Some(connection);
        self.executor.load.connection_count += 1;
    }

    /// Ends a connection once its output is sent. What it has sent and is not answered is dropped.
    pub(super) fn close(&mut self, outbox: &mut Outbox, id: ConnectionId, reason: &'static str) {
        self.drop_input(id);
        outbox.close(id, reason);
    }

    pub(super) fn on_closed(&mut self, id: ConnectionId, cause: Cause) {
        self.executor.closed.count(cause.reason());
        self.drop_input(id);
        if find(&mut self.connections, id).is_none() {
            return;
        }
        let Some(connection) = self.connections[id.index()].take() else { return };
        self.executor.load.connection_count -= 1;
        let Identity { client, purpose, connection_number, incarnation, .. } = connection.identity;
        let now = self.now();
        self.executor.ledger.connection_closed(now, client, purpose, connection_number);
        self.acceptor.send(ToAcceptor::Closed { shard: self.shard, incarnation });
    }

    /// Closes the connections whose frame took too long to arrive whole.
    pub(super) fn close_half_frames(&mut self, outbox: &mut Outbox, now: Time) {
        let timeout_us = micros(self.limits.frame_timeout);
        let mut next: Option<Time> = None;
        let mut late = Vec::new();
        for connection in self.connections.iter().flatten() {
            let Some(since) = connection.mid_frame_since() else { continue };
            let due = since.after(timeout_us);
            if due <= now {
                late.push(connection.id);
            } else {
                next = Some(next.map_or(due, |next| next.min(due)));
            }
        }
        self.frame_check = next;
        for id in late {
            self.close(outbox, id, "half_frame");
        }
    }

    /// Gives up the connections with the oldest unfinished frames, while those take too much.
    pub(super) fn give_up_unfinished(&mut self, outbox: &mut Outbox) {
        while self.partial_bytes > self.limits.partial_bytes_max
            || self.executor.load.buffered_bytes > self.limits.buffered_bytes_max
        {
            let open = self.connections.iter().flatten();
            let unfinished = open.filter(|connection| connection.partial_bytes() > 0);
            let oldest = unfinished.min_by_key(|connection| connection.mid_frame_since());
            let Some(id) = oldest.map(|connection| connection.id) else { return };
            self.close(outbox, id, "buffer_limit");
        }
    }

    fn drop_input(&mut self, id: ConnectionId) {
        if let Some(connection) = find(&mut self.connections, id) {
            self.executor.load.buffered_bytes -= connection.buffered_bytes();
            self.partial_bytes -= connection.partial_bytes();
            connection.drop_input(&mut self.executor.spares);
        }
    }

    fn tell_closed(&self, hello: &Hello) {
        let incarnation = hello.incarnation;
        self.acceptor.send(ToAcceptor::Closed { shard: self.shard, incarnation });
    }
}

/// Lets a test see what the panic of a serving shard does. Release builds have no such thing.
#[cfg(debug_assertions)]
fn panic_if_asked(hello: &Hello) {
    let asked = std::env::var("MARU_TEST_PANIC_NAMESPACE");
    assert!(asked.as_ref() != Ok(&hello.namespace_name), "a test asked for this panic");
}
