//! The server is killed at each message of a payment in turn: before the message is forwarded, and
//! after it. The messages are those between the client and the server, the server and the bank, and
//! the server and its database.
//!
//! After each kill the server is started again and the request is sent again. There must be one
//! charge, one ledger entry, one receipt, and one response. So it must be if the completer finishes
//! the payment before the request is sent again.

mod completer;
mod refunds;
mod without_sql;

use std::{io, time::Instant};

use test_support::{
    ClientResponse, Pending, Request, WAIT_LIMIT,
    taps::{Tap, Taps, When},
};

use crate::{
    payments::{
        pay,
        records::Records,
        server::{Files, Payments},
    },
    results::{self, Table, is_long_run},
};

/// The least number of messages of a payment: on SQLite those of the client and of the bank.
const MIN_MESSAGES: u32 = 4;
const MIN_MESSAGES_WITH_DATABASE: u32 = 16;
/// The number of messages from one kill to the next, after an earlier kill. 1 in a long run.
const STRIDE: u32 = 3;
/// The loops end before this, because a payment has far fewer messages.
const MAX_MESSAGES: u32 = 200;

#[test]
fn on_sqlite_a_payment_survives_a_kill_at_each_message() {
    kill_at_each_message(Records::Ledger);
}

#[test]
fn on_postgres_a_payment_survives_a_kill_at_each_message() {
    kill_at_each_message(Records::postgres());
}

#[cfg(feature = "mysql")]
#[test]
fn on_mysql_a_payment_survives_a_kill_at_each_message() {
    kill_at_each_message(Records::mysql());
}

/// The processes of a run, and the proxies between them.
struct Setup {
    files: Files,
    taps: Taps,
    /// In front of the payments server.
    front: Tap,
    /// In front of the bank.
    bank: Tap,
    store: String,
    /// More arguments of the payments server.
    arguments: &'static [&'static str],
    server: Payments,
    _bank: Payments,
    payments: i64,
}

/// Whether the server is killed in the first attempt of a payment, or in the second one, which asks
/// the bank for the charge of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    First,
    Second,
}

fn kill_at_each_message(records: Records) {
    let started = Instant::now();
    let mut setup = Setup::start(Files::with(records));
    let mut kills = [0; 2];
    for attempt in [Attempt::First, Attempt::Second] {
        for when in [When::Before, When::After] {
            kills[attempt as usize] += setup.kill_in_turn(attempt, when);
        }
    }
    let count = |number: &str| setup.files.count_in_store(number);
    let again = count("SELECT count(*) FROM idempotency_records WHERE attempt > 1");
    let requests = setup.files.count_at_bank("SELECT sum(requests) FROM bank_transfers");
    assert!(again >= i64::from(kills[1]), "only {again} payments were interrupted");
    let facts = [
        ("kills in the first attempt", kills[0].to_string()),
        ("in the second", kills[1].to_string()),
        ("payments", setup.payments.to_string()),
        ("run again", again.to_string()),
        ("requests for a charge", requests.to_string()),
        ("double or missing charges, entries, receipts", "0".to_owned()),
        ("time", format!("{} s", started.elapsed().as_secs())),
    ];
    println!("{facts:?}");
    if is_long_run() {
        let store = setup.files.database();
        results::write(Table::InTurn, &[format!("`{store}`")], &facts);
    }
}

impl Setup {
    fn start(files: Files) -> Self {
        let taps = Taps::default();
        let direct = Payments::start_bank(&files);
        let bank = taps.in_front_of("bank", direct.address);
        let store = proxied(&taps, &files.store());
        let server = Payments::start_with(&files, &store, bank.address, &[]);
        let front = taps.in_front_of("server", server.address);
        Self { files, taps, front, bank, store, arguments: &[], server, _bank: direct, payments: 0 }
    }

    /// Kills the server at one message after the other, each in another payment, until a payment
    /// has fewer messages. Returns the number of kills.
    fn kill_in_turn(&mut self, attempt: Attempt, when: When) -> u32 {
        let stride = if attempt == Attempt::First || is_long_run() { 1 } else { STRIDE };
        let mut number = 1;
        while self.survives(attempt, number, when) {
            number += stride;
            assert!(number < MAX_MESSAGES, "the payments do not end");
        }
        let min = if self.files.is_file() { MIN_MESSAGES } else { MIN_MESSAGES_WITH_DATABASE };
        assert!(number > min, "a payment has fewer than {number} messages");
        (number - 1) / stride
    }

