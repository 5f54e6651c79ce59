//! Mutation tests: each guard of each statement and script is removed, and a detector must notice,
//! or an exhaustive check must prove that the store is correct without it.
//!
//! A detector must first find nothing on the shipped store and on every [no-op](no_ops) of it, and
//! it gets at most as many runs on a mutant as it had there. Mutants that were [proved] before are
//! not tried again.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use tokio::{sync::Semaphore, task::JoinSet};

use self::{
    backends::Backend,
    detectors::{DetectedBy, Detector},
    no_ops::NoOp,
    proved::Group,
};
use super::fixtures::Redis;

mod backends;
mod completeness;
mod damage;
mod detectors;
mod ended_keys;
mod interleavings;
#[cfg(feature = "mysql")]
mod locks;
#[cfg(feature = "mysql")]
mod mysql;
mod no_ops;
mod postgres;
mod proved;
mod purge_statements;
mod redis;
mod soundness;
mod sql_cases;
mod sql_operators;
mod sql_steps;
mod sqlite;
mod watch_lists;

/// The folders of the store in Postgres.
const POSTGRES: [&str; 2] = ["stores/sql/src", "stores/postgres/src"];
/// How many detectors run concurrently.
const CONCURRENT_JOBS: usize = 4;

/// A file with one guard replaced.
#[derive(Clone, Copy)]
pub(super) struct Mutant {
    file: &'static str,
    /// The text of the guard, which occurs once in the file.
    guard: &'static str,
    /// The replacement of the guard.
    replacement: &'static str,
    detected_by: DetectedBy,
}

const fn mutant(
    file: &'static str,
    guard: &'static str,
    replacement: &'static str,
    detected_by: DetectedBy,
) -> Mutant {
    Mutant { file, guard, replacement, detected_by }
}

impl Mutant {
    fn alter(&self, file: &str, text: &str) -> String {
        if file == self.file {
            text.replacen(self.guard, self.replacement, 1)
        } else {
            text.to_owned()
        }
    }

    fn name(&self) -> String {
        format!("{} with {:?} in place of {:?}", self.file, self.replacement, self.guard)
    }
}

/// The statements or scripts of a store under test.
#[derive(Clone, Copy)]
pub(super) enum Variant {
    /// Those that are shipped.
    Shipped,
    /// All of them are rewritten without a change of behavior.
    NoOp(NoOp),
    /// One of them lacks a guard.
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

/// A folder of the repository.
pub(super) fn folder(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)
}

/// The names of a folder's files, in order.
fn files(name: &str) -> Vec<String> {
    let files = std::fs::read_dir(folder(name)).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    // Rust modules lie beside the SQL.
    let is_step = |name: &String| [".sql", ".lua"].iter().any(|end| name.ends_with(end));
    let mut files: Vec<_> = names.filter(is_step).collect();
    files.sort_unstable();
    files
}

fn read(name: &str, file: &str) -> String {
    std::fs::read_to_string(folder(name).join(file)).unwrap()
}

/// Runs many futures, a few at a time.
async fn run_all<F>(jobs: impl Iterator<Item = F>) -> Vec<F::Output>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    let permits = Arc::new(Semaphore::new(CONCURRENT_JOBS));
    let jobs = jobs.map(|job| {
        let permits = permits.clone();
        async move {
            let _permit = permits.acquire_owned().await;
            job.await
        }
    });
    jobs.collect::<JoinSet<_>>().join_all().await
}

/// Runs the detectors on correct stores and then on every mutant, unless that was done with the
/// same sources. Fails with the names of the mutants that were not detected.
async fn assert_all_detected(
    group: Group,
    mutants: &'static [Mutant],
    backend: impl Future<Output = Backend>,
) {
    if group.is_proved() {
        return;
    }
    let backend = Arc::new(backend.await);
    let tries = soundness::assert_sound(&backend, mutants).await;
    let tried = run_all(mutants.iter().filter_map(|mutant| {
        let (backend, detector) = (backend.clone(), mutant.detected_by.detector()?);
        Some(async move {
            (mutant, detector, soundness::detect(&backend, detector, mutant, tries).await)
        })
    }))
    .await;
    let mut by: BTreeMap<_, (usize, usize)> = BTreeMap::new();
    for (_, detector, caught) in &tried {
        let (mutants, most) = by.entry(detector.name()).or_default();
        (*mutants, *most) = (*mutants + 1, (*most).max(caught.unwrap_or(tries)));
    }
    println!(
        "{} mutants; for each detector, its mutants and the most runs that it needed: {by:#?}",
        mutants.len()
    );
    for (mutant, _, caught) in &tried {
        if caught.is_some_and(|runs| runs > tries / 3) {
            println!("needed {caught:?} of {tries} runs: {}", mutant.name());
        }
    }
    let missed: Vec<_> = tried
        .iter()
        .filter(|(.., caught)| caught.is_none())
        .map(|(mutant, ..)| mutant.name())
        .collect();
    assert!(missed.is_empty(), "not detected: {missed:#?}");
    group.record(mutants.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_mutant_of_the_sqlite_statements_is_detected() {
    let group = Group::new("sqlite", &["stores/sql/src", "stores/sqlite/src"]);
    assert_all_detected(group, sqlite::mutants(), async { Backend::Sqlite }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_mutant_of_the_postgres_statements_is_detected() {
    let group = Group::new("postgres", &POSTGRES);
    assert_all_detected(group, postgres::mutants(), Backend::postgres()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_mutant_of_the_postgres_statements_for_batches_is_detected() {
    let group = Group::new("postgres, in batches", &POSTGRES);
    let mutants = postgres::batch_statements::MUTANTS;
    assert_all_detected(group, mutants, Backend::postgres_in_batches()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_mutant_of_the_redis_scripts_is_detected() {
    let group = Group::new("redis", &["stores/redis/src"]);
    assert_all_detected(group, redis::MUTANTS, async { Backend::Redis(Redis::start()) }).await;
}

#[cfg(feature = "mysql")]
mod in_mysql {
    use super::*;

    const FOLDERS: [&str; 2] = ["stores/sql/src", "stores/mysql/src"];

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn every_mutant_of_the_statements_is_detected() {
        let group = Group::new("mysql", &FOLDERS);
        assert_all_detected(group, mysql::mutants(), Backend::mysql(false)).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn every_mutant_of_the_statements_for_batches_is_detected() {
        let group = Group::new("mysql, in batches", &FOLDERS);
        let mutants = mysql::batch_statements::MUTANTS;
        assert_all_detected(group, mutants, Backend::mysql(true)).await;
    }
}
