//! Deliberate breaks of the shipped code, each of which the simulation must find.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

/// The file with the results of the last run of all breaks.
const RESULTS: &str = "tests/simulation/BREAKS.md";

/// A change of one file that breaks it.
pub(crate) struct Break {
    what: &'static str,
    file: &'static str,
    /// This text, which occurs once in the file,
    text: &'static str,
    /// is replaced by this one.
    broken: &'static str,
    /// Within how many seeds the simulation finds it.
    seeds: u64,
}

pub(crate) const BREAKS: &[Break] = &[
    Break {
        what: "runtime: the response of a fenced attempt is sent",
        file: "idempotent-core/src/runtime/attempt/claimed.rs",
        text: "AttemptOutcome::Fenced(successor.await)",
        broken: "{ drop(successor); AttemptOutcome::Stored }",
        seeds: 2_000,
    },
    Break {
        what: "runtime: an unacknowledged commit counts as committed",
        file: "idempotent-core/src/runtime/attempt/claimed.rs",
        text: "AttemptOutcome::NotCommitted { transient: error.is_transient() }\n            }",
        broken: "AttemptOutcome::Stored\n            }",
        seeds: 2_000,
    },
    Break {
        what: "runtime: leases are not renewed",
        file: "idempotent-core/src/runtime/renewer.rs",
        text: "        let (together, isolated) = \
               self.leases.take_due(self.store.environment().now());\n",
        broken: "        let (together, isolated): (Option<RenewBatch>, Vec<RenewBatch>) = \
                 (None, Vec::new());\n        \
                 let _ = self.leases.take_due(self.store.environment().now());\n",
        seeds: 20_000,
    },
    Break {
        what: "runtime: the end of an attempt that the store failed to store is dropped",
        file: "idempotent-core/src/runtime/deferred/retry.rs",
        text: "        let id = self.end.id;\n        let (mut pause",
        broken: "        if self.end.attempt > 0 {\n            return;\n        }\n        \
                 let id = self.end.id;\n        let (mut pause",
        seeds: 20_000,
    },
    Break {
        what: "runtime: a fenced response is replayed from memory while the store fails",
        file: "idempotent-core/src/runtime/deferred/end.rs",
        text: "matches!(self, Self::FoundFenced | Self::Fenced)",
        broken: "matches!(self, Self::Fenced)",
        seeds: 200_000,
    },
    Break {
        what: "runtime: a key that is claimed in a transaction stays claimed in its process",
        file: "idempotent-core/src/runtime/open_claims.rs",
        text: "        self.open.keys.lock().unwrap_or_else(PoisonError::into_inner)\
               .remove(&self.id);\n",
        broken: "",
        seeds: 200,
    },
    Break {
        what: "runtime: a duplicate that has waited still counts as waiting",
        file: "idempotent-core/src/runtime/waiters.rs",
        text: "        self.waiters.total.fetch_sub(1, Ordering::SeqCst);\n",
        broken: "",
        seeds: 2_000,
    },
    Break {
        what: "runtime: a record that changes between two claims counts as another request",
        file: "idempotent-core/src/runtime/claims.rs",
        text: "if self.options.fingerprint_keys.matches(recorded, *digest) =>",
        broken: "if false && self.options.fingerprint_keys.matches(recorded, *digest) =>",
        seeds: 400_000,
    },
    Break {
        what: "HTTP layer: the handler ends when its client disconnects",
        file: "idempotent-actix/src/run/response.rs",
        text: "            detach(future, self.span.clone());",
        broken: "            drop(future);",
        seeds: 20_000,
    },
    Break {
        what: "HTTP layer: the effects of a failed operation are committed",
        file: "idempotent-actix/src/run/transaction.rs",
        text: "response.status().as_u16() >= 400",
        broken: "response.status().as_u16() >= 500",
        seeds: 200,
    },
    Break {
        what: "HTTP layer: the body is not part of the fingerprint",
        file: "idempotent-actix/src/request/reading.rs",
        text: "                digester.update(&chunk);",
        broken: "                let _ = &digester;",
        seeds: 200,
    },
    Break {
        what: "HTTP layer: all users share their keys",
        file: "idempotent-actix/src/run/identity.rs",
        text: "        let (namespace, name) = \
               (self.idempotency.namespace_of(self.operation), self.name());\n",
        broken: "        let (namespace, name) = \
                 (self.idempotency.namespace_of(self.operation), self.name());\n        \
                 let scope = if true { &*crate::scope::GLOBAL } else { scope };\n",
        seeds: 200,
    },
    Break {
        what: "HTTP layer: a key that was used for another request stays in flight",
        file: "idempotent-actix/src/run.rs",
        text: "refusals.refuse(ProblemKind::KeyReused, RequestOutcome::KeyReused)",
        broken: "refusals.in_flight(std::time::Duration::ZERO, None)",
        seeds: 200,
    },
    Break {
        what: "HTTP layer: a handler that panicked releases its key under `hold`",
        file: "idempotent-actix/src/run/attempt.rs",
        text: "match attempt.abandon(policy).await {",
        broken: "match attempt.release().await {",
        seeds: 20_000,
    },
    Break {
        what: "state machine: a completion passes whoever owns the key",
        file: "idempotent-core/src/transition.rs",
        text: "match record.filter(|record| record.owner == owner) {",
        broken: "match record.filter(|record| record.owner == owner || true) {",
        seeds: 2_000,
    },
    Break {
        what: "state machine: another request takes over an abandoned key",
        file: "idempotent-core/src/transition.rs",
        text: "if record.fingerprint != claim.fingerprint {",
        broken: "if record.fingerprint != claim.fingerprint && !record.lease_expired(now) {",
        seeds: 2_000,
    },
    Break {
        what: "state machine: a held key runs again after its ttl",
        file: "idempotent-core/src/record.rs",
        text: "RecordState::Held => false,",
        broken: "RecordState::Held => true,",
        seeds: 2_000,
    },
    Break {
        what: "Redis store: the ttl of a recording counts from the sending of the claim",
        file: "stores/redis/src/engine/first_claims.rs",
        text: "millis(now.duration_since(self.granted))",
        broken: "millis(now.duration_since(self.sent))",
        seeds: 200,
    },
    Break {
        what: "memory store: a purge removes what is not expired",
        file: "idempotent-core/src/store/memory/shard.rs",
        text: "            Change::Keep => false,\n            Change::Put(shortened)",
        broken: "            Change::Keep => record.attempt > 1,\n            \
                 Change::Put(shortened)",
        seeds: 20_000,
    },
    Break {
        what: "memory store: a renewal is not stored",
        file: "idempotent-core/src/store/memory.rs",
        text: "self.step(&id, |record, now| transition::renew(record, owner, renewal.extend, now))",
        broken: "self.step(&id, |record, now| (Change::Keep, transition::renew(record, owner, \
                 renewal.extend, now).1))",
        seeds: 200,
    },
];

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

