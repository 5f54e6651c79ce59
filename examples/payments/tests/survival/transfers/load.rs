//! Clients that send transfers, each of them several times, and keep what they hear.

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

use tests::{Answer, PATIENCE, Pending};

use crate::post;

const ACCOUNTS: [&str; 4] = ["alice", "bob", "carol", "dave"];
/// What each account has at first.
const BALANCE: i64 = 100_000;

/// What a key asks for, which follows from its number: from whom, to whom, and how much.
fn order(number: u64) -> (&'static str, &'static str, i64) {
    let account = |index: u64| ACCOUNTS[usize::try_from(index % 4).unwrap()];
    let amount = i64::try_from(1 + number * 7919 % 90_000).unwrap();
    (account(number), account(number + 1 + number / 4 % 3), amount)
}

/// What was sent and heard in all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard {
    pub(crate) sent: u64,
    /// Sent, and then the connection ended without an answer.
    pub(crate) lost: u64,
    /// Keys whose answer came from a run.
    pub(crate) ran: u64,
    /// Keys whose first answer that anybody heard was a replay already: the run's own was lost, or came later.
    pub(crate) unheard: u64,
    pub(crate) replays: u64,
    pub(crate) in_flight: u64,
    pub(crate) unavailable: u64,
    /// What must not be.
    faults: Vec<String>,
}

impl Heard {
    /// How many requests were answered for good.
    pub(crate) fn answered(&self) -> u64 {
        self.ran + self.replays
    }
}

/// What the clients know.
#[derive(Default)]
struct Known {
    heard: Heard,
    next: u64,
    /// Keys that were sent and not answered yet.
    open: Vec<u64>,
    answers: BTreeMap<u64, (bool, Answer)>,
}

/// Clients of one way to transfer.
pub(crate) struct Load {
    path: &'static str,
    servers: Mutex<Vec<SocketAddr>>,
    known: Mutex<Known>,
    stopped: AtomicBool,
}

/// Stops the clients when it is dropped, in a test that fails too.
pub(crate) struct Stop<'a>(&'a Load);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stopped.store(true, Ordering::Relaxed);
    }
}

impl Load {
    pub(crate) fn new(path: &'static str) -> Self {
        Self { path, servers: Mutex::default(), known: Mutex::default(), stopped: AtomicBool::new(false) }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap()
    }

    /// Where the clients send from now on.
    pub(crate) fn turn_to(&self, servers: &[SocketAddr]) {
        *self.servers.lock().unwrap() = servers.to_vec();
    }

