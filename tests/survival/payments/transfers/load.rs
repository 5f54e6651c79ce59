//! Clients that send each transfer several times, and record the responses.

mod tally;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use test_support::{ClientResponse, Pending, WAIT_LIMIT};

pub(crate) use tally::Tally;

use crate::payments::{post, server::await_that};

const ACCOUNTS: [&str; 4] = ["alice", "bob", "carol", "dave"];
/// The initial balance of each account.
const BALANCE: i64 = 100_000;

/// The transfer of a key: the accounts and the amount, which are derived from its number.
fn order(number: u64) -> (&'static str, &'static str, i64) {
    let account = |index: u64| ACCOUNTS[usize::try_from(index % 4).unwrap()];
    let amount = i64::try_from(1 + number * 7919 % 90_000).unwrap();
    (account(number), account(number + 1 + number / 4 % 3), amount)
}

/// The state that clients share.
#[derive(Default)]
struct SharedState {
    tally: Tally,
    next: u64,
    /// Keys that were sent and have no final response yet.
    open: Vec<u64>,
    responses: BTreeMap<u64, (bool, ClientResponse)>,
    held: BTreeSet<u64>,
}

/// Clients of one route.
pub(crate) struct Load {
    path: &'static str,
    /// Whether the handlers misuse their transaction, so that a request may fail or hold its key.
    hostile: bool,
    servers: Mutex<Vec<SocketAddr>>,
    state: Mutex<SharedState>,
    stopped: AtomicBool,
    /// Requests of [`run`](Self::run) that have neither a response nor an error yet.
    pending: AtomicU64,
}

/// Stops the clients when it is dropped, also if the test fails.
pub(crate) struct Stop<'a>(&'a Load);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stopped.store(true, Ordering::Relaxed);
    }
}

impl Load {
    pub(crate) fn new(path: &'static str) -> Self {
        Self::of(path, false)
    }

    /// Clients of a server whose handlers misuse their transaction.
    pub(crate) fn hostile(path: &'static str) -> Self {
        Self::of(path, true)
    }

    fn of(path: &'static str, hostile: bool) -> Self {
        Self {
            path,
            hostile,
            servers: Mutex::default(),
            state: Mutex::default(),
            stopped: AtomicBool::new(false),
            pending: AtomicU64::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, SharedState> {
        self.state.lock().unwrap()
    }

    pub(crate) fn path(&self) -> &'static str {
        self.path
    }

    /// Sets the servers that the clients send to.
    pub(crate) fn set_servers(&self, servers: &[SocketAddr]) {
        *self.servers.lock().unwrap() = servers.to_vec();
    }

    pub(crate) fn stop(&self) -> Stop<'_> {
        Stop(self)
    }

