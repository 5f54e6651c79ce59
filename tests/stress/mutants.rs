//! Each guard of each statement and script is removed: a detector must notice.
//!
//! A detector counts only if it has passed the shipped store and every [no-op](no_ops) before, and
//! it gets no more tries at a mutant than it has passed there.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use tokio::{sync::Semaphore, task::JoinSet};

use self::{
    backends::Backend,
    caught::{Caught, Detector},
    no_ops::NoOp,
};
use super::fixtures::Redis;

mod backends;
mod caught;
mod completeness;
mod no_ops;
mod postgres;
mod redis;
mod soundness;
mod sqlite;

/// How many detectors run at once.
const AT_ONCE: usize = 4;

/// A guard, and the file without it.
pub(super) struct Mutant {
    file: &'static str,
    /// The guard's text, which occurs once in the file.
    guard: &'static str,
    /// Its replacement.
    instead: &'static str,
    caught: Caught,
}

const fn mutant(
    file: &'static str,
    guard: &'static str,
    instead: &'static str,
    caught: Caught,
) -> Mutant {
    Mutant { file, guard, instead, caught }
}

impl Mutant {
    fn alter(&self, file: &str, text: &str) -> String {
        if file == self.file { text.replacen(self.guard, self.instead, 1) } else { text.to_owned() }
    }

    fn name(&self) -> String {
        format!("{} with {:?} in place of {:?}", self.file, self.instead, self.guard)
    }
}

/// Which statements or scripts a store has.
#[derive(Clone, Copy)]
pub(super) enum Variant {
    /// The shipped ones.
    Shipped,
    /// All of them rewritten without a change in meaning.
    NoOp(NoOp),
    /// One of them without a guard.
    Mutant(&'static Mutant),
}

impl Variant {
    fn alter(self, file: &str, text: &str) -> String {
        match self {
            Self::Shipped => text.to_owned(),
            Self::NoOp(no_op) => no_op.alter(file, text),
            Self::Mutant(mutant) => mutant.alter(file, text),
        }
    }
}

fn folder(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../idempotent-core/src").join(name)
}

/// The names of a folder's files, in order.
fn files(name: &str) -> Vec<String> {
    let files = std::fs::read_dir(folder(name)).unwrap();
    let mut files: Vec<_> =
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    files.sort_unstable();
    files
}

fn read(name: &str, file: &str) -> String {
    std::fs::read_to_string(folder(name).join(file)).unwrap()
}

/// Runs many futures, a few at a time.
async fn all<F>(jobs: impl Iterator<Item = F>) -> Vec<F::Output>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    let at_once = Arc::new(Semaphore::new(AT_ONCE));
    let jobs = jobs.map(|job| {
        let at_once = at_once.clone();
        async move {
            let _turn = at_once.acquire_owned().await;
            job.await
        }
    });
    jobs.collect::<JoinSet<_>>().join_all().await
}

/// Proves the detectors sound, tries every mutant, and fails with the names of those that no
/// detector noticed.
async fn all_are_caught(backend: Backend, mutants: &'static [Mutant]) {
    let backend = Arc::new(backend);
    let tries = soundness::prove(&backend, mutants).await;
    let tried = all(mutants.iter().filter_map(|mutant| {
        let (backend, detector) = (backend.clone(), mutant.caught.by()?);
        Some(async move {
            (mutant, detector, soundness::catch(&backend, detector, mutant, tries).await)
        })
    }))
    .await;
    let mut by: BTreeMap<_, (usize, usize)> = BTreeMap::new();
    for (_, detector, caught) in &tried {
        let (mutants, most) = by.entry(detector.name()).or_default();
        (*mutants, *most) = (*mutants + 1, (*most).max(caught.unwrap_or(tries)));
    }
    println!(
        "{} mutants; by detector, how many it caught and the most runs it needed: {by:#?}",
        mutants.len()
    );
    let missed: Vec<_> = tried
        .iter()
        .filter(|(.., caught)| caught.is_none())
        .map(|(mutant, ..)| mutant.name())
        .collect();
    assert!(missed.is_empty(), "not noticed: {missed:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_guard_of_the_sqlite_statements_is_missed() {
    all_are_caught(Backend::Sqlite, sqlite::MUTANTS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_guard_of_the_postgres_statements_is_missed() {
    all_are_caught(Backend::postgres().await, postgres::MUTANTS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_guard_of_the_redis_scripts_is_missed() {
    all_are_caught(Backend::Redis(Redis::start()), redis::MUTANTS).await;
}