    pub(crate) fn stop(&self) -> Stop<'_> {
        Stop(self)
    }

    /// One client: new keys, and those that are open, most of them just sent by another client.
    pub(crate) fn run(&self) {
        while !self.stopped.load(Ordering::Relaxed) {
            let server = fastrand::choice(self.servers.lock().unwrap().iter()).copied();
            if !server.is_some_and(|server| self.send(server, self.choose())) {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    fn choose(&self) -> u64 {
        let mut known = self.known();
        match fastrand::u8(..8) {
            0 if known.next > 0 => known.next.saturating_sub(fastrand::u64(1..=40)),
            1..4 if !known.open.is_empty() => known.open[fastrand::usize(..known.open.len())],
            4..6 if !known.open.is_empty() => known.open[known.open.len() - 1],
            _ => known.begin(),
        }
    }

    /// A key that nobody has sent yet.
    pub(crate) fn begin(&self) -> u64 {
        self.known().begin()
    }

    pub(crate) fn open(&self) -> Vec<u64> {
        self.known().open.clone()
    }

    fn bytes(&self, number: u64) -> Vec<u8> {
        let (from, to, amount) = order(number);
        post(self.path, &format!("key-{number}"), &format!("from={from}&to={to}&amount={amount}")).bytes()
    }

    /// Sends a key; nothing if nobody listens there.
    pub(crate) fn post(&self, server: SocketAddr, number: u64) -> Option<Pending> {
        let pending = Pending::try_send(server, &self.bytes(number)).ok()?;
        self.known().heard.sent += 1;
        Some(pending)
    }

    /// Sends a key once, and tells whether it is answered for good.
    pub(crate) fn send(&self, server: SocketAddr, number: u64) -> bool {
        self.post(server, number).is_some_and(|pending| self.hear(number, pending))
    }

    /// Sends a key until it is answered for good.
    pub(crate) fn send_until_answered(&self, server: SocketAddr, number: u64) {
        let until = Instant::now() + PATIENCE;
        while !self.send(server, number) {
            assert!(Instant::now() < until, "key {number} stays without its answer");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for what a request comes to, and tells whether it is answered for good.
    pub(crate) fn hear(&self, number: u64, pending: Pending) -> bool {
        let answer = pending.try_answer();
        let mut known = self.known();
        match answer {
            Ok(answer) => known.hear(number, answer),
            Err(_) => {
                known.heard.lost += 1;
                false
            }
        }
    }

    /// What was heard so far, none of which must not be.
    pub(crate) fn heard(&self) -> Heard {
        let heard = self.known().heard.clone();
        assert!(heard.faults.is_empty(), "{heard:#?}");
        heard
    }

    /// The transfers that clients were told of, by their ids.
    pub(crate) fn transfers(&self) -> Vec<String> {
        let known = self.known();
        let made = known.answers.values().filter(|(_, answer)| answer.status == 200);
        let mut ids: Vec<_> = made.map(|(_, answer)| answer.json()["id"].as_str().unwrap().to_owned()).collect();
        ids.sort();
        ids
    }

    /// How many keys were answered, and how many of them moved money.
    pub(crate) fn answered(&self) -> (usize, usize) {
        let known = self.known();
        (known.answers.len(), known.answers.values().filter(|(_, answer)| answer.status == 200).count())
    }

    /// Some keys that were answered.
    pub(crate) fn some_answered(&self, most: usize) -> Vec<u64> {
        let mut numbers: Vec<_> = self.known().answers.keys().copied().collect();
        fastrand::shuffle(&mut numbers);
        numbers.truncate(most);
        numbers
    }

    /// What the accounts hold if each transfer that clients were told of was made once, and no other.
    pub(crate) fn balances(&self) -> Vec<String> {
        let mut balances = BTreeMap::from(ACCOUNTS.map(|account| (account, BALANCE)));
        for (number, (_, answer)) in &self.known().answers {
            if answer.status == 200 {
                let (from, to, amount) = order(*number);
                *balances.get_mut(from).unwrap() -= amount;
                *balances.get_mut(to).unwrap() += amount;
            }
        }
        assert_eq!(balances.values().sum::<i64>(), BALANCE * 4);
        balances.into_iter().map(|(account, balance)| format!("{account} {balance}")).collect()
    }
}

impl Known {
    fn begin(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        self.open.push(number);
        number
    }

    fn hear(&mut self, number: u64, answer: Answer) -> bool {
        let replayed = answer.is_replay();
        match answer.status {
            200 | 402 => {}
            409 if answer.problem().1 == "in_flight" => {
                self.heard.in_flight += 1;
                return false;
            }
            503 => {
                self.heard.unavailable += 1;
                return false;
            }
            _ => {
                self.heard.faults.push(format!("key {number}: {} {}", answer.status, answer.text()));
                return false;
            }
        }
        self.heard.replays += u64::from(replayed);
        self.heard.ran += u64::from(!replayed);
        match self.answers.get_mut(&number) {
            None => {
                self.heard.unheard += u64::from(replayed);
                self.open.retain(|open| *open != number);
                self.answers.insert(number, (!replayed, answer));
            }
            Some((ran, first)) => {
                if (first.status, &first.body) != (answer.status, &answer.body) || (*ran && !replayed) {
                    let (one, other) = (first.text(), answer.text());
                    self.heard.faults.push(format!("key {number} ran twice, or changed: {one}, then {other}"));
                }
                *ran |= !replayed;
            }
        }
        true
    }
}

impl fmt::Display for Heard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sent, lost, ran, unheard, replays, in_flight, unavailable, .. } = self;
        write!(
            f,
            "{sent} sent, {lost} lost in mid-work, {ran} ran, {replays} replays, {unheard} first heard as a replay, \
             {in_flight} in flight, {unavailable} unavailable"
        )
    }
}