    /// Makes a payment whose server is killed at a message. Returns false if the payment has fewer
    /// messages.
    fn survives(&mut self, attempt: Attempt, number: u32, when: When) -> bool {
        let key = format!("{attempt:?}-{when:?}-{number}-{}", self.payments);
        let request = pay(&key, "pm_card_visa");
        self.payments += 1;
        if attempt == Attempt::Second {
            self.charge_only(&request);
        }
        let (first, reached) = self.send_and_kill(&request, "", number, when);
        let Some(at) = reached else {
            let first = first.expect("nothing was killed");
            if is_unavailable(&first) {
                // Another payment gets further.
                self.retry(&request, "without a kill");
                return self.survives(attempt, number, when);
            }
            self.check(&first, "without a kill");
            return false;
        };
        let at = format!("{attempt:?} attempt, {at}");
        self.restart();
        let response = self.retry(&request, &at);
        let again = self.send(&request);
        assert!(again.is_replay(), "{at}: {again:?}");
        assert_eq!((again.status, &again.body), (response.status, &response.body), "{at}");
        if let Ok(first) = first
            && !is_unavailable(&first)
        {
            assert!(response.is_replay(), "{at}: {response:?}");
            assert_eq!((first.status, &first.body), (response.status, &response.body), "{at}");
        }
        self.check(&response, &at);
        if attempt == Attempt::Second {
            let charge = response.json()["latest_charge"].as_str().unwrap().to_owned();
            let requests = format!("SELECT requests FROM bank_transfers WHERE id = '{charge}'");
            assert_eq!(self.files.count_at_bank(&requests), 1, "{at}: the bank was not asked");
        }
        true
    }

    /// Kills the server when the bank has made the charge, before its response arrives.
    fn charge_only(&mut self, request: &Request) {
        let (lost, reached) = self.send_and_kill(request, "from the bank", 1, When::Before);
        assert!(lost.is_err() && reached.is_some(), "{lost:?}");
        self.restart();
        assert_eq!(self.files.expire_leases(), 1);
    }

    fn send_and_kill(
        &self,
        request: &Request,
        among: &'static str,
        number: u32,
        when: When,
    ) -> (io::Result<ClientResponse>, Option<String>) {
        self.taps.act_at(among, number, when, self.server.killer());
        let response = Pending::send(self.front.address, &request.bytes()).try_response();
        (response, self.taps.end_count())
    }

    /// Sends a request until the store responds in time.
    fn send(&self, request: &Request) -> ClientResponse {
        let until = Instant::now() + WAIT_LIMIT;
        loop {
            let response = self.server.send(request);
            if !is_unavailable(&response) || Instant::now() > until {
                return response;
            }
        }
    }

    fn restart(&mut self) {
        let (files, arguments) = (&self.files, self.arguments);
        self.server = Payments::start_with(files, &self.store, self.bank.address, arguments);
        self.front.set_target(self.server.address);
    }

    /// Sends the request again, as soon as the lease of the attempt that was killed has expired. A
    /// statement of that attempt may still be running in the database.
    fn retry(&self, request: &Request, at: &str) -> ClientResponse {
        let until = Instant::now() + WAIT_LIMIT;
        loop {
            self.files.expire_leases();
            let response = self.send(request);
            if response.status == 200 {
                return response;
            }
            assert_eq!(response.problem(), (409, "in_flight".to_owned()), "{at}: {response:?}");
            assert!(Instant::now() < until, "{at}: the lease does not end");
        }
    }

    /// Each payment has one row in each table.
    fn check(&self, response: &ClientResponse, at: &str) {
        let payment = response.json();
        assert_eq!((response.status, &payment["status"]), (200, &"succeeded".into()), "{at}");
        let in_store = |table: &str| self.files.count_in_store(&format!("SELECT count(*) {table}"));
        let at_bank = |table: &str| self.files.count_at_bank(&format!("SELECT count(*) {table}"));
        let counts = [
            at_bank("FROM bank_transfers"),
            self.files.count("SELECT count(*) FROM payment_intents WHERE status = 'succeeded'"),
            self.files.count("SELECT count(*) FROM payment_intents"),
            in_store("FROM entries"),
            in_store("FROM receipts"),
            in_store("FROM idempotency_records"),
            in_store("FROM idempotency_records WHERE state = 2"),
        ];
        let names = "charges, settled payments, payments, entries, receipts, records, completed";
        assert_eq!(counts, [self.payments; 7], "{at}: {names}");
        let (id, charge) = (payment["id"].as_str(), payment["latest_charge"].as_str());
        let (id, charge) = (id.expect("an id"), charge.expect("a charge"));
        assert_eq!(at_bank(&format!("FROM bank_transfers WHERE id = '{charge}'")), 1, "{at}");
        let entry = format!("FROM entries WHERE payment = '{id}' AND charge = '{charge}'");
        let receipt = format!("FROM receipts WHERE payment = '{id}'");
        let record = format!("FROM idempotency_records WHERE reference = '{id}'");
        assert_eq!([in_store(&entry), in_store(&receipt), in_store(&record)], [1; 3], "{at}");
    }
}

/// Whether the store did not respond in time, as on a busy machine.
fn is_unavailable(response: &ClientResponse) -> bool {
    response.status == 503 && response.problem().1 == "store_unavailable"
}

/// The store's URL, with a proxy in front of its server.
fn proxied(taps: &Taps, store: &str) -> String {
    // Of a database server, of the emulator of DynamoDB, or of Redis.
    let mut before = ["@", "?endpoint=http://", "redis://"].into_iter();
    let Some(before) = before.find(|before| store.contains(before)) else {
        return store.to_owned();
    };
    let (start, rest) = store.split_once(before).expect("it contains this");
    let (address, database) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let tap = taps.in_front_of("store", address.parse().expect("an address and a port"));
    format!("{start}{before}{}{database}", tap.address)
}
