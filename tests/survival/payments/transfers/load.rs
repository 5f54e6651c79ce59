//! Clients that send each transfer several times, and record the responses.

use std::{
    collections::BTreeMap,
    fmt,
    net::SocketAddr,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use test_support::{ClientResponse, Pending, WAIT_LIMIT};

use crate::payments::post;

const ACCOUNTS: [&str; 4] = ["alice", "bob", "carol", "dave"];
/// The initial balance of each account.
const BALANCE: i64 = 100_000;

/// The transfer of a key: the accounts and the amount, which are derived from its number.
fn order(number: u64) -> (&'static str, &'static str, i64) {
    let account = |index: u64| ACCOUNTS[usize::try_from(index % 4).unwrap()];
    let amount = i64::try_from(1 + number * 7919 % 90_000).unwrap();
    (account(number), account(number + 1 + number / 4 % 3), amount)
}

/// Counts of requests and responses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) sent: u64,
    /// Requests whose connection ended without a response.
    pub(crate) lost: u64,
    /// Responses that came from a run.
    pub(crate) ran: u64,
    /// Keys whose first received response was a replay: the response of the run was lost, or came
    /// later.
    pub(crate) first_seen_as_replay: u64,
    pub(crate) replays: u64,
    pub(crate) in_flight: u64,
    pub(crate) unavailable: u64,
    /// Violations of a guarantee.
    faults: Vec<String>,
}

impl Tally {
    /// Requests with a final response.
    pub(crate) fn completed(&self) -> u64 {
        self.ran + self.replays
    }
}

/// The state that clients share.
#[derive(Default)]
struct SharedState {
    tally: Tally,
    next: u64,
    /// Keys that were sent and have no final response yet.
    open: Vec<u64>,
    responses: BTreeMap<u64, (bool, ClientResponse)>,
}

/// Clients of one route.
pub(crate) struct Load {
    path: &'static str,
    servers: Mutex<Vec<SocketAddr>>,
    state: Mutex<SharedState>,
    stopped: AtomicBool,
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
        Self {
            path,
            servers: Mutex::default(),
            state: Mutex::default(),
            stopped: AtomicBool::new(false),
        }
    }

    fn state(&self) -> MutexGuard<'_, SharedState> {
        self.state.lock().unwrap()
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
            let server = fastrand::choice(self.servers.lock().unwrap().iter()).copied();
            if !server.is_some_and(|server| self.send(server, self.choose())) {
                thread::sleep(Duration::from_millis(1));
            }
        }
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
            Ok(response) => state.receive(number, response),
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

    fn receive(&mut self, number: u64, response: ClientResponse) -> bool {
        let replayed = response.is_replay();
        match response.status {
            200 | 402 => {}
            409 if response.problem().1 == "in_flight" => {
                self.tally.in_flight += 1;
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

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sent, lost, ran, first_seen_as_replay, replays, in_flight, unavailable, .. } =
            self;
        write!(
            f,
            "{sent} sent, {lost} lost in progress, {ran} ran, {replays} replays, \
             {first_seen_as_replay} first seen as a replay, {in_flight} in flight, \
             {unavailable} unavailable"
        )
    }
}
