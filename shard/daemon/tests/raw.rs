//! A connection without a client: frames, and anything else, byte by byte.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use maru_wire::{
    Assembler, BODY_BYTES_MAX, Challenge, Frame, Generation, Handshake, HandshakeError, Hello,
    HelloProof, HelloReply, Incarnation, Namespace, PROTOCOL_VERSION, Purpose, Refusal, Reply,
    RequestBody, Secret, decode_challenge, decode_hello_reply, decode_reply, encode_hello,
    encode_request,
};

use crate::harness::{LIMIT, NAMESPACE, Server};

/// What a raw connection runs over.
pub(crate) trait Stream: Read + Write + Send {}
impl Stream for UnixStream {}
impl Stream for TcpStream {}

/// A connection that speaks the protocol by hand.
pub(crate) struct Raw {
    pub(crate) stream: Box<dyn Stream>,
    assembler: Assembler,
    /// Bytes that were read and are not taken yet.
    input: Vec<u8>,
    pub(crate) generation: Generation,
    next_id: u64,
}

/// The hello of a client object called `name`.
pub(crate) fn hello(name: u8, number: u64, purpose: Purpose) -> Hello {
    Hello {
        client_nonce: [name; 32],
        version_min: PROTOCOL_VERSION,
        version_max: PROTOCOL_VERSION,
        purpose,
        incarnation: Incarnation([name; 16]),
        connection_number: number,
        shard: 0,
        namespace: Namespace::new(NAMESPACE),
        namespace_name: NAMESPACE.to_owned(),
        node_name: String::new(),
        pool_list_digest: [0; 32],
        transfer_timeout_us: 1_000_000,
        object_bytes_max: 64 << 10,
        tickets: Vec::new(),
    }
}

impl Raw {
    /// Connects by TCP.
    pub(crate) fn tcp(server: &Server) -> Self {
        let stream = TcpStream::connect(server.tcp).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self::new(Box::new(stream))
    }

    /// Connects by the Unix socket.
    pub(crate) fn unix(server: &Server) -> Self {
        let stream = UnixStream::connect(&server.socket).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        Self::new(Box::new(stream))
    }

    fn new(stream: Box<dyn Stream>) -> Self {
        Self {
            stream,
            assembler: Assembler::new(BODY_BYTES_MAX),
            input: Vec::new(),
            generation: Generation(0),
            next_id: 100,
        }
    }

    /// Connects by TCP and says this hello, which must be accepted.
    pub(crate) fn admitted(server: &Server, hello: &Hello) -> Self {
        let mut raw = Self::tcp(server);
        let challenge = raw.challenge();
        raw.greet(&challenge, hello, &Secret::none()).unwrap();
        raw
    }

    /// Reads the server's challenge.
    pub(crate) fn challenge(&mut self) -> Challenge {
        self.challenge_or_end().expect("a challenge comes first")
    }

    /// Reads the server's challenge; `None` when it closes the connection instead.
    pub(crate) fn challenge_or_end(&mut self) -> Option<Challenge> {
        self.with_frame(|frame| decode_challenge(frame).unwrap())
    }

    /// Says a hello and reads the answer.
    pub(crate) fn greet(
        &mut self,
        challenge: &Challenge,
        hello: &Hello,
        secret: &Secret,
    ) -> Result<HelloReply, Refusal> {
        let (bytes, proof) = self.hello_bytes(challenge, hello, secret);
        self.stream.write_all(&bytes).unwrap();
        self.answer(challenge, &proof, secret)
    }

    /// The bytes of a hello on this connection.
    pub(crate) fn hello_bytes(
        &self,
        challenge: &Challenge,
        hello: &Hello,
        secret: &Secret,
    ) -> (Vec<u8>, HelloProof) {
        let mut bytes = Vec::new();
        let handshake = Handshake { secret, server_nonce: &challenge.server_nonce };
        let proof = encode_hello(&mut bytes, 1, self.generation, hello, &handshake);
        (bytes, proof)
    }

    /// Reads the answer to a hello.
    pub(crate) fn answer(
        &mut self,
        challenge: &Challenge,
        proof: &HelloProof,
        secret: &Secret,
    ) -> Result<HelloReply, Refusal> {
        let handshake = Handshake { secret, server_nonce: &challenge.server_nonce };
        let mut generation = Generation(0);
        let answer = self.with_frame(|frame| {
            generation = frame.header.generation;
            decode_hello_reply(frame, proof, &handshake)
        });
        self.generation = generation;
        match answer.expect("an answer to the hello") {
            Ok(reply) => Ok(reply),
            Err(HandshakeError::Refused(refusal)) => Err(refusal),
            Err(other) => panic!("{other}"),
        }
    }

    /// Sends a request and returns its id.
    pub(crate) fn send(&mut self, request: &RequestBody<'_>) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let mut bytes = Vec::new();
        encode_request(&mut bytes, id, self.generation, request);
        self.stream.write_all(&bytes).unwrap();
        id
    }

    /// The bytes of a request.
    pub(crate) fn request_bytes(&self, request: &RequestBody<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode_request(&mut bytes, 7, self.generation, request);
        bytes
    }

    /// Sends a request and reads its reply.
    pub(crate) fn ask<T>(
        &mut self,
        request: &RequestBody<'_>,
        read: impl FnOnce(Reply<'_>) -> T,
    ) -> T {
        let id = self.send(request);
        self.reply(id, read)
    }

    /// Reads the next reply, which must be that of request `id`.
    pub(crate) fn reply<T>(&mut self, id: u64, read: impl FnOnce(Reply<'_>) -> T) -> T {
        let read = self.with_frame(|frame| {
            assert_eq!(frame.header.request_id, id);
            read(decode_reply(frame).unwrap())
        });
        read.expect("a reply")
    }

    /// Sends bytes. Whether the server still takes them is not of interest.
    pub(crate) fn throw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap_or_default();
    }

    /// Waits until the server has closed the connection.
    pub(crate) fn wait_until_closed(&mut self) {
        let mut ignored = [0; 4096];
        // A reset is an end, too.
        while self.stream.read(&mut ignored).is_ok_and(|count| count > 0) {}
    }

    /// Reads one frame; `None` when the server closed the connection first.
    fn with_frame<T>(&mut self, read: impl FnOnce(&Frame<'_>) -> T) -> Option<T> {
        loop {
            let mut input = &self.input[..];
            let before = input.len();
            if let Some(frame) = self.assembler.next(&mut input).unwrap() {
                let answer = read(&frame);
                let taken = before - input.len();
                self.input.drain(..taken);
                return Some(answer);
            }
            self.input.clear();
            let mut chunk = vec![0; 64 << 10];
            let count = self.stream.read(&mut chunk).unwrap_or(0);
            if count == 0 {
                return None;
            }
            self.input.extend_from_slice(&chunk[..count]);
        }
    }
}
