//! Makes attachments: a blocking handshake on a thread of its own, which then waits for the end
//! of the connection and drops the mapping.
//!
//! The connection is this process's sign of life to the server, so it stays open.

use std::io;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use maru_session::{AttachHandshake, LinkFault, SessionConfig};
use maru_transfer::shm::{DESCRIPTORS_MAX, Map, MappedSpec, receive_descriptors};
use maru_wire::{Assembler, BODY_BYTES_MAX, HelloReply};

use crate::Attachment;
use crate::deadline::Deadline;
use crate::error::AttachFault;
use crate::shared::lock;

/// What an attach needs to know.
#[derive(Clone, Debug)]
pub(crate) struct AttachConfig {
    pub(crate) path: PathBuf,
    pub(crate) session: SessionConfig,
    pub(crate) timeout: Duration,
    pub(crate) retry_period: Duration,
}

#[derive(Debug)]
enum State {
    None,
    /// A thread is at it, since this moment.
    Attaching,
    Ready(Arc<Attachment>, Arc<UnixStream>),
    Failed {
        at: Instant,
        fault: Arc<AttachFault>,
    },
    Closed,
}

/// Keeps the present attachment.
#[derive(Debug)]
pub(crate) struct Attacher {
    state: Mutex<State>,
    changed: Condvar,
    attempts: AtomicU64,
}

/// Why there is no attachment.
#[derive(Debug)]
pub(crate) enum AttachError {
    Timeout,
    Closed,
    Fault(Arc<AttachFault>),
}

impl Attacher {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(State::None),
            changed: Condvar::new(),
            attempts: AtomicU64::new(0),
        }
    }

    /// Returns the attachment, making it if need be. One attempt runs at a time.
    pub(crate) fn get(
        self: &Arc<Self>,
        config: &AttachConfig,
        deadline: Deadline,
    ) -> Result<Arc<Attachment>, AttachError> {
        let mut state = lock(&self.state);
        let mut has_waited = false;
        loop {
            match &*state {
                State::Ready(attachment, _) if !attachment.is_lost() => {
                    return Ok(Arc::clone(attachment));
                }
                State::Closed => return Err(AttachError::Closed),
                State::Failed { at, fault }
                    if has_waited || (is_lasting(fault) && at.elapsed() < config.retry_period) =>
                {
                    return Err(AttachError::Fault(Arc::clone(fault)));
                }
                State::Attaching => {}
                State::None | State::Ready(..) | State::Failed { .. } => {
                    *state = State::Attaching;
                    if let Err(error) = self.spawn(config) {
                        let fault = Arc::new(AttachFault::Thread(error));
                        *state = State::Failed { at: Instant::now(), fault: Arc::clone(&fault) };
                        return Err(AttachError::Fault(fault));
                    }
                }
            }
            let wait = deadline.at.saturating_duration_since(Instant::now());
            if wait.is_zero() {
                return Err(AttachError::Timeout);
            }
            let waited = self.changed.wait_timeout(state, wait);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            has_waited = true;
        }
    }

    /// Whether there is an attachment whose server lives.
    pub(crate) fn is_attached(&self) -> bool {
        matches!(&*lock(&self.state), State::Ready(attachment, _) if !attachment.is_lost())
    }

    /// Forgets an attachment that turned out to be of a past generation.
    pub(crate) fn forget(&self, attachment: &Arc<Attachment>) {
        let mut state = lock(&self.state);
        if let State::Ready(own, socket) = &*state
            && Arc::ptr_eq(own, attachment)
        {
            end(socket);
            *state = State::None;
        }
    }

    /// Ends the present attachment's connection, and with it its thread.
    pub(crate) fn close(&self) {
        let before = std::mem::replace(&mut *lock(&self.state), State::Closed);
        if let State::Ready(_, socket) = &before {
            end(socket);
        }
        self.changed.notify_all();
    }

    fn spawn(self: &Arc<Self>, config: &AttachConfig) -> io::Result<()> {
        let (attacher, config) = (Arc::clone(self), config.clone());
        let builder = thread::Builder::new().name("maru-attach".to_owned());
        builder.spawn(move || attacher.run(&config)).map(drop)
    }

    fn run(&self, config: &AttachConfig) {
        let number = self.attempts.fetch_add(1, Ordering::Relaxed) + 1;
        let attached = attach(config, number);
        let mut state = lock(&self.state);
        if matches!(*state, State::Closed) {
            return;
        }
        match attached {
            Err(fault) => {
                *state = State::Failed { at: Instant::now(), fault: Arc::new(fault) };
                drop(state);
                self.changed.notify_all();
            }
            Ok((attachment, socket)) => {
                let (attachment, socket) = (Arc::new(attachment), Arc::new(socket));
                *state = State::Ready(Arc::clone(&attachment), Arc::clone(&socket));
                drop(state);
                self.changed.notify_all();
                await_end(&socket);
                // A restarting server may need this memory: drop it now, not at the next call.
                attachment.lose();
                let mut state = lock(&self.state);
                if matches!(&*state, State::Ready(own, _) if Arc::ptr_eq(own, &attachment)) {
                    *state = State::None;
                }
            }
        }
    }
}

