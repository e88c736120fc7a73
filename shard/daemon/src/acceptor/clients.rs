//! What the acceptor does for clients that have said hello: admits, attaches, mails, buries.

use std::net::IpAddr;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::time::Instant;

use maru_ledger::Peer;
use maru_region::Region;
use maru_transfer::shm::{PeerProcess, try_send_descriptors};
use maru_wire::{Hello, Incarnation, Op, Purpose, Refusal, encode_hello_reply, encode_refusal};
use nix::errno::Errno;
use nix::sys::epoll::{EpollEvent, EpollFlags};
use nix::sys::socket::{MsgFlags, recv};

use super::incarnations::{Part, Role};
use super::pending::{Origin, Pending, Said};
use super::processes::ProcessNumber;
use super::{Acceptor, Attached, TOKEN_PROCESS, readable};
use crate::mail::{Greeted, ToShard};
use crate::reasons::refusal_reason;

impl Acceptor {
    /// Sends a connection that has said hello where it belongs, or refuses it.
    pub(super) fn answer(&mut self, mut pending: Pending, said: Said) -> nix::Result<()> {
        let is_local = matches!(pending.origin, Origin::Unix { .. });
        let nonce = &pending.server_nonce;
        let judged = self.terms.judge(&said.hello, &said.proof, nonce, is_local);
        match judged.and_then(|()| self.admit(&mut pending, &said.hello)) {
            Ok(()) => self.hand_over(pending, said),
            Err(refusal) => self.refuse(pending, said.request_id, refusal),
        }
    }

    fn refuse(
        &mut self,
        mut pending: Pending,
        request_id: u64,
        refusal: Refusal,
    ) -> nix::Result<()> {
        tracing::debug!(%refusal, "hello refused");
        self.count(refusal_reason(&refusal));
        let mut frame = Vec::new();
        encode_refusal(&mut frame, Op::Hello, request_id, self.generation, refusal);
        pending.refuse(&frame);
        pending.deadline = Instant::now() + self.limits.hello_timeout;
        let token = self.take_token();
        self.epoll.add(&pending.socket, EpollEvent::new(readable(), token))?;
        self.pending.insert(token, pending);
        Ok(())
    }

    /// Counts the connection for its client object, and watches the process from its first on.
    fn admit(&mut self, pending: &mut Pending, hello: &Hello) -> Result<(), Refusal> {
        let role = self.role(hello);
        let connections_max = self.limits.connections_max;
        if role.part() == Part::Open
            && self.shards[hello.shard as usize].connection_count >= connections_max
        {
            return Err(Refusal::TooManyIncarnations(connections_max));
        }
        let process = match &mut pending.origin {
            Origin::Unix { process, .. } => process.take(),
            Origin::Tcp(_) => None,
        };
        if let Some(process) = &process
            && process.is_dead()
        {
            return Err(Refusal::IncarnationTaken(process.pid()));
        }
        let connected = self.incarnations.connect(hello.incarnation, process, role);
        self.forgotten.add(self.incarnations.take_forgotten());
        if let Some(number) = connected? {
            self.watch_process(number);
        }
        Ok(())
    }

    /// A monitor of a namespace that is served may send what a data connection may.
    fn role(&self, hello: &Hello) -> Role {
        match hello.purpose {
            Purpose::Attach => Role::Attach,
            Purpose::Monitor if !self.terms.serves(&hello.namespace_name) => Role::Watch,
            Purpose::Data | Purpose::Monitor => Role::Hold,
        }
    }

    fn hand_over(&mut self, pending: Pending, said: Said) -> nix::Result<()> {
        match said.hello.purpose {
            Purpose::Attach => self.attach(pending, &said),
            Purpose::Data | Purpose::Monitor => {
                self.mail(pending, said);
                Ok(())
            }
        }
    }

