//! The client behind its handle: identity, the ring thread's start and end, the server's shape.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use maru_session::{Channel, Failure, Layout, LinkId, Session, SessionConfig, SessionLimits};
use maru_wire::{Generation, Incarnation, Namespace};

use crate::attach::{AttachConfig, AttachError, Attacher};
use crate::deadline::{Deadline, micros};
use crate::shared::{Phase, Shared, lock};
use crate::{Attachment, ClientConfig, Error, ServerAddress, ring};

/// Everything that a client, its reservations and its leases share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) config: ClientConfig,
    pub(crate) namespace: Namespace,
    pub(crate) incarnation: Incarnation,
    pub(crate) shared: Arc<Shared>,
    pub(crate) attacher: Arc<Attacher>,
    session_config: SessionConfig,
    /// The process that made it.
    owner: u32,
}

/// One for a past generation's attachment, one for the present one's.
const ATTACH_ATTEMPTS: usize = 2;

/// How often a caller looks again while shards and regions show different runs of the server.
const RUN_CHANGE_POLL: Duration = Duration::from_millis(2);

/// The first link, which tells the server's shape.
pub(crate) const FIRST_LINK: LinkId = LinkId { channel: Channel::Data, shard: 0 };

impl Inner {
    pub(crate) fn new(config: ClientConfig) -> Result<Self, Error> {
        config.check()?;
        let owner = std::process::id();
        let mut random = [0_u8; 64];
        getrandom::fill(&mut random)
            .map_err(|error| Error::Start { reason: format!("no random bytes: {error}") })?;
        let (seed, rest) = random.split_at(32);
        let mut incarnation = [0; 16];
        incarnation[..4].copy_from_slice(&owner.to_le_bytes());
        incarnation[4..].copy_from_slice(&rest[..12]);
        let incarnation = Incarnation(incarnation);
        let namespace = Namespace::new(&config.namespace);
        let mut session_seed = [0; 32];
        session_seed.copy_from_slice(seed);
        let session_config = SessionConfig {
            incarnation,
            namespace,
            namespace_name: config.namespace.clone(),
            node_name: config.node_name.clone(),
            pool_list_digest: [0; 32],
            secret: config.secret.clone(),
            transfer_timeout_us: micros(config.transfer_timeout),
            object_bytes_max: config.object_bytes_max.max(1),
            seed: session_seed,
            limits: SessionLimits {
                handshake_timeout_us: micros(config.control_timeout),
                retry_period_us: micros(config.retry_period),
                ..SessionLimits::default()
            },
        };
        let session = Session::new(session_config.clone());
        let shared = Arc::new(Shared::new(config.requests_max, session));
        let attacher = Arc::new(Attacher::new());
        Ok(Self { config, namespace, incarnation, shared, attacher, session_config, owner })
    }

