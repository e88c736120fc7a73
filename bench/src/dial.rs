//! Connections with a handshake: blocking, one request at a time, or handed over to a load.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, bail};
use maru_wire::{
    Assembler, BODY_BYTES_MAX, Frame, Generation, Handshake, Hello, HelloReply, Incarnation,
    Namespace, PROTOCOL_VERSION, Purpose, Refusal, Reply, RequestBody, Secret, decode_challenge,
    decode_hello_reply, decode_reply, encode_hello, encode_request,
};

/// Namespace of every key of the benchmarks.
pub(crate) const NAMESPACE: &str = "bench";
/// Size of every object, in bytes: one page of the servers that are started here.
pub(crate) const OBJECT_BYTES: u64 = 4096;
/// How long an answer may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// `tcp:HOST:PORT`.
    Tcp(String),
    /// `unix:PATH`.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("tcp", rest)) if rest.contains(':') => Ok(Self::Tcp(rest.to_owned())),
            Some(("unix", path)) if !path.is_empty() => Ok(Self::Unix(path.into())),
            _ => Err(format!("`{text}` is neither tcp:HOST:PORT nor unix:PATH")),
        }
    }
}

/// A connected stream socket.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Connects; answers are waited for at most 30 s.
    pub(crate) fn connect(address: &Address) -> std::io::Result<Self> {
        match address {
            Address::Tcp(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(ANSWER_LIMIT))?;
                Ok(Self::Tcp(stream))
            }
            Address::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(ANSWER_LIMIT))?;
                Ok(Self::Unix(stream))
            }
        }
    }

    /// Gives up the socket's wrapper and its time-out.
    pub(crate) fn into_fd(self) -> std::io::Result<OwnedFd> {
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(None).map(|()| stream.into()),
            Self::Unix(stream) => stream.set_read_timeout(None).map(|()| stream.into()),
        }
    }

    /// Makes writes fail that take longer than `limit`.
    pub(crate) fn set_write_limit(&self, limit: Duration) -> std::io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_write_timeout(Some(limit)),
            Self::Unix(stream) => stream.set_write_timeout(Some(limit)),
        }
    }

    /// Makes reads and writes return at once.
    pub(crate) fn set_nonblocking(&self) -> std::io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nonblocking(true),
            Self::Unix(stream) => stream.set_nonblocking(true),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A connection to one shard, past its handshake.
pub(crate) struct Dialled {
    stream: Stream,
    assembler: Assembler,
    buffer: Vec<u8>,
    generation: Generation,
    hello: HelloReply,
}

impl Dialled {
    /// Connects to `shard` and says hello under an incarnation of its own.
    pub(crate) fn connect(
        address: &Address,
        secret: &Secret,
        purpose: Purpose,
        shard: u32,
    ) -> anyhow::Result<Self> {
        let stream =
            Stream::connect(address).with_context(|| format!("cannot connect to {address:?}"))?;
        let mut frames = Frames::new(stream);
        let challenge = frames.receive(|frame| Ok(decode_challenge(frame)?))?;
        let hello = hello(purpose, shard)?;
        let handshake = Handshake { secret, server_nonce: &challenge.server_nonce };
        let mut out = Vec::new();
        let proof = encode_hello(&mut out, 1, Generation(0), &hello, &handshake);
        frames.stream.write_all(&out)?;
        let (generation, reply) = frames.receive(|frame| {
            Ok((frame.header.generation, decode_hello_reply(frame, &proof, &handshake)?))
        })?;
        let Frames { stream, assembler, buffer } = frames;
        Ok(Self { stream, assembler, buffer, generation, hello: reply })
    }

    /// Returns what the server answered to the hello.
    pub(crate) fn hello(&self) -> &HelloReply {
        &self.hello
    }

    /// Returns the server's generation.
    pub(crate) fn generation(&self) -> Generation {
        self.generation
    }

    /// Gives up the blocking connection.
    pub(crate) fn into_stream(self) -> Stream {
        self.stream
    }

    /// Sends a request, waits for the answer, and lets `read` take from it what it needs.
    pub(crate) fn ask<T>(
        &mut self,
        request: &RequestBody<'_>,
        read: impl FnOnce(&Reply<'_>) -> T,
    ) -> anyhow::Result<T> {
        let mut out = Vec::new();
        encode_request(&mut out, 2, self.generation, request);
        self.stream.write_all(&out)?;
        receive(
            &mut self.stream,
            &mut self.assembler,
            &mut self.buffer,
            |frame| match decode_reply(frame)? {
                Reply::Refused(refusal) => Err(refused(refusal)),
                reply => Ok(read(&reply)),
            },
        )
    }
}

/// Makes the error of a refused frame.
pub(crate) fn refused(refusal: Refusal) -> anyhow::Error {
    anyhow::anyhow!("the server refused a frame: {refusal}")
}

struct Frames {
    stream: Stream,
    assembler: Assembler,
    buffer: Vec<u8>,
}

impl Frames {
    fn new(stream: Stream) -> Self {
        let assembler = Assembler::new(BODY_BYTES_MAX);
        Self { stream, assembler, buffer: vec![0; 64 * 1024] }
    }

    fn receive<T>(
        &mut self,
        read: impl FnOnce(&Frame<'_>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        receive(&mut self.stream, &mut self.assembler, &mut self.buffer, read)
    }
}

/// Waits for one frame. No second one can follow it: one request is out at a time.
fn receive<T>(
    stream: &mut Stream,
    assembler: &mut Assembler,
    buffer: &mut [u8],
    read: impl FnOnce(&Frame<'_>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    loop {
        let bytes = stream.read(buffer).context("no answer came")?;
        if bytes == 0 {
            bail!("the server closed the connection");
        }
        if let Some(frame) = assembler.next(&mut &buffer[..bytes])? {
            return read(&frame);
        }
    }
}

/// Makes a hello of a client object of its own.
pub(crate) fn hello(purpose: Purpose, shard: u32) -> anyhow::Result<Hello> {
    let mut client_nonce = [0; 32];
    getrandom::fill(&mut client_nonce)?;
    let mut incarnation = [0; 16];
    getrandom::fill(&mut incarnation)?;
    incarnation[..4].copy_from_slice(&std::process::id().to_le_bytes());
    Ok(Hello {
        client_nonce,
        version_min: PROTOCOL_VERSION,
        version_max: PROTOCOL_VERSION,
        purpose,
        incarnation: Incarnation(incarnation),
        connection_number: 1,
        shard,
        namespace: Namespace::new(NAMESPACE),
        namespace_name: NAMESPACE.to_owned(),
        node_name: String::new(),
        pool_list_digest: [0; 32],
        transfer_timeout_us: 1_000_000,
        object_bytes_max: OBJECT_BYTES,
        tickets: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_or_refused() {
        assert_eq!("unix:/a/b".parse(), Ok(Address::Unix("/a/b".into())));
        assert_eq!("tcp:127.0.0.1:1".parse(), Ok(Address::Tcp("127.0.0.1:1".to_owned())));
        for wrong in ["", "unix:", "tcp:1", "127.0.0.1:1", "/a/b"] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
    }
}
