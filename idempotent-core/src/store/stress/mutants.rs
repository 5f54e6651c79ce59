//! Each guard of each statement and script, taken out: something must notice.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use tokio::{sync::Semaphore, task::JoinSet, time::timeout};

use self::{backends::Backend, caught::Caught};
use super::grounds::Redis;

mod backends;
mod caught;
mod completeness;
mod postgres;
mod redis;
mod sqlite;

/// How many are tried at once.
const AT_ONCE: usize = 4;
/// How long one is tried; most are caught in a fraction of a second.
const PATIENCE: Duration = Duration::from_secs(60);

/// A guard, and the file without it.
pub(super) struct Mutant {
    file: &'static str,
    /// What stands in the file, once.
    guard: &'static str,
    /// What stands in its place.
    instead: &'static str,
    caught: Caught,
}

const fn mutant(file: &'static str, guard: &'static str, instead: &'static str, caught: Caught) -> Mutant {
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

fn folder(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(name)
}

fn read(name: &str, file: &str) -> String {
    std::fs::read_to_string(folder(name).join(file)).unwrap()
}

/// Tries every mutant, and fails with the names of those that nothing noticed.
async fn all_are_caught(backend: Backend, mutants: &'static [Mutant]) {
    let (backend, at_once) = (Arc::new(backend), Arc::new(Semaphore::new(AT_ONCE)));
    caught::assert_sound(&backend).await;
    let tried = mutants.iter().map(|mutant| {
        let (backend, at_once) = (backend.clone(), at_once.clone());
        async move {
            let _turn = at_once.acquire_owned().await;
            let began = std::time::Instant::now();
            let noticed = timeout(PATIENCE, mutant.caught.notices(&backend, mutant)).await.unwrap_or(false);
            (mutant, noticed, began.elapsed())
        }
    });
    let tried = tried.collect::<JoinSet<_>>().join_all().await;
    let mut by: BTreeMap<_, usize> = BTreeMap::new();
    for (mutant, _, took) in &tried {
        *by.entry(mutant.caught.by()).or_default() += 1;
        if *took > Duration::from_secs(4) {
            println!("{took:?}: {}", mutant.name());
        }
    }
    println!("{} mutants: {by:?}", mutants.len());
    let missed: Vec<_> = tried.iter().filter(|(_, noticed, _)| !noticed).map(|(mutant, ..)| mutant.name()).collect();
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
