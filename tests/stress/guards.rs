//! Each guard of the state machine, of the memory store, and of the completions in Redis that need
//! no script is removed, one at a time, and a unit test must fail. `docs/guards.md` says what
//! counts as a guard, and where those of the statements and scripts are.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use self::{copy::Copy, switches::Guard};

mod copy;
mod switches;

/// A crate with guards.
struct Source {
    package: &'static str,
    folder: &'static str,
    features: &'static str,
    files: &'static [&'static str],
    /// The unit tests that notice: the fastest first, and last those that are not always the same.
    tests: &'static [&'static str],
    /// Guards without which it is correct too: their code, and what they become.
    redundant: &'static [(&'static str, &'static str)],
}

const CORE: Source = Source {
    package: "idempotent-core",
    folder: "idempotent-core",
    features: "memory,conformance",
    files: &[
        "transition.rs",
        "transition/events.rs",
        "transition/operators.rs",
        "record.rs",
        "store/memory/shard.rs",
        "store/memory/shares.rs",
        "store/memory/administration.rs",
        "store/memory/audit_log.rs",
    ],
    tests: &[
        "transition::table",
        "store::memory::tests",
        "store::memory::administration",
        "store::memory::audit_log",
        "store::memory::conforms",
        "transition::histories",
    ],
    redundant: REDUNDANT,
};

/// The conditions of the scripts are in `mutants`.
const REDIS: Source = Source {
    package: "idempotent-redis",
    folder: "stores/redis",
    features: "internals",
    files: &["engine/first_claims.rs", "engine/conditional_set.rs"],
    tests: &["engine::first_claims", "engine::conditional_set"],
    redundant: &[],
};

const REDUNDANT: &[(&str, &str)] = &[
    // These save a copy of empty bytes,
    ("steps.is_empty()", "false"),
    ("note.step.is_empty()", "false"),
    // a walk through the shards,
    ("self.capacity.inputs.load(Ordering::Relaxed) > 0", "true"),
    ("self.capacity.inputs.load(Ordering::Relaxed) > 0", "the other boundary"),
    ("self.inputs.fetch_sub(old.inputs, Ordering::Relaxed);", "nothing"),
    ("!record.notes.input.is_empty()", "true"),
    // a walk through a shard,
    ("self.capacity.admits(principal).is_err()", "true"),
    // a change of the counts by nothing,
    ("old != new", "true"),
    // the turns of other tasks,
    ("shard % SHARDS_A_TURN == 0", "true"),
    ("shard % SHARDS_A_TURN == 0", "false"),
    // and the memory of principals without records.
    ("used.get().records == 0", "false"),
    ("used.remove();", "nothing"),
];

#[test]
fn a_test_notices_each_guard_of_the_state_machine_that_is_removed() {
    assert_all_noticed(&CORE);
}

#[test]
fn a_test_notices_each_guard_of_completions_in_redis_that_is_removed() {
    assert_all_noticed(&REDIS);
}

fn assert_all_noticed(of: &Source) {
    let copy = Copy::new(of);
    for tests in of.tests {
        assert_eq!(copy.failed_test(tests, None), None, "a test fails with all guards");
    }
    let next = AtomicUsize::new(0);
    let check = || {
        let mut noticed = Vec::new();
        loop {
            let guard = next.fetch_add(1, Ordering::Relaxed);
            if guard >= copy.guards.len() {
                return noticed;
            }
            let by = of.tests.iter().find_map(|tests| copy.failed_test(tests, Some(guard)));
            noticed.push((guard, by));
        }
    };
    let noticed: Vec<_> = thread::scope(|scope| {
        let workers = [(); 2].map(|()| scope.spawn(check));
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    let mut by_test = BTreeMap::<_, usize>::new();
    let (mut missed, mut redundant) = (Vec::new(), BTreeSet::new());
    for (guard, by) in noticed {
        let Guard { place, code, removal } = &copy.guards[guard];
        match by {
            Some(test) => *by_test.entry(test).or_default() += 1,
            None if of.redundant.contains(&(code, removal)) => {
                redundant.insert((code.as_str(), *removal));
            }
            None => missed.push(format!("{place}: `{code}`, which becomes {removal}")),
        }
    }
    missed.sort();
    println!("{} guards; for each test, how many it notices: {by_test:#?}", copy.guards.len());
    assert!(missed.is_empty(), "no test notices that these guards are removed: {missed:#?}");
    let known: BTreeSet<_> = of.redundant.iter().copied().collect();
    assert_eq!(redundant, known, "the list of redundant guards is out of date");
}
