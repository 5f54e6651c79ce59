//! A model check of the state machine: all states of one key that a few attempts, an operator, the
//! purge and the clock can reach.
//!
//! The model calls the shipped [`transition`](idempotent_core::transition::transition). Around it:
//!
//! * The **network** loses, duplicates, delays and reorders messages. A message that was sent stays
//!   in the network: the store may execute it at any time, any number of times, or never.
//! * An **attempt** may at any point take its next step late or never. Therefore a crash, a pause
//!   and a lost acknowledgment need no actions of their own. All attempts have sent their claims
//!   from the start, because a claim may arrive late.
//! * **Time** has few values. The clock goes forward and back by single steps, in any order, so
//!   each lease and each ttl may expire at any moment. A lease counts down with each step forward,
//!   and a step back does not make it longer.
//!
//! An [observer](observer) sees the messages and their outcomes and checks the invariants I1 to I6.
//! In addition, a claim in any state must be answered, or find the key held, one lease later.
//!
//! `MODEL=large cargo test -p tests --test stress model:: -- --nocapture` explores larger
//! configurations, in a few minutes.

#![allow(clippy::wildcard_enum_match_arm, reason = "most code here concerns one of many variants")]

use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

use self::{
    key::{Key, Seen},
    mutants::{CaughtBy, MUTANTS, Mutant},
    rules::{NO_OPS, SHIPPED},
    world::{Action, Config, Request, World},
};
use idempotent_core::Abandoned::{self, Hold, Retry};

mod key;
mod mutants;
mod observer;
mod rules;
mod world;

const THREADS: usize = 2;

const fn request(fingerprint: u8, abandoned: Abandoned) -> Request {
    Request { fingerprint, abandoned }
}

/// One client sends its request twice; another client reuses the key for a different request.
const RETRY: Config = Config {
    name: "two clients under `retry`",
    attempts: &[request(1, Retry), request(1, Retry), request(2, Retry)],
    transactions: false,
    operator: false,
    last_time: 3,
    states: 45_000,
};
const HOLD: Config = Config {
    name: "two clients under `hold`",
    attempts: &[request(1, Hold), request(1, Hold), request(2, Hold)],
    operator: true,
    states: 190_000,
    ..RETRY
};
const TRANSACTIONS: Config = Config {
    name: "two clients in transactions",
    attempts: &[request(1, Retry), request(1, Hold)],
    transactions: true,
    operator: true,
    states: 17_000,
    ..RETRY
};
/// The third client is served by another release, which has the policy `hold`.
const THREE: Config = Config {
    name: "three clients",
    attempts: &[request(1, Retry), request(1, Retry), request(1, Hold)],
    states: 45_000,
    ..RETRY
};

/// The configurations that every run explores.
const SMALL: [Config; 4] = [RETRY, HOLD, TRANSACTIONS, THREE];

/// The configurations that `MODEL=large` explores.
const LARGE: [Config; 6] = [
    Config { last_time: 6, ..RETRY },
    Config { last_time: 4, ..HOLD },
    Config { last_time: 4, ..TRANSACTIONS },
    Config { last_time: 4, operator: true, ..THREE },
    Config { name: "three clients in transactions", transactions: true, operator: true, ..THREE },
    Config {
        name: "three clients, four attempts",
        attempts: &[request(1, Retry), request(1, Retry), request(1, Hold), request(2, Retry)],
        ..THREE
    },
];

#[test]
fn the_invariants_hold_in_all_states() {
    let configs = if std::env::var("MODEL").is_ok_and(|size| size == "large") {
        LARGE.as_slice()
    } else {
        &SMALL
    };
    let mut unseen = Seen::ALL.to_vec();
    for config in configs {
        let started = Instant::now();
        let checker = Key::new(*config, SHIPPED).checker().threads(THREADS).spawn_bfs().join();
        let (states, steps) = (checker.unique_state_count(), checker.state_count());
        println!("{}: {states} states, {steps} steps, {:?}", config.name, started.elapsed());
        checker.assert_properties();
        assert!(states >= config.states, "{} has only {states} states", config.name);
        unseen.retain(|seen| checker.model().count(*seen) == 0);
    }
    assert!(unseen.is_empty(), "never seen: {unseen:?}");
}

/// The actions that lead to a state that breaks a property.
fn counterexample(model: Key, name: &'static str) -> Option<Vec<Action>> {
    let property = model.property(name);
    let found = HasDiscoveries::AnyOf([name].into());
    let checker = model.checker().finish_when(found).spawn_bfs().join();
    let steps = checker.discovery(name)?.into_vec();
    let holds = |step: &&(World, Option<Action>)| (property.condition)(checker.model(), &step.0);
    Some(steps.iter().take_while(holds).filter_map(|(_, action)| *action).collect())
}

#[test]
fn every_mutant_is_caught() {
    for Mutant { rules, config, caught_by } in MUTANTS {
        let model = Key::new(*config, *rules);
        match caught_by {
            CaughtBy::Property(name) => {
                let actions = counterexample(model, name);
                let actions = actions.unwrap_or_else(|| panic!("{} keeps {name}", rules.name));
                println!("{}: breaks {name:?} after {actions:?}", rules.name);
            }
            CaughtBy::Missing(seen) => {
                let checker = model.checker().threads(THREADS).spawn_bfs().join();
                assert_eq!(checker.model().count(*seen), 0, "{}: {seen:?}", rules.name);
                println!("{}: no {seen:?}", rules.name);
            }
        }
    }
}

#[test]
fn no_change_that_changes_nothing_is_caught() {
    for rules in NO_OPS {
        for config in [RETRY, TRANSACTIONS] {
            Key::new(config, *rules)
                .checker()
                .threads(THREADS)
                .spawn_bfs()
                .join()
                .assert_properties();
        }
    }
}
