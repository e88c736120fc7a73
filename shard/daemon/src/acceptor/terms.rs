//! On what terms a hello is accepted, as far as no shard must be asked.

use maru_wire::{
    Challenge, Handshake, Hello, HelloProof, HelloReply, Limits, Mover, MoverKind,
    PROTOCOL_VERSION, Purpose, Refusal, RegionInfo, Secret,
};

/// What the server is and whom it serves; the same for every connection.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) secret: Secret,
    pub(crate) node_name: String,
    /// Names of the namespaces served; empty serves any.
    pub(crate) namespaces: Vec<String>,
    pub(crate) shard_count: u32,
    pub(crate) limits: Limits,
    pub(crate) regions: Vec<RegionInfo>,
}

impl Terms {
    /// Makes the challenge that carries `server_nonce`.
    pub(crate) fn challenge(&self, server_nonce: [u8; 32]) -> Challenge {
        Challenge {
            server_nonce,
            version_min: PROTOCOL_VERSION,
            version_max: PROTOCOL_VERSION,
            secret_required: !self.secret.is_none(),
        }
    }

    /// Binds the secret to the nonce of one connection.
    pub(crate) fn handshake<'a>(&'a self, server_nonce: &'a [u8; 32]) -> Handshake<'a> {
        Handshake { secret: &self.secret, server_nonce }
    }

    /// Judges a hello that came by the Unix socket (`is_local`) or by TCP. The proof comes first:
    /// who does not know the secret learns nothing else.
    pub(crate) fn judge(
        &self,
        hello: &Hello,
        proof: &HelloProof,
        server_nonce: &[u8; 32],
        is_local: bool,
    ) -> Result<(), Refusal> {
        if !proof.verify(&self.handshake(server_nonce)) {
            return Err(Refusal::WrongSecret);
        }
        if !(hello.version_min..=hello.version_max).contains(&PROTOCOL_VERSION) {
            return Err(Refusal::WrongVersion(PROTOCOL_VERSION));
        }
        if !hello.node_name.is_empty() && hello.node_name != self.node_name {
            return Err(Refusal::WrongNode);
        }
        if hello.purpose != Purpose::Monitor && !self.serves(&hello.namespace_name) {
            return Err(Refusal::WrongNamespace);
        }
        match hello.purpose {
            Purpose::Attach if !is_local => Err(Refusal::NotLocal),
            Purpose::Data | Purpose::Monitor if hello.shard >= self.shard_count => {
                Err(Refusal::NoSuchShard(self.shard_count))
            }
            Purpose::Attach | Purpose::Data | Purpose::Monitor => Ok(()),
        }
    }

    /// Whether clients may use the namespace of this name. A monitor may watch from any.
    pub(crate) fn serves(&self, namespace_name: &str) -> bool {
        self.namespaces.is_empty() || self.namespaces.iter().any(|name| name == namespace_name)
    }

    /// Answers a hello on behalf of `shard`, whose latest eviction number is given.
    pub(crate) fn reply(&self, shard: u32, eviction_number: u64, limits: &Limits) -> HelloReply {
        HelloReply {
            version: PROTOCOL_VERSION,
            shard_count: self.shard_count,
            shard,
            node_name: self.node_name.clone(),
            eviction_number,
            limits: *limits,
            regions: self.regions.clone(),
            movers: vec![Mover { kind: MoverKind::Shm, endpoint: Vec::new() }],
        }
    }
}

#[cfg(test)]
mod tests;
