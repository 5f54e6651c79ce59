//! Handlers that count their runs and stop where a test wants them to.

use std::{collections::BTreeSet, fmt, sync::Arc};

use actix_web::{HttpResponse, http::header};
use tokio::sync::watch;

use crate::wait_for;

/// What a test sees of a handler's runs, and how it holds them up. Clones share everything.
#[derive(Clone)]
pub struct Probe {
    state: Arc<watch::Sender<RecordState>>,
    answer: Arc<dyn Fn(usize) -> HttpResponse + Send + Sync>,
}

#[derive(Default)]
struct RecordState {
    runs: usize,
    held: bool,
    released: BTreeSet<usize>,
    notes: Vec<String>,
}

impl Probe {
    /// A probe whose runs all answer 201, each with a body and a location of its own.
    #[must_use]
    pub fn new() -> Self {
        Self::answering(|run| {
            let location = (header::LOCATION, format!("/payments/{run}"));
            HttpResponse::Created().insert_header(location).json(serde_json::json!({ "secret of run": run }))
        })
    }

    /// A probe whose runs, counted from 1, answer like this.
    #[must_use]
    pub fn answering(answer: impl Fn(usize) -> HttpResponse + Send + Sync + 'static) -> Self {
        Self { state: Arc::new(watch::Sender::default()), answer: Arc::new(answer) }
    }

    /// A run, for the handler: it is counted, waits if it is held, and gives the answer.
    pub async fn run(&self) -> HttpResponse {
        let mut run = 0;
        self.state.send_modify(|state| {
            state.runs += 1;
            run = state.runs;
        });
        let mut released = self.state.subscribe();
        let wait = released.wait_for(|state| !state.held || state.released.contains(&run));
        drop(wait.await);
        (self.answer)(run)
    }

    /// Holds all runs from now on.
    pub fn hold(&self) {
        self.state.send_modify(|state| state.held = true);
    }

    /// Lets one run go on.
    pub fn release(&self, run: usize) {
        self.state.send_modify(|state| {
            state.released.insert(run);
        });
    }

    /// Lets all runs go on.
    pub fn release_all(&self) {
        self.state.send_modify(|state| state.held = false);
    }

    /// Notes something down, for the handler.
    pub fn note(&self, note: impl Into<String>) {
        self.state.send_modify(|state| state.notes.push(note.into()));
    }

    /// What handlers have noted.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        self.state.borrow().notes.clone()
    }

    /// Waits until this was noted.
    pub fn await_note(&self, note: &str) {
        let mut state = self.state.subscribe();
        let noted = async { state.wait_for(|state| state.notes.iter().any(|n| n == note)).await.map(drop) };
        wait_for(note, noted).unwrap();
    }

    /// How many runs were begun.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.state.borrow().runs
    }

    /// Waits until so many runs were begun.
    pub fn await_runs(&self, runs: usize) {
        let mut state = self.state.subscribe();
        let begun = async { state.wait_for(|state| state.runs >= runs).await.map(drop) };
        wait_for("a run", begun).unwrap();
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
