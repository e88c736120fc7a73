//! Completions: each is matched to its connection by tag, or dropped.

use io_uring::cqueue;
use nix::errno::Errno;

use super::Uring;
use super::ring::Completion;
use super::tag::{Kind, Tag};
use crate::connection::Operation;
use crate::event::{ConnectionId, Event};
use crate::outbox::Outbox;

impl Uring {
    /// Reports all completions that wait. True: there were any.
    pub(crate) fn dispatch(
        &mut self,
        outbox: &mut Outbox,
        on_event: &mut dyn FnMut(&mut Outbox, Event<'_>),
    ) -> bool {
        let mut batch = std::mem::take(&mut self.batch);
        self.ring.take(&mut batch);
        for completion in &batch {
            let Some(Tag { kind, id }) = Tag::unpack(completion.0) else { continue };
            match kind {
                Kind::Bell => self.is_bell_armed = false,
                Kind::Cancel => cancel_completed(outbox, id, completion.1),
                Kind::Connect => connect_completed(outbox, id),
                Kind::Receive => self.receive_completed(outbox, id, *completion, on_event),
                Kind::Send => send_completed(outbox, id, completion.1),
            }
        }
        let is_any = !batch.is_empty();
        self.batch = batch;
        is_any
    }

    fn receive_completed(
        &mut self,
        outbox: &mut Outbox,
        id: ConnectionId,
        (_, result, flags): Completion,
        on_event: &mut dyn FnMut(&mut Outbox, Event<'_>),
    ) {
        if let Some(buffer) = cqueue::buffer_select(flags) {
            let length = usize::try_from(result).unwrap_or(0);
            self.buffers.with(buffer, length, |bytes| {
                if !bytes.is_empty() {
                    outbox.received(id, bytes, on_event);
                }
            });
        }
        if !cqueue::more(flags)
            && let Some(connection) = outbox.get(id)
        {
            connection.kernel.receive = Operation::Idle;
            outbox.mark(id);
        }
        match result {
            0 => outbox.peer_ended(id),
            1.. => {}
            _ => match Errno::from_raw(-result) {
                Errno::ENOBUFS => self.starved += 1,
                Errno::ECANCELED | Errno::EINTR | Errno::EAGAIN => {}
                errno => outbox.receive_failed(id, errno),
            },
        }
    }
}

/// An operation that was not found has ended, or is between two of its steps: ask again if so.
fn cancel_completed(outbox: &mut Outbox, id: ConnectionId, result: i32) {
    let Some(connection) = outbox.get(id).filter(|_| result == -libc::ENOENT) else { return };
    let kernel = &mut connection.kernel;
    for operation in [&mut kernel.connect, &mut kernel.receive, &mut kernel.send] {
        if *operation == Operation::Cancelling {
            *operation = Operation::Armed;
        }
    }
    outbox.mark(id);
}

fn connect_completed(outbox: &mut Outbox, id: ConnectionId) {
    let Some(connection) = outbox.get(id) else { return };
    connection.kernel.connect = Operation::Idle;
    outbox.mark(id);
    outbox.connect_ended(id);
}

fn send_completed(outbox: &mut Outbox, id: ConnectionId, result: i32) {
    let Some(connection) = outbox.get(id) else { return };
    connection.kernel.send = Operation::Idle;
    connection.output.take_back();
    outbox.mark(id);
    match usize::try_from(result) {
        Ok(count) => outbox.sent(id, count),
        Err(_) => match Errno::from_raw(-result) {
            Errno::ECANCELED | Errno::EINTR | Errno::EAGAIN => {}
            errno => outbox.send_failed(id, errno),
        },
    }
}