    /// Refuses a forked child before it touches a lock that no thread of it will ever release.
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        if self.is_forked() { Err(Error::Forked { owner: self.owner }) } else { Ok(()) }
    }

    pub(crate) fn is_forked(&self) -> bool {
        std::process::id() != self.owner
    }

    /// Starts the ring thread if it does not run.
    pub(crate) fn ensure_running(&self, deadline: Deadline) -> Result<(), Error> {
        self.check_process()?;
        let mut phase = lock(&self.shared.phase);
        let mut is_mine = false;
        loop {
            match &mut *phase {
                Phase::Running(_) => return Ok(()),
                Phase::Closed => return Err(Error::Closed),
                Phase::Failed(reason) if is_mine => {
                    return Err(Error::Start { reason: reason.clone() });
                }
                Phase::Idle | Phase::Failed(_) => {
                    is_mine = true;
                    ring::spawn(&self.config, &self.shared)
                        .map_err(|error| Error::Start { reason: error.to_string() })?;
                    *phase = Phase::Starting;
                }
                Phase::Starting => {
                    is_mine = true;
                    let wait = deadline.at.saturating_duration_since(Instant::now());
                    if wait.is_zero() {
                        return Err(self.timeout(deadline));
                    }
                    let waited = self.shared.phase_changed.wait_timeout(phase, wait);
                    phase = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }

    /// Returns the server's shape, connecting if need be.
    pub(crate) fn layout(&self, deadline: Deadline) -> Result<Arc<Layout>, Failure> {
        match self.shared.layout() {
            Some(layout) => Ok(layout),
            None => self.refresh(deadline),
        }
    }

    /// Connects to the first shard if it is not connected, and returns what it says.
    pub(crate) fn refresh(&self, deadline: Deadline) -> Result<Arc<Layout>, Failure> {
        self.reach(FIRST_LINK, deadline)?;
        self.shared.layout().ok_or(Failure::Disconnected)
    }

    /// Runs `call` on the present shape; once more when the server turned out to be a new one.
    pub(crate) fn with_layout<T>(
        &self,
        deadline: Deadline,
        mut call: impl FnMut(&Arc<Layout>) -> Result<T, Failure>,
    ) -> Result<T, Error> {
        self.ensure_running(deadline)?;
        let result = self.layout(deadline).and_then(|layout| call(&layout)).or_else(|failure| {
            if failure != Failure::Stale {
                return Err(failure);
            }
            self.refresh(deadline).and_then(|layout| call(&layout))
        });
        result.map_err(|failure| self.error(failure, deadline))
    }

    /// Whether the server is another run than `generation`, as far as is known.
    pub(crate) fn is_stale(&self, generation: Generation) -> bool {
        self.shared.layout().is_none_or(|layout| layout.generation != generation)
    }

    /// Returns the attachment to the generation of `layout`, making it if need be.
    ///
    /// Fails with `Stale` when the regions are of another generation than the shards.
    pub(crate) fn attachment(
        &self,
        layout: &Layout,
        deadline: Deadline,
    ) -> Result<Arc<Attachment>, Error> {
        let ServerAddress::Unix(path) = &self.config.address else {
            return Err(Error::NotLocal { server: self.server() });
        };
        let config = AttachConfig {
            path: path.clone(),
            session: self.session_config.clone(),
            timeout: self.config.control_timeout,
            retry_period: self.config.retry_period,
        };
        for _ in 0..ATTACH_ATTEMPTS {
            let attachment = self.attacher.get(&config, deadline).map_err(|error| match error {
                AttachError::Timeout => self.timeout(deadline),
                AttachError::Closed => Error::Closed,
                AttachError::Fault(fault) => Error::Attach { server: self.server(), fault },
            })?;
            if attachment.generation() == layout.generation {
                return Ok(attachment);
            }
            // One of the two is of a past run. If it is this one, the next is right.
            self.attacher.forget(&attachment);
        }
        Err(self.error(Failure::Stale, deadline))
    }

    /// Returns the server's shape and the attachment to it, of one generation.
    pub(crate) fn attached(
        &self,
        deadline: Deadline,
    ) -> Result<(Arc<Layout>, Arc<Attachment>), Error> {
        if !self.is_local() {
            return Err(Error::NotLocal { server: self.server() });
        }
        self.ensure_running(deadline)?;
        let fail = |failure| self.error(failure, deadline);
        let mut layout = self.layout(deadline).map_err(fail)?;
        loop {
            match self.attachment(&layout, deadline) {
                // Until the end of the old run is seen on every connection.
                Err(Error::Failed { failure: Failure::Stale, .. }) if !deadline.is_over() => {
                    let seen = self.shared.progress();
                    let until = deadline.at.min(Instant::now() + RUN_CHANGE_POLL);
                    self.shared.await_progress(seen, until);
                    layout = self.refresh(deadline).map_err(fail)?;
                }
                attached => return Ok((layout, attached?)),
            }
        }
    }

    pub(crate) fn server(&self) -> String {
        self.config.address.to_string()
    }

    pub(crate) fn timeout(&self, deadline: Deadline) -> Error {
        Error::Timeout { server: self.server(), deadline: deadline.given }
    }

    pub(crate) fn error(&self, failure: Failure, deadline: Deadline) -> Error {
        let server = self.server();
        match failure {
            Failure::Timeout => self.timeout(deadline),
            Failure::Unreachable(fault) => Error::Unreachable { server, fault },
            Failure::Refused(refusal) => Error::Refused { server, refusal },
            Failure::Busy => Error::Busy { requests_max: self.config.requests_max },
            _ => Error::Failed { server, failure },
        }
    }

    pub(crate) fn is_local(&self) -> bool {
        matches!(self.config.address, ServerAddress::Unix(_))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.is_forked() {
            return;
        }
        self.attacher.close();
        self.shared.is_stopping.store(true, Ordering::Release);
        self.shared.wake();
        // The thread gives its tickets back first; it ends within the control timeout.
        let until = Instant::now() + self.config.control_timeout * 2;
        let mut phase = lock(&self.shared.phase);
        while matches!(*phase, Phase::Running(_) | Phase::Starting) {
            let wait = until.saturating_duration_since(Instant::now());
            if wait.is_zero() {
                return;
            }
            let waited = self.shared.phase_changed.wait_timeout(phase, wait);
            phase = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
