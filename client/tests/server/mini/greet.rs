//! The acceptor's part: challenge, hello, answer; the regions for whoever attaches.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use maru_ledger::Peer;
use maru_transfer::shm::send_descriptors;
use maru_wire::{
    Assembler, BODY_BYTES_MAX, Challenge, Generation, Handshake, Hello, HelloProof, HelloReply,
    Limits, Mover, MoverKind, Op, Purpose, Refusal, RegionInfo, RegionKind, decode_hello,
    encode_challenge, encode_hello_reply, encode_refusal,
};

use super::{Admitted, Shared, now};

const NONCE: [u8; 32] = [9; 32];

pub(super) fn accept(shared: &Shared, listener: &UnixListener) {
    loop {
        // A listener that is shut down accepts no more.
        let Ok((socket, _)) = listener.accept() else { return };
        // A client that goes away during its handshake is none of the test's business.
        let _done = greet(shared, socket);
    }
}

fn greet(shared: &Shared, mut socket: UnixStream) -> Option<()> {
    let generation = Generation(shared.config.generation);
    let challenge = Challenge {
        server_nonce: NONCE,
        version_min: 1,
        version_max: 1,
        secret_required: !shared.config.secret.is_none(),
    };
    let mut out = Vec::new();
    encode_challenge(&mut out, generation, &challenge);
    socket.write_all(&out).ok()?;
    socket.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    let (hello, proof) = read_hello(&mut socket)?;
    let handshake = Handshake { secret: &shared.config.secret, server_nonce: &NONCE };
    out.clear();
    let admitted = if proof.verify(&handshake) || shared.config.is_rogue {
        admit(shared, &hello)
    } else {
        Err(Refusal::WrongSecret)
    };
    match admitted {
        Err(refusal) => {
            let id = hello.connection_number;
            encode_refusal(&mut out, Op::Hello, id, generation, refusal);
            socket.write_all(&out).ok()
        }
        Ok((client, limits)) => {
            let reply = reply(shared, &hello, limits);
            encode_hello_reply(&mut out, generation, &reply, &proof, &handshake);
            welcome(shared, socket, (&hello, client), &out)
        }
    }
}

fn read_hello(socket: &mut UnixStream) -> Option<(Hello, HelloProof)> {
    let mut assembler = Assembler::new(BODY_BYTES_MAX);
    loop {
        let mut buffer = [0; 4096];
        let count = socket.read(&mut buffer).ok().filter(|count| *count > 0)?;
        let mut input = &buffer[..count];
        if let Some(frame) = assembler.next(&mut input).ok()? {
            return decode_hello(&frame).ok();
        }
    }
}

fn admit(
    shared: &Shared,
    hello: &Hello,
) -> Result<(Option<maru_ledger::ClientId>, Limits), Refusal> {
    let mut shards = shared.shards.lock().expect("no test panics with it");
    let count = shared.config.shard_count;
    if hello.purpose == Purpose::Attach {
        return Ok((None, shards[0].limits()));
    }
    let shard = shards.get_mut(hello.shard as usize).ok_or(Refusal::NoSuchShard(count))?;
    let admission = shard.hello(now(), hello, Peer::Address(hello.incarnation.0))?;
    Ok((Some(admission.client), admission.limits))
}

fn reply(shared: &Shared, hello: &Hello, limits: Limits) -> HelloReply {
    let region =
        RegionInfo { region: 7, kind: RegionKind::Memfd, node: -1, bytes: shared.region.bytes() };
    HelloReply {
        version: 1,
        shard_count: shared.config.shard_count,
        shard: hello.shard,
        node_name: "mini".to_owned(),
        eviction_number: 0,
        limits,
        regions: vec![region],
        movers: vec![Mover { kind: MoverKind::Shm, endpoint: Vec::new() }],
    }
}

fn welcome(
    shared: &Shared,
    mut socket: UnixStream,
    (hello, client): (&Hello, Option<maru_ledger::ClientId>),
    frame: &[u8],
) -> Option<()> {
    let Some(client) = client else {
        let deadline = Instant::now() + Duration::from_secs(5);
        let fds = [shared.region.descriptor()];
        send_descriptors(socket.as_fd(), frame, &fds, deadline).ok()?;
        shared.attached.lock().expect("no test panics with it").push(socket);
        return Some(());
    };
    socket.write_all(frame).ok()?;
    let (shard, purpose, number) = (hello.shard, hello.purpose, hello.connection_number);
    let admitted = Admitted { socket: socket.into(), client, shard, purpose, number };
    shared.admitted.lock().expect("no test panics with it").push(admitted);
    shared.waker.get()?.wake();
    Some(())
}
