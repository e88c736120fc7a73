//! What the threads of the server tell each other. None of it is on the path of a request.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use maru_ledger::Peer;
use maru_wire::{ClosedCount, Hello, HelloProof, Incarnation};
use nix::sys::eventfd::{EfdFlags, EventFd};

/// To a shard, from the acceptor.
#[derive(Debug)]
pub(crate) enum ToShard {
    /// A connection whose hello was found good as far as the acceptor can tell.
    Connected(Box<Greeted>),
    /// This client object can write no more: its process is dead, its connections are closed.
    IncarnationDead(Incarnation),
    /// How often the acceptor has closed connections so far, by reason.
    AcceptorClosed(Vec<ClosedCount>),
    /// Answer what is in flight and end.
    Shutdown,
}

/// A connection with its hello, on its way to the shard that answers it.
#[derive(Debug)]
pub(crate) struct Greeted {
    pub(crate) socket: OwnedFd,
    pub(crate) hello: Hello,
    pub(crate) proof: HelloProof,
    pub(crate) server_nonce: [u8; 32],
    pub(crate) request_id: u64,
    pub(crate) peer: Peer,
}

/// To the acceptor.
#[derive(Debug)]
pub(crate) enum ToAcceptor {
    /// A connection that was mailed to this shard is closed, or was never admitted.
    Closed {
        /// The shard.
        shard: u32,
        /// Whose connection it was.
        incarnation: Incarnation,
    },
    /// Stop accepting, tell the shards to end, and end.
    Shutdown,
}

/// The way to the acceptor: a bounded queue and the eventfd that the acceptor waits for.
#[derive(Clone, Debug)]
pub(crate) struct AcceptorPost {
    queue: SyncSender<ToAcceptor>,
    bell: Arc<EventFd>,
}

/// The acceptor's end of the post.
#[derive(Debug)]
pub(crate) struct AcceptorMailbox {
    pub(crate) queue: Receiver<ToAcceptor>,
    pub(crate) bell: Arc<EventFd>,
}

impl AcceptorPost {
    /// Makes a post that holds `capacity` mails.
    pub(crate) fn new(capacity: usize) -> nix::Result<(Self, AcceptorMailbox)> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let bell = Arc::new(EventFd::from_value_and_flags(0, flags)?);
        let (sender, queue) = sync_channel(capacity);
        Ok((Self { queue: sender, bell: Arc::clone(&bell) }, AcceptorMailbox { queue, bell }))
    }

    /// Hands over a mail. Never waits.
    ///
    /// The queue has room for one mail of each connection that the acceptor may have open, so it
    /// is full only after the acceptor has ended.
    pub(crate) fn send(&self, mail: ToAcceptor) {
        match self.queue.try_send(mail) {
            Ok(()) => {
                // Fails only when the counter is full, and then the bell rings already.
                self.bell.write(1).map(drop).unwrap_or_default();
            }
            Err(TrySendError::Disconnected(_)) => {}
            Err(TrySendError::Full(mail)) => {
                tracing::error!(?mail, "the acceptor's mailbox is full");
            }
        }
    }
}
