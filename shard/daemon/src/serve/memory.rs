//! The pool's memory: planned, made, and taken before anybody can connect.

use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use maru_plan::{Plan, PlanRequest, RegionKind as PlanKind, plan_simple};
use maru_region::{Region, RegionError, RegionKind, RegionSpec};
use maru_wire::RegionInfo;
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::error::StartError;
use super::probe::probe;
use super::shards::spawn;
use super::signals::Signals;
use crate::config::{Config, Size};

/// Time between two lines about the progress of taking memory.
const PROGRESS_PERIOD: Duration = Duration::from_secs(2);
/// How long a server waits at its start for memory that others hold.
const MEMORY_WAIT: Duration = Duration::from_secs(10);
/// How often it looks meanwhile.
const MEMORY_POLL: Duration = Duration::from_millis(100);

/// Plans shards and regions for the cores that this process may use.
pub(crate) fn plan(config: &Config) -> Result<Plan, StartError> {
    let kind = match config.huge_pages.bytes() {
        None => PlanKind::Memfd,
        Some(page_bytes) => PlanKind::HugePages { page_bytes },
    };
    let plan = plan_simple(&PlanRequest {
        shards: config.shards,
        allowed_cpus: &maru_numa::allowed_cpus(),
        pool_bytes: config.pool_bytes,
        page_bytes: config.page_bytes,
        kind,
    })?;
    for warning in &plan.warnings {
        tracing::warn!("plan: {warning}");
    }
    Ok(plan)
}

/// Describes the plan's regions as clients see them.
pub(crate) fn infos(plan: &Plan) -> Vec<RegionInfo> {
    let info = |region: &maru_plan::RegionPlan| RegionInfo {
        region: region.region,
        kind: match region.kind {
            PlanKind::Memfd => maru_wire::RegionKind::Memfd,
            PlanKind::HugePages { .. } => maru_wire::RegionKind::HugePages,
        },
        node: region.node.and_then(|node| i32::try_from(node).ok()).unwrap_or(-1),
        bytes: region.bytes,
    };
    plan.regions.iter().map(info).collect()
}

/// Makes the regions, takes their memory and tries it. `None`: a signal came first.
pub(crate) fn take(
    config: &Config,
    plan: &Plan,
    signals: &Signals,
) -> Result<Option<Vec<Region>>, StartError> {
    let made = wait_for_memory(|| create(config, plan), |wait| signals.come_within(wait))?;
    let Some(regions) = made else {
        tracing::info!("ended before there was memory for the pool");
        return Ok(None);
    };
    let done = EventFd::from_flags(EfdFlags::EFD_CLOEXEC).map_err(StartError::system("eventfd"))?;
    let done = Arc::new(done);
    let outcome = Arc::new(Mutex::new(None));
    let page_bytes = plan.page_bytes;
    let (bell, slot) = (Arc::clone(&done), Arc::clone(&outcome));
    spawn("memory".to_owned(), move || {
        let populated = populate(&regions).map_err(StartError::from);
        let usable = populated.and_then(|()| Ok(probe(&regions, page_bytes)?));
        *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(usable.map(|()| regions));
        bell.write(1).expect("the counter is 0 before");
    })?;
    if signals.come_before(done.as_fd())? {
        tracing::info!("ended before the pool was ready");
        return Ok(None);
    }
    let usable = outcome.lock().unwrap_or_else(PoisonError::into_inner).take();
    Ok(Some(usable.expect("set before the bell rang")?))
}

/// Calls `make` until there is memory, for a while: a killed run's memory is free only once its
/// clients have dropped their maps of it. `has_signal` waits; `None`: a signal came first.
fn wait_for_memory<T>(
    mut make: impl FnMut() -> Result<T, RegionError>,
    mut has_signal: impl FnMut(Duration) -> Result<bool, StartError>,
) -> Result<Option<T>, StartError> {
    let mut waited = Duration::ZERO;
    loop {
        match make() {
            Ok(made) => return Ok(Some(made)),
            Err(error) if error.may_pass() && waited < MEMORY_WAIT => {
                if waited.is_zero() {
                    tracing::warn!(
                        "waiting up to {} s for memory, which clients of the last run may still \
                         hold: {error}",
                        MEMORY_WAIT.as_secs()
                    );
                }
            }
            Err(error) => return Err(error.into()),
        }
        if has_signal(MEMORY_POLL)? {
            return Ok(None);
        }
        waited += MEMORY_POLL;
    }
}

fn create(config: &Config, plan: &Plan) -> Result<Vec<Region>, RegionError> {
    let spec = |region: &maru_plan::RegionPlan| RegionSpec {
        region: region.region,
        kind: match region.kind {
            PlanKind::Memfd => RegionKind::Memfd,
            PlanKind::HugePages { page_bytes } => RegionKind::HugePages { page_bytes },
        },
        bytes: region.bytes,
        node: region.node,
        name: format!("maru-{}-{}", config.pool_id, region.region),
    };
    plan.regions.iter().map(|region| Region::create(&spec(region))).collect()
}

fn populate(regions: &[Region]) -> Result<(), RegionError> {
    for region in regions {
        let (number, total) = (region.spec().region, region.bytes());
        let told = std::cell::Cell::new(Instant::now());
        let populated = region.populate(&|bytes| {
            if told.get().elapsed() >= PROGRESS_PERIOD {
                told.set(Instant::now());
                tracing::info!(region = number, taken = %Size(bytes), total = %Size(total), "taking memory");
            }
        })?;
        if let Some(errno) = populated.placement_refused {
            tracing::warn!(region = number, errno, "memory is not on the node that was planned");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
