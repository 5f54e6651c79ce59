//! A visit to the page: its run, its events and its worker.

use std::{
    error::Error,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use actix_web::rt::{spawn, task::spawn_blocking, time::sleep};
use serde_json::{Value, json};
use tokio::{sync::Notify, time::timeout};

use crate::demo::{
    Side,
    events::Log,
    key::{self, Keys},
    run::{BankMode, Run},
    shopper::{self, CheckoutRequest, Seen},
    worker::Worker,
};

/// How long a bank takes, and a slow one: long enough to be seen.
const FAST: Duration = Duration::from_millis(300);
const SLOW: Duration = Duration::from_secs(5);
/// How long a bank that is stuck takes at most.
const STUCK: Duration = Duration::from_secs(60);

type Failure = Box<dyn Error + Send + Sync>;

/// A visit. Several tabs may share it.
pub(crate) struct Visit {
    pub(crate) id: String,
    pub(crate) keys: Arc<Keys>,
    pub(crate) log: Arc<Log>,
    state: Mutex<State>,
    /// Locked while a process is started or killed.
    stage: tokio::sync::Mutex<Option<Stage>>,
    /// Notified when the key may have changed.
    pub(crate) key_changes: Notify,
}

struct State {
    run: Run,
    worker: Option<SocketAddr>,
    last_used: Instant,
}

/// The worker of a visit.
struct Stage {
    worker: Option<Worker>,
    bank: String,
}

/// A payment that a shopper makes.
pub(crate) struct Payment {
    pub(crate) run: u64,
    pub(crate) side: Side,
    pub(crate) amount: u32,
    /// Who pays, such as "tab A"; the page shows it.
    pub(crate) label: String,
    pub(crate) loses_response: bool,
}

impl Visit {
    pub(crate) fn new(id: &str, keys: Arc<Keys>) -> Self {
        let state = State { run: Run::new(0), worker: None, last_used: Instant::now() };
        Self {
            id: id.to_owned(),
            keys,
            log: Arc::new(Log::new()),
            state: Mutex::new(state),
            stage: tokio::sync::Mutex::new(None),
            key_changes: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works with the run, if it is still this one.
    pub(crate) fn with_run<T>(&self, number: u64, work: impl FnOnce(&mut Run) -> T) -> Option<T> {
        let mut state = self.state();
        (state.run.number == number && number > 0).then(|| work(&mut state.run))
    }

    /// Notes that somebody uses the page.
    pub(crate) fn touch(&self) {
        self.state().last_used = Instant::now();
    }

    /// Appends an event of a run, unless there is a newer run.
    pub(crate) fn report(&self, number: u64, kind: &str, fields: Value) {
        self.with_run(number, |run| self.log.push(&run.event(kind, fields)));
    }

    pub(crate) fn idle(&self) -> Duration {
        self.state().last_used.elapsed()
    }

    /// The user whose card is charged: a new one for each run.
    pub(crate) fn user(&self, run: u64) -> String {
        format!("{}-{run}", self.id)
    }

    /// Starts a run, and the worker if there is none.
    pub(crate) async fn start(self: &Arc<Self>, bank: &str) -> Result<u64, Failure> {
        let worker = self.start_worker(bank).await?;
        let number = {
            let mut state = self.state();
            state.run.give_up(None);
            state.run = Run::new(state.run.number + 1);
            self.log.clear();
            let fields = json!({ "run": state.run.number, "key": state.run.key, "worker": worker });
            self.log.push(&state.run.event("run", fields));
            state.run.number
        };
        spawn(key::watch(Arc::downgrade(self), number));
        Ok(number)
    }

    /// Starts the worker unless it runs. Returns the id of its process.
    pub(crate) async fn start_worker(&self, bank: &str) -> Result<u32, Failure> {
        self.remove_worker(|worker| !worker.is_running()).await;
        let mut stage = self.stage.lock().await;
        let stage = stage.get_or_insert_with(|| Stage { worker: None, bank: bank.to_owned() });
        if let Some(worker) = &stage.worker {
            return Ok(worker.id());
        }
        let directory = self.keys.directory().ok_or("the page was closed")?;
        let worker = Worker::start(stage.bank.clone(), directory).await?;
        let id = worker.id();
        let mut state = self.state();
        state.worker = Some(worker.address);
        let event = state.run.event("worker", json!({ "up": true, "process": id }));
        self.log.push(&event);
        drop(state);
        stage.worker = Some(worker);
        Ok(id)
    }

    /// Kills the worker with SIGKILL.
    pub(crate) async fn kill_worker(&self) {
        self.remove_worker(|_| true).await;
    }

    /// Finds out whether the worker was killed by someone else.
    async fn check_worker(&self) {
        // The connections of a process close a moment before its end can be seen.
        for _ in 0..40 {
            let is_left = self.remove_worker(|worker| !worker.is_running()).await;
            if !is_left {
                return;
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Ends the worker if a condition holds, and returns whether there still is a worker.
    async fn remove_worker(&self, condition: impl FnOnce(&mut Worker) -> bool) -> bool {
        let mut stage = self.stage.lock().await;
        let Some(stage) = stage.as_mut() else { return false };
        if let Some(worker) = stage.worker.take_if(condition) {
            let id = worker.id();
            // Waits for the end of the process.
            let _ = spawn_blocking(move || drop(worker)).await;
            let mut state = self.state();
            state.worker = None;
            let event = state.run.event("worker", json!({ "up": false, "process": id }));
            self.log.push(&event);
        }
        stage.worker.is_some()
    }

    /// Ends the visit: its streams and its worker.
    pub(crate) async fn close(&self) {
        self.log.close();
        let stage = self.stage.lock().await.take();
        let _ = spawn_blocking(move || drop(stage)).await;
    }

    /// Sends a request of a shopper. The events say what comes of it.
    pub(crate) fn pay(self: &Arc<Self>, payment: Payment) -> Result<u32, &'static str> {
        let Payment { run: number, side, amount, label, loses_response } = payment;
        let user = self.user(number);
        let worker = self.state().worker;
        let opened = self.with_run(number, |run| {
            let (request, gives_up) = run.open_request(side)?;
            let checkout = CheckoutRequest { side, user: &user, key: &run.key, amount };
            let text = checkout.to_text(worker);
            let fields = json!({ "request": request, "side": side, "label": label, "text": text });
            self.log.push(&run.event("request", fields));
            Ok((request, gives_up, text))
        });
        let (request, gives_up, text) = opened.unwrap_or(Err("there is a newer run"))?;
        let this = self.clone();
        spawn(async move {
            let seen = shopper::send(worker, &text, loses_response, gives_up).await;
            let may_be_dead = matches!(seen, Seen::Closed | Seen::Refused);
            let fields = json!({ "request": request, "side": side, "seen": seen });
            this.with_run(number, |run| {
                run.close_request(request);
                this.log.push(&run.event("response", fields));
            });
            this.key_changes.notify_one();
            if may_be_dead {
                this.check_worker().await;
            }
        });
        Ok(request)
    }

    /// Books a charge at the bank, unless the bank is down.
    pub(crate) fn charge(&self, number: u64, side: Side, amount: u32) -> Option<String> {
        let charge = self.with_run(number, |run| {
            let charge = run.charge(side, amount);
            let runs = run.books(side).runs;
            self.log.push(&run.event("handler", json!({ "side": side, "runs": runs })));
            let fields = json!({ "side": side, "charge": charge, "amount": amount });
            self.log.push(&run.event("bank_called", fields));
            charge
        });
        self.key_changes.notify_one();
        charge.flatten()
    }

    /// Waits for as long as the bank takes to respond.
    pub(crate) async fn bank_delay(&self, number: u64) {
        let modes = self.with_run(number, |run| run.bank.subscribe());
        let Some(mut modes) = modes else { return };
        let is_slow = *modes.borrow() == BankMode::Slow;
        sleep(if is_slow { SLOW } else { FAST }).await;
        // Ends early if a new run begins.
        let _ = timeout(STUCK, modes.wait_for(|mode| *mode != BankMode::Stuck)).await;
    }
}
