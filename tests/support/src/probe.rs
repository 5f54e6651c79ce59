//! Counts the runs of handlers, and pauses them where a test requires it.

use std::{collections::BTreeSet, fmt, sync::Arc};

use actix_web::{HttpResponse, http::header};
use tokio::sync::watch;

use crate::wait_for;

/// Counts a handler's runs and pauses them. Clones share everything.
#[derive(Clone)]
pub struct Probe {
    state: Arc<watch::Sender<State>>,
    response: Arc<dyn Fn(usize) -> HttpResponse + Send + Sync>,
}

#[derive(Default)]
struct State {
    runs: usize,
    held: bool,
    released: BTreeSet<usize>,
    notes: Vec<String>,
}

impl Probe {
    /// A probe whose runs all respond with 201, each with a different body and location.
    #[must_use]
    pub fn new() -> Self {
        Self::responding(|run| {
            let location = (header::LOCATION, format!("/payments/{run}"));
            HttpResponse::Created()
                .insert_header(location)
                .json(serde_json::json!({ "secret of run": run }))
        })
    }

    /// A probe whose runs return what `response` returns for their number, counted from 1.
    #[must_use]
    pub fn responding(response: impl Fn(usize) -> HttpResponse + Send + Sync + 'static) -> Self {
        Self { state: Arc::new(watch::Sender::default()), response: Arc::new(response) }
    }

    /// Called by the handler for each run: counts the run, waits while it is held, and returns its
    /// response.
    pub async fn run(&self) -> HttpResponse {
        let mut run = 0;
        self.state.send_modify(|state| {
            state.runs += 1;
            run = state.runs;
        });
        let mut released = self.state.subscribe();
        let wait = released.wait_for(|state| !state.held || state.released.contains(&run));
        drop(wait.await);
        (self.response)(run)
    }

    /// Holds all runs from now on.
    pub fn hold(&self) {
        self.state.send_modify(|state| state.held = true);
    }

    /// Lets one run continue.
    pub fn release(&self, run: usize) {
        self.state.send_modify(|state| {
            state.released.insert(run);
        });
    }

    /// Lets all runs continue.
    pub fn release_all(&self) {
        self.state.send_modify(|state| state.held = false);
    }

    /// Records a note. Called by handlers.
    pub fn note(&self, note: impl Into<String>) {
        self.state.send_modify(|state| state.notes.push(note.into()));
    }

    /// The notes that handlers recorded.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        self.state.borrow().notes.clone()
    }

    /// Waits until this note was recorded.
    pub fn await_note(&self, note: &str) {
        let mut state = self.state.subscribe();
        let noted =
            async { state.wait_for(|state| state.notes.iter().any(|n| n == note)).await.map(drop) };
        wait_for(note, noted).unwrap();
    }

    /// How many runs have begun.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.state.borrow().runs
    }

    /// Waits until this many runs have begun.
    pub fn await_runs(&self, runs: usize) {
        let mut state = self.state.subscribe();
        let begun = async { state.wait_for(|state| state.runs >= runs).await.map(drop) };
        wait_for(&format!("run {runs}"), begun).unwrap();
    }
}

impl Default for Probe {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Probe({} runs)", self.runs())
    }
}
