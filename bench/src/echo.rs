//! The bare echo: our frames on our reactor, answered without a look at their bodies.
//!
//! What the server costs beyond this is its own work: checking, the ledger, the reply.

use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;

use anyhow::Context;
use maru_uring::{Event, IoMode, Reactor, ReactorConfig};
use maru_wire::{
    Assembler, BODY_BYTES_MAX, ExistsReply, Generation, Op, ReplyBuffer, encode_reply,
};

use crate::dial::{Address, Stream};
use crate::machine::thread_cpu_ns;

/// Where the request id stands in a frame's header.
const REQUEST_ID_AT: usize = 16;

/// Over what the echo is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Transport {
    /// TCP over loopback.
    Tcp,
    /// A Unix socket.
    Unix,
}

impl Transport {
    /// Returns the name used in results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Unix => "unix",
        }
    }
}

/// An echo server on a thread of its own. It ends when its last connection closes.
pub(crate) struct Echo {
    thread: JoinHandle<anyhow::Result<()>>,
    thread_id: i32,
}

impl Echo {
    /// Starts it on `core`, and returns it with the other ends of its connections. It says of
    /// every request that all of its `keys` are there.
    pub(crate) fn start(
        io: IoMode,
        core: u32,
        transport: Transport,
        (connection_count, keys): (usize, u32),
    ) -> anyhow::Result<(Self, Vec<Stream>)> {
        let (mut near, mut far) = (Vec::new(), Vec::new());
        for _ in 0..connection_count {
            let (a, b) = pair(transport)?;
            near.push(a);
            far.push(b);
        }
        let (started_tx, started) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let server = Server::new(io, core, keys, far);
            let thread_id = nix::unistd::gettid().as_raw();
            // The starter waits for it, or has ended with everything.
            started_tx.send(thread_id).unwrap_or_default();
            server?.run()
        });
        let thread_id = wait(&started)?;
        Ok((Self { thread, thread_id }, near))
    }

    /// Returns the CPU time of the echo's thread so far, in nanoseconds.
    pub(crate) fn cpu_ns(&self) -> u64 {
        thread_cpu_ns(self.thread_id)
    }

    /// Waits for the end, which comes with the last connection's.
    pub(crate) fn join(self) -> anyhow::Result<()> {
        self.thread.join().map_err(|_| anyhow::anyhow!("the echo's thread panicked"))?
    }
}

fn wait(started: &Receiver<i32>) -> anyhow::Result<i32> {
    started.recv().context("the echo's thread ended at once")
}

/// Makes two connected sockets.
pub(crate) fn pair(transport: Transport) -> anyhow::Result<(Stream, Stream)> {
    match transport {
        Transport::Tcp => {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let near = Stream::connect(&Address::Tcp(listener.local_addr()?.to_string()))?;
            let far = listener.accept()?.0;
            far.set_nodelay(true)?;
            Ok((near, Stream::Tcp(far)))
        }
        Transport::Unix => {
            let folder = tempfile::tempdir()?;
            let path = folder.path().join("echo.sock");
            let listener = UnixListener::bind(&path)?;
            let near = Stream::connect(&Address::Unix(path))?;
            Ok((near, Stream::Unix(listener.accept()?.0)))
        }
    }
}

struct Server {
    reactor: Reactor,
    assemblers: Vec<Assembler>,
    answer: Vec<u8>,
}

impl Server {
    fn new(io: IoMode, core: u32, keys: u32, streams: Vec<Stream>) -> anyhow::Result<Self> {
        maru_numa::pin_current_thread(core)?;
        let config = ReactorConfig { io, ..ReactorConfig::default() };
        let mut reactor = Reactor::new(config)?;
        let mut assemblers = Vec::new();
        for stream in streams {
            let Ok(id) = reactor.outbox().add(stream.into_fd()?) else {
                anyhow::bail!("the reactor takes no more connections");
            };
            assemblers.resize_with(assemblers.len().max(id.index() + 1), || {
                Assembler::new(BODY_BYTES_MAX)
            });
        }
        let mut answer = Vec::new();
        let replies = ReplyBuffer {
            exists: ExistsReply { leading_count: keys, ..ExistsReply::default() },
            ..ReplyBuffer::default()
        };
        encode_reply(&mut answer, Op::Exists, 0, Generation(1), &replies);
        Ok(Self { reactor, assemblers, answer })
    }

    fn run(mut self) -> anyhow::Result<()> {
        let mut failure = None;
        while self.reactor.outbox().connection_count() > 0 && failure.is_none() {
            let (assemblers, answer) = (&mut self.assemblers, &self.answer);
            self.reactor.turn(None, &mut |outbox, event| {
                if let Event::Received { connection, bytes } = event {
                    let assembler = &mut assemblers[connection.index()];
                    let echoed = echo(assembler, bytes, answer, outbox.send(connection));
                    failure = failure.take().or(echoed.err());
                }
            })?;
        }
        failure.map_or(Ok(()), Err)
    }
}

fn echo(
    assembler: &mut Assembler,
    mut bytes: &[u8],
    answer: &[u8],
    out: Option<&mut Vec<u8>>,
) -> anyhow::Result<()> {
    let Some(out) = out else { return Ok(()) };
    while let Some(frame) = assembler.next(&mut bytes)? {
        let start = out.len();
        out.extend_from_slice(answer);
        out[start + REQUEST_ID_AT..start + REQUEST_ID_AT + 8]
            .copy_from_slice(&frame.header.request_id.to_le_bytes());
    }
    Ok(())
}