    fn mail(&mut self, pending: Pending, said: Said) {
        let Said { hello, proof, request_id } = said;
        let (shard, incarnation) = (hello.shard as usize, hello.incarnation);
        let Pending { socket, origin, server_nonce, .. } = pending;
        let peer = peer(&origin);
        let greeted = Greeted { socket, hello, proof, server_nonce, request_id, peer };
        match self.shards[shard].mailbox.try_send(ToShard::Connected(Box::new(greeted))) {
            Ok(()) => self.shards[shard].connection_count += 1,
            // Dropping the mail closes the connection; its client tries again.
            Err(mail) => {
                drop(mail);
                self.count("shard_busy");
                self.disconnect(incarnation, Part::Open);
            }
        }
    }

    /// Answers an attach connection, gives it the regions, and keeps it.
    fn attach(&mut self, pending: Pending, said: &Said) -> nix::Result<()> {
        let reply = self.terms.reply(0, 0, &self.terms.limits);
        let handshake = self.terms.handshake(&pending.server_nonce);
        let mut frame = Vec::new();
        encode_hello_reply(&mut frame, self.generation, &reply, &said.proof, &handshake);
        let descriptors: Vec<_> = self.regions.iter().map(Region::descriptor).collect();
        let sent = try_send_descriptors(pending.socket.as_fd(), &frame, &descriptors);
        let incarnation = said.hello.incarnation;
        // A fresh socket has room for it all, so less means that the peer is gone or hostile.
        if sent.is_ok_and(|count| count == frame.len()) {
            let token = self.take_token();
            self.epoll.add(&pending.socket, EpollEvent::new(readable(), token))?;
            self.attached.insert(token, Attached { socket: pending.socket, incarnation });
        } else {
            self.count("peer_reset");
            self.disconnect(incarnation, Part::Attached);
        }
        Ok(())
    }

    /// Reads on an attach connection to find its end. What it sends means nothing: closing it for
    /// that would lose the proof of the process's death.
    pub(super) fn read_attached(&mut self, token: u64) {
        let Some(attached) = self.attached.get(&token) else { return };
        let mut ignored = [0; 4096];
        let socket = attached.socket.as_raw_fd();
        let reason = match recv(socket, &mut ignored, MsgFlags::MSG_DONTWAIT) {
            Ok(0) => "peer_closed",
            Ok(_) | Err(Errno::EAGAIN | Errno::EINTR) => return,
            Err(Errno::ECONNRESET) => "peer_reset",
            Err(_) => "io_error",
        };
        if let Some(attached) = self.attached.remove(&token) {
            self.count(reason);
            self.disconnect(attached.incarnation, Part::Attached);
        }
    }

    /// Counts a connection as closed, and tells the shards when its client is dead by that.
    pub(super) fn disconnect(&mut self, incarnation: Incarnation, part: Part) {
        if self.incarnations.disconnect(incarnation, part) {
            self.tell_dead(incarnation);
        }
    }

    /// Waits for the end of a process that is known from now on.
    fn watch_process(&mut self, number: ProcessNumber) {
        let Some(pidfd) = self.incarnations.process(number).and_then(PeerProcess::pidfd) else {
            return;
        };
        let event = EpollEvent::new(EpollFlags::EPOLLIN, TOKEN_PROCESS | number.0);
        if let Err(error) = self.epoll.add(pidfd, event) {
            tracing::warn!(%error, "cannot watch a client's process");
        }
    }

    /// A watched process has ended. Its client objects are dead now, or with their last connection.
    pub(super) fn on_process_end(&mut self, number: ProcessNumber) -> nix::Result<()> {
        if let Some(pidfd) = self.incarnations.process(number).and_then(PeerProcess::pidfd) {
            self.epoll.delete(pidfd)?;
        }
        for incarnation in self.incarnations.bury_all(number) {
            self.tell_dead(incarnation);
        }
        Ok(())
    }

    fn tell_dead(&mut self, incarnation: Incarnation) {
        tracing::debug!(%incarnation, pid = incarnation.process_id(), "client proven dead");
        self.tell_all(|| ToShard::IncarnationDead(incarnation));
    }
}

fn peer(origin: &Origin) -> Peer {
    match origin {
        Origin::Unix { uid, .. } => Peer::Uid(*uid),
        Origin::Tcp(IpAddr::V4(address)) => Peer::Address(address.to_ipv6_mapped().octets()),
        Origin::Tcp(IpAddr::V6(address)) => Peer::Address(address.octets()),
    }
}