/// Whether callers are told of it for a retry period.
fn is_lasting(fault: &AttachFault) -> bool {
    match fault {
        AttachFault::Link(fault) => fault.is_lasting(),
        AttachFault::Count { .. } | AttachFault::Map(_) => true,
        AttachFault::Socket(_) | AttachFault::Descriptors(_) | AttachFault::Thread(_) => false,
    }
}

fn end(socket: &UnixStream) {
    // It fails only when the connection is gone already.
    let _gone = socket.shutdown(std::net::Shutdown::Both);
}

/// Blocks until the server ends the connection. It says nothing on it before.
fn await_end(socket: &UnixStream) {
    use std::io::Read;
    let mut socket = socket;
    let mut sink = [0; 256];
    loop {
        match socket.read(&mut sink) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

fn attach(config: &AttachConfig, number: u64) -> Result<(Attachment, UnixStream), AttachFault> {
    let socket = UnixStream::connect(&config.path)
        .map_err(|error| LinkFault::ConnectFailed(error.raw_os_error().unwrap_or(0)))?;
    let deadline = Instant::now() + config.timeout;
    let mut stream = Stream { socket: &socket, fds: Vec::new(), unread: Vec::new(), deadline };
    let mut assembler = Assembler::new(BODY_BYTES_MAX);
    let mut hello = Vec::new();
    let mut nonce = [0; 32];
    getrandom::fill(&mut nonce).map_err(|error| AttachFault::Socket(io::Error::other(error)))?;
    let handshake = stream.frame(&mut assembler, |frame| {
        AttachHandshake::answer(&config.session, frame, nonce, number, &mut hello)
    })??;
    socket.set_write_timeout(Some(config.timeout))?;
    io::Write::write_all(&mut &socket, &hello)?;
    let (generation, reply) =
        stream.frame(&mut assembler, |frame| handshake.finish(&config.session, frame))??;
    stream.await_descriptors(&reply)?;
    let fds = std::mem::take(&mut stream.fds);
    let map = map(&reply, fds)?;
    Ok((Attachment::new(generation, map), socket))
}

fn map(reply: &HelloReply, fds: Vec<OwnedFd>) -> Result<Map, AttachFault> {
    let (descriptors, regions) = (fds.len(), reply.regions.len());
    if descriptors != regions {
        return Err(AttachFault::Count { descriptors, regions });
    }
    let spec = |(region, fd): (&maru_wire::RegionInfo, OwnedFd)| MappedSpec {
        region: region.region,
        bytes: region.bytes,
        fd,
    };
    let specs = reply.regions.iter().zip(fds).map(spec).collect();
    Ok(Map::new(specs, reply.limits.page_bytes)?)
}

/// The bytes and descriptors that came over an Attach connection.
struct Stream<'a> {
    socket: &'a UnixStream,
    fds: Vec<OwnedFd>,
    unread: Vec<u8>,
    deadline: Instant,
}

impl Stream<'_> {
    /// Reads until there is a frame.
    fn frame<T>(
        &mut self,
        assembler: &mut Assembler,
        take: impl FnOnce(&maru_wire::Frame<'_>) -> T,
    ) -> Result<T, AttachFault> {
        loop {
            let mut input = self.unread.as_slice();
            let next = assembler.next(&mut input);
            let frame = next.map_err(|error| LinkFault::Protocol(error.reason()))?;
            if let Some(frame) = frame {
                let taken = take(&frame);
                let left = input.len();
                self.unread.drain(..self.unread.len() - left);
                return Ok(taken);
            }
            self.unread.clear();
            self.receive()?;
        }
    }

    /// Reads until every region has its descriptor.
    fn await_descriptors(&mut self, reply: &HelloReply) -> Result<(), AttachFault> {
        while self.fds.len() < reply.regions.len() {
            self.receive()?;
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<(), AttachFault> {
        let mut buffer = [0; 4096];
        let socket = self.socket.as_fd();
        let received = receive_descriptors(socket, &mut buffer, DESCRIPTORS_MAX, self.deadline)?;
        if received.bytes == 0 {
            return Err(LinkFault::ClosedInHandshake.into());
        }
        self.fds.extend(received.fds);
        if self.fds.len() > REGIONS_MAX {
            return Err(AttachFault::Count { descriptors: self.fds.len(), regions: REGIONS_MAX });
        }
        self.unread.extend_from_slice(&buffer[..received.bytes]);
        Ok(())
    }
}

/// Most regions of one server.
const REGIONS_MAX: usize = maru_wire::REGIONS_PER_REPLY_MAX as usize;
