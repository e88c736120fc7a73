//! One connection between accept and its hello. Never waits for the peer.

use std::net::IpAddr;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::time::Instant;

use maru_transfer::shm::PeerProcess;
use maru_wire::{
    Assembler, DecodeError, HEADER_BYTES, HELLO_BODY_BYTES_MAX, Header, Hello, HelloProof,
    decode_hello,
};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, Shutdown, recv, send, shutdown};

/// Where a connection comes from.
#[derive(Debug)]
pub(crate) enum Origin {
    /// The Unix socket, from this process of this user. The process is taken at the hello.
    Unix { uid: u32, process: Option<PeerProcess> },
    /// The TCP port, from this address.
    Tcp(IpAddr),
}

/// A connection whose hello has not come whole, or whose refusal is on its way.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) socket: OwnedFd,
    pub(crate) origin: Origin,
    pub(crate) server_nonce: [u8; 32],
    pub(crate) deadline: Instant,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// The part of the hello that came so far; its header once that is there.
    Hello { bytes: Vec<u8>, header: Option<Header> },
    /// Refused. Waits for the peer's end, so that the refusal reaches it.
    Refused,
}

/// A hello with what binds it to its connection.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) hello: Hello,
    pub(crate) proof: HelloProof,
    pub(crate) request_id: u64,
}

/// What came of reading.
#[derive(Debug)]
pub(crate) enum Progress {
    /// More must come.
    Waiting,
    /// The hello is whole. Nothing behind it was read.
    Said(Box<Said>),
    /// The connection is over, for this reason.
    Over(&'static str),
}

impl Pending {
    /// Takes a fresh connection and sends it the challenge.
    ///
    /// Fails with a reason when the peer is gone already.
    pub(crate) fn challenge(
        socket: OwnedFd,
        origin: Origin,
        server_nonce: [u8; 32],
        deadline: Instant,
        challenge: &[u8],
    ) -> Result<Self, &'static str> {
        let stage = Stage::Hello { bytes: Vec::new(), header: None };
        let pending = Self { socket, origin, server_nonce, deadline, stage };
        if pending.send_whole(challenge) { Ok(pending) } else { Err("peer_reset") }
    }

    /// Whether the hello was refused, so that the connection only waits for its end.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self.stage, Stage::Refused)
    }

    /// How many bytes of the hello are kept.
    pub(crate) fn buffered_bytes(&self) -> usize {
        match &self.stage {
            Stage::Hello { bytes, .. } => bytes.capacity(),
            Stage::Refused => 0,
        }
    }

    /// Reads what is there, up to the hello's end.
    pub(crate) fn read(&mut self) -> Progress {
        let Stage::Hello { bytes, header } = &mut self.stage else { return self.read_to_end() };
        loop {
            let frame_bytes = header.as_ref().map_or(HEADER_BYTES, Header::frame_bytes);
            let mut chunk = [0; 4096];
            let missing = (frame_bytes - bytes.len()).min(chunk.len());
            match receive(&self.socket, &mut chunk[..missing]) {
                Ok(count) => bytes.extend_from_slice(&chunk[..count]),
                Err(progress) => return progress,
            }
            if header.is_none()
                && let Some(head) = bytes.first_chunk()
            {
                match Header::decode(head, HELLO_BODY_BYTES_MAX) {
                    Ok(decoded) => *header = Some(decoded),
                    Err(error) => return Progress::Over(error.reason()),
                }
            }
            if header.as_ref().is_some_and(|header| header.frame_bytes() == bytes.len()) {
                return match said(bytes) {
                    Ok(said) => Progress::Said(Box::new(said)),
                    Err(error) => Progress::Over(error.reason()),
                };
            }
        }
    }

    /// Sends a refusal, ends this direction, and goes on reading only to find the peer's end.
    pub(crate) fn refuse(&mut self, refusal: &[u8]) {
        self.send_whole(refusal);
        self.end_output();
        self.stage = Stage::Refused;
    }

    /// Sends bytes that fit into any fresh socket's buffer. Returns whether they did.
    fn send_whole(&self, bytes: &[u8]) -> bool {
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        send(self.socket.as_raw_fd(), bytes, flags) == Ok(bytes.len())
    }

    fn end_output(&self) {
        // Fails only when the peer is gone, which the next read finds.
        shutdown(self.socket.as_fd().as_raw_fd(), Shutdown::Write).unwrap_or_default();
    }

    fn read_to_end(&self) -> Progress {
        let mut ignored = [0; 4096];
        match receive(&self.socket, &mut ignored) {
            Ok(_) => Progress::Waiting,
            Err(progress) => progress,
        }
    }
}

/// Reads at least one byte, or says why not.
fn receive(socket: &OwnedFd, chunk: &mut [u8]) -> Result<usize, Progress> {
    loop {
        return match recv(socket.as_raw_fd(), chunk, MsgFlags::MSG_DONTWAIT) {
            Ok(0) => Err(Progress::Over("peer_closed")),
            Ok(count) => Ok(count),
            Err(Errno::EINTR) => continue,
            Err(Errno::EAGAIN) => Err(Progress::Waiting),
            Err(Errno::ECONNRESET) => Err(Progress::Over("peer_reset")),
            Err(_) => Err(Progress::Over("io_error")),
        };
    }
}

fn said(bytes: &[u8]) -> Result<Said, DecodeError> {
    let mut assembler = Assembler::new(HELLO_BODY_BYTES_MAX);
    let mut input = bytes;
    let frame = assembler.next(&mut input)?.expect("the frame is whole by its header");
    let (hello, proof) = decode_hello(&frame)?;
    Ok(Said { hello, proof, request_id: frame.header.request_id })
}