impl Break {
    /// The file as it is shipped, and as it is broken.
    fn texts(&self) -> (String, String) {
        let shipped = fs::read_to_string(root().join(self.file)).expect("the file to break");
        let found = shipped.matches(self.text).count();
        assert_eq!(found, 1, "{}: {:?} occurs {found} times", self.what, self.text);
        (shipped.clone(), shipped.replacen(self.text, self.broken, 1))
    }
}

/// Breaks a copy of the repository in each way, and runs the simulation with it until it finds a
/// violation. Returns whether it found each one, and nothing in the shipped code.
pub(crate) fn run_all() -> bool {
    let copy = root().join("target/breaks");
    fs::create_dir_all(&copy).expect("a folder in `target`");
    // With new times (`-m`), so that cargo does not use what an earlier run has compiled.
    let list =
        "git ls-files -co --exclude-standard -z | tar --null -T - -c | tar -xm -C target/breaks";
    shell(&root(), list);
    let mut table = String::from(
        "# What the simulation finds\n\n\
         Each row is a deliberate break of the shipped code. The seeds begin at 0. Written by\n\
         `cargo run --release -p simulation -- --breaks`.\n\n\
         | break | found by seed | as |\n|---|---|---|\n",
    );
    let shipped = simulate(&copy, 20_000).expect("the shipped code compiles");
    let mut all = shipped.is_none();
    println!("shipped code: {shipped:?}");
    for one in BREAKS {
        let (shipped, broken) = one.texts();
        let file = copy.join(one.file);
        fs::write(&file, broken).expect("a file of the copy");
        let started = Instant::now();
        let found = simulate(&copy, one.seeds);
        fs::write(&file, shipped).expect("a file of the copy");
        let row = match &found {
            Ok(Some((seed, violation))) => {
                let start: String = violation.chars().take(90).collect();
                let violation = start.rsplit_once(' ').map_or(&*start, |(words, _)| words);
                format!("| {} | {seed} of {} | {violation}… |", one.what, one.seeds)
            }
            Ok(None) => format!("| {} | **not found** in {} | |", one.what, one.seeds),
            Err(error) => format!("| {} | **does not compile** | {error} |", one.what),
        };
        println!("{row} ({:.0} s)", started.elapsed().as_secs_f64());
        all &= matches!(found, Ok(Some(_)));
        table.push_str(&row);
        table.push('\n');
    }
    fs::write(root().join(RESULTS), table).expect("the file of results");
    all
}

/// Runs this many histories with the code in `copy`; returns the first violation.
fn simulate(copy: &Path, seeds: u64) -> Result<Option<(u64, String)>, String> {
    let arguments = ["run", "--release", "--quiet", "-p", "simulation", "--"];
    let output = Command::new("cargo")
        .args(arguments)
        .args(["--seeds", &seeds.to_string(), "--until-found"])
        .current_dir(copy)
        .env("CARGO_TARGET_DIR", copy.join("../breaks-target"))
        .env("RUSTFLAGS", "-Awarnings")
        .output()
        .map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !text.contains(" histories in ") {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(errors.lines().take(5).collect::<Vec<_>>().join(" "));
    }
    let found = text.lines().filter_map(|line| line.strip_prefix("seed ")?.split_once(": "));
    let found = found.filter_map(|(seed, what)| Some((seed.parse().ok()?, what.to_owned())));
    Ok(found.min_by_key(|(seed, _): &(u64, String)| *seed))
}

fn shell(directory: &Path, command: &str) {
    let status = Command::new("sh").args(["-c", command]).current_dir(directory).status();
    assert!(status.is_ok_and(|status| status.success()), "{command}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_break_changes_one_place_of_a_file() {
        for one in BREAKS {
            let (shipped, broken) = one.texts();
            assert_ne!(shipped, broken, "{}", one.what);
        }
    }
}