    /// Runs one client, which sends new keys and open keys. Another client has just sent most of
    /// the open ones.
    pub(crate) fn run(&self) {
        while !self.stopped.load(Ordering::Relaxed) {
            self.pending.fetch_add(1, Ordering::SeqCst);
            let server = fastrand::choice(self.servers.lock().unwrap().iter()).copied();
            let done = server.is_some_and(|server| self.send(server, self.choose()));
            self.pending.fetch_sub(1, Ordering::SeqCst);
            if !done {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Waits until no request is pending, while there is no server.
    pub(crate) fn await_idle(&self) {
        await_that(|| self.pending.load(Ordering::SeqCst) == 0, "the end of all requests");
    }

    fn choose(&self) -> u64 {
        let mut state = self.state();
        match fastrand::u8(..8) {
            0 if state.next > 0 => state.next.saturating_sub(fastrand::u64(1..=40)),
            1..4 if !state.open.is_empty() => state.open[fastrand::usize(..state.open.len())],
            4..6 if !state.open.is_empty() => state.open[state.open.len() - 1],
            _ => state.begin(),
        }
    }

    /// Opens a new key.
    pub(crate) fn begin(&self) -> u64 {
        self.state().begin()
    }

    pub(crate) fn open(&self) -> Vec<u64> {
        self.state().open.clone()
    }

    fn bytes(&self, number: u64) -> Vec<u8> {
        let (from, to, amount) = order(number);
        post(self.path, &format!("key-{number}"), &format!("from={from}&to={to}&amount={amount}"))
            .bytes()
    }

    /// Sends a key; `None` if the server does not listen.
    pub(crate) fn post(&self, server: SocketAddr, number: u64) -> Option<Pending> {
        let pending = Pending::try_send(server, &self.bytes(number)).ok()?;
        self.state().tally.sent += 1;
        Some(pending)
    }

    /// Sends a key once, and returns whether the response is final.
    pub(crate) fn send(&self, server: SocketAddr, number: u64) -> bool {
        self.post(server, number).is_some_and(|pending| self.receive(number, pending))
    }

    /// Sends a key until the response is final.
    pub(crate) fn send_until_final(&self, server: SocketAddr, number: u64) {
        let until = Instant::now() + WAIT_LIMIT;
        while !self.send(server, number) {
            assert!(Instant::now() < until, "key {number} has no final response");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for a response, and returns whether it is final.
    pub(crate) fn receive(&self, number: u64, pending: Pending) -> bool {
        let response = pending.try_response();
        let mut state = self.state();
        match response {
            Ok(response) => state.receive(number, response, self.hostile),
            Err(_) => {
                state.tally.lost += 1;
                false
            }
        }
    }

    /// The counts so far; panics if there was a violation.
    pub(crate) fn tally(&self) -> Tally {
        let tally = self.state().tally.clone();
        assert!(tally.faults.is_empty(), "{tally:#?}");
        tally
    }

    /// The ids of the transfers in the responses.
    pub(crate) fn transfers(&self) -> Vec<String> {
        let state = self.state();
        let made = state.responses.values().filter(|(_, response)| response.status == 200);
        let mut ids: Vec<_> =
            made.map(|(_, response)| response.json()["id"].as_str().unwrap().to_owned()).collect();
        ids.sort();
        ids
    }

    /// The numbers of completed keys, and of those that moved money.
    pub(crate) fn completed(&self) -> (usize, usize) {
        let state = self.state();
        (
            state.responses.len(),
            state.responses.values().filter(|(_, response)| response.status == 200).count(),
        )
    }

    /// Some completed keys.
    pub(crate) fn some_completed(&self, most: usize) -> Vec<u64> {
        let mut numbers: Vec<_> = self.state().responses.keys().copied().collect();
        fastrand::shuffle(&mut numbers);
        numbers.truncate(most);
        numbers
    }

    /// The expected balances after the transfers in the responses.
    pub(crate) fn balances(&self) -> Vec<String> {
        let mut balances = BTreeMap::from(ACCOUNTS.map(|account| (account, BALANCE)));
        for (number, (_, response)) in &self.state().responses {
            if response.status == 200 {
                let (from, to, amount) = order(*number);
                *balances.get_mut(from).unwrap() -= amount;
                *balances.get_mut(to).unwrap() += amount;
            }
        }
        assert_eq!(balances.values().sum::<i64>(), BALANCE * 4);
        balances.into_iter().map(|(account, balance)| format!("{account} {balance}")).collect()
    }
}

impl SharedState {
    fn begin(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        self.open.push(number);
        number
    }

    fn receive(&mut self, number: u64, response: ClientResponse, hostile: bool) -> bool {
        let replayed = response.is_replay();
        match response.status {
            200 | 402 => {}
            409 if response.problem().1 == "in_flight" => {
                self.tally.in_flight += 1;
                return false;
            }
            409 if hostile && response.problem().1 == "outcome_unknown" => {
                if self.held.insert(number) {
                    self.tally.held += 1;
                    self.open.retain(|open| *open != number);
                }
                return true;
            }
            500 if hostile && response.problem().1 == "handler_failed" => {
                self.tally.failed += 1;
                return false;
            }
            // On a busy machine, a statement of the handler's own may exceed its time limit.
            500 if response.problem().1 == "ledger_unavailable" => {
                self.tally.unavailable += 1;
                return false;
            }
            503 => {
                self.tally.unavailable += 1;
                return false;
            }
            _ => {
                self.tally.faults.push(format!(
                    "key {number}: {} {}",
                    response.status,
                    response.text()
                ));
                return false;
            }
        }
        self.tally.replays += u64::from(replayed);
        self.tally.ran += u64::from(!replayed);
        match self.responses.get_mut(&number) {
            None => {
                self.tally.first_seen_as_replay += u64::from(replayed);
                self.open.retain(|open| *open != number);
                self.responses.insert(number, (!replayed, response));
            }
            Some((ran, first)) => {
                if (first.status, &first.body) != (response.status, &response.body)
                    || (*ran && !replayed)
                {
                    let (one, other) = (first.text(), response.text());
                    self.tally
                        .faults
                        .push(format!("key {number} ran twice, or changed: {one}, then {other}"));
                }
                *ran |= !replayed;
            }
        }
        true
    }
}
