//! Random calls, losses and restarts: the session against real shards, all in memory.
//!
//! Safety at every step: the pages of a reservation that its owner may still write are never given
//! to another. Liveness after healing: nothing stays reserved, pinned or owed.

#![allow(clippy::unwrap_used, reason = "a test's own bookkeeping")]

mod world;

use proptest::prelude::*;
use world::World;

/// One random step. Numbers pick among what there is at that moment.
#[derive(Clone, Debug)]
enum Step {
    Reserve(Vec<u8>),
    Publish(usize),
    Abandon(usize, bool),
    Lookup(Vec<u8>),
    Release(usize),
    GiveUp(usize),
    Pump,
    ServerReads(usize),
    ClientReads(usize),
    ServerCuts(usize),
    ClientSeesEnd(usize),
    Wait(u64),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let keys = || prop::collection::vec(0_u8..10, 1..5);
    let pick = || 0_usize..8;
    prop_oneof![
        4 => keys().prop_map(Step::Reserve),
        5 => pick().prop_map(Step::Publish),
        2 => (pick(), any::<bool>()).prop_map(|(at, error)| Step::Abandon(at, error)),
        4 => keys().prop_map(Step::Lookup),
        2 => pick().prop_map(Step::Release),
        3 => pick().prop_map(Step::GiveUp),
        6 => Just(Step::Pump),
        6 => pick().prop_map(Step::ServerReads),
        4 => pick().prop_map(Step::ClientReads),
        1 => pick().prop_map(Step::ServerCuts),
        1 => pick().prop_map(Step::ClientSeesEnd),
        3 => prop_oneof![Just(1_000), Just(200_000), Just(6_000_000), Just(61_000_000)]
            .prop_map(Step::Wait),
        1 => prop_oneof![9 => Just(Step::Wait(0)), 1 => Just(Step::Restart)],
    ]
}

fn run(steps: &[Step]) {
    let mut world = World::new();
    for step in steps {
        match step {
            Step::Reserve(keys) => world.reserve(keys),
            Step::Publish(at) => world.publish(*at),
            Step::Abandon(at, after_error) => world.abandon(*at, *after_error),
            Step::Lookup(keys) => world.lookup(keys),
            Step::Release(at) => world.release(*at),
            Step::GiveUp(at) => world.give_up(*at),
            Step::Pump => world.pump(),
            Step::ServerReads(at) => world.server_reads(*at),
            Step::ClientReads(at) => world.client_reads(*at),
            Step::ServerCuts(at) => world.server_cuts(*at),
            Step::ClientSeesEnd(at) => world.client_sees_end(*at),
            Step::Wait(us) => world.wait(*us),
            Step::Restart => world.restart(),
        }
        world.check();
    }
    world.heal();
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 80,
        max_shrink_iters: 2_000,
        rng_seed: proptest::test_runner::RngSeed::Fixed(0x6d61_7275),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// R7, C31.
    #[test]
    fn no_ticket_is_lost_and_nothing_stays_reserved(
        steps in prop::collection::vec(step(), 20..200),
    ) {
        run(&steps);
    }
}
