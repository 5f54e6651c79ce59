//! Consumers of a Redis stream (`examples/consumer`) that are killed while they work.
//! `TRANSFER_KILLS=1000 tests/run kills` makes a longer run, and writes
//! `tests/survival/RESULTS.md`.

use std::{
    thread,
    time::{Duration, Instant},
};

use self::{
    consumer::{Consumer, Setting, Written},
    producer::Producer,
};
use crate::{
    payments::server::await_that,
    results::{self, Table, required_kills},
};

mod consumer;
mod producer;

const RUNNING: usize = 3;
/// The number of kills, unless `TRANSFER_KILLS` is set.
const KILLS: u64 = 20;
/// How long a consumer works at most before one is killed.
const MAX_LIFETIME_MILLIS: u64 = 60;

/// What the kills have hit.
#[derive(Clone, Copy, Debug, Default)]
struct Hits {
    kills: u64,
    /// Kills of a consumer that had received messages and not acknowledged them.
    interrupted: u64,
    /// These messages.
    left: usize,
}

/// What the database and the streams show. All numbers must be 0.
#[derive(Debug, Default, PartialEq, Eq)]
struct Audit {
    /// Messages that were sent and not applied.
    lost: usize,
    /// Deposits beyond the first of their message.
    duplicates: i64,
    /// Deposits of messages that are invalid or were not sent.
    unsent: usize,
    /// Accounts whose balance is not the sum of their deposits.
    wrong_balances: i64,
    /// Invalid messages that were not set aside.
    not_set_aside: usize,
    in_flight: i64,
}

mod claim_lease {
    #[test]
    fn consumers_that_are_killed_under_load_apply_each_message_once() {
        super::kill_consumers_under_load("lease");
    }
}

mod claim_transaction {
    #[test]
    fn consumers_that_are_killed_under_load_apply_each_message_once() {
        super::kill_consumers_under_load("transaction");
    }
}

fn kill_consumers_under_load(claim: &'static str) {
    let (started, setting) = (Instant::now(), Setting::new(claim));
    let mut consumers: Vec<_> = (0..RUNNING).map(|_| Consumer::start(&setting)).collect();
    let mut producer = Producer::new(&setting);
    let (mut hits, mut written) = (Hits::default(), Written::default());
    while hits.kills < required_kills().unwrap_or(KILLS) {
        producer.send_enough();
        let_consumers_work(&setting);
        let killed = consumers.remove(fastrand::usize(..consumers.len()));
        let name = killed.name();
        written.add(&killed.kill());
        let left = setting.pending_of(&name);
        hits.kills += 1;
        hits.interrupted += u64::from(left > 0);
        hits.left += left;
        consumers.push(Consumer::start(&setting));
    }
    await_that(|| setting.group().is_consumed(), "the acknowledgment of all messages");
    for consumer in consumers {
        written.add(&consumer.kill());
    }
    check(&setting, &producer, hits, written, started);
}

/// Lets the consumers work for some milliseconds, in half of the cases after an acknowledgment.
fn let_consumers_work(setting: &Setting) {
    if fastrand::bool() {
        let before = setting.group().acknowledged;
        await_that(|| setting.group().acknowledged > before, "an acknowledgment");
    }
    thread::sleep(Duration::from_millis(fastrand::u64(..MAX_LIFETIME_MILLIS)));
}

/// Checks the database and the streams, and writes the counts to `RESULTS.md` after a long run.
fn check(setting: &Setting, producer: &Producer, hits: Hits, written: Written, started: Instant) {
    let audit = audit(setting, producer);
    eprintln!("{hits:?}; {written:?}; {} messages; {audit:?}", producer.sent());
    let Audit { lost, duplicates, unsent, wrong_balances, not_set_aside, in_flight } = audit;
    assert_eq!(audit, Audit::default());
    assert!(hits.interrupted >= hits.kills / 4, "too few kills interrupted a consumer: {hits:?}");
    assert!(written.applied * 2 >= producer.sent(), "too few messages were applied: {written:?}");
    assert!(written.replayed > 0, "no message was delivered after it was applied: {written:?}");
    let Some(_) = required_kills() else { return };
    let facts = [
        ("kills", hits.kills.to_string()),
        ("interrupted", hits.interrupted.to_string()),
        ("left", hits.left.to_string()),
        ("messages", producer.sent().to_string()),
        ("sent twice", producer.repeated().to_string()),
        ("applied", written.applied.to_string()),
        ("replayed", written.replayed.to_string()),
        ("left for later", written.left.to_string()),
        ("lost", (lost + not_set_aside).to_string()),
        ("duplicates", duplicates.to_string()),
        ("unsent or wrong balance", (i64::try_from(unsent).unwrap() + wrong_balances).to_string()),
        ("in flight", in_flight.to_string()),
        ("time", format!("{} s", started.elapsed().as_secs())),
    ];
    results::write(Table::Consumers, &[format!("`{}`", setting.claim)], &facts);
}

fn audit(setting: &Setting, producer: &Producer) -> Audit {
    let applied = setting.texts("SELECT DISTINCT message FROM deposits");
    let aside = setting.set_aside();
    let valid = producer.messages().filter(|message| message.is_valid());
    let is_valid = |id: &String| producer.message(id).is_some_and(|message| message.is_valid());
    Audit {
        lost: valid.filter(|message| !applied.contains(&message.id)).count(),
        duplicates: setting.count("SELECT count(*) - count(DISTINCT message) FROM deposits"),
        unsent: applied.iter().filter(|id| !is_valid(id)).count(),
        wrong_balances: setting.count(
            "SELECT count(*) FROM balances AS b WHERE cents
                 <> (SELECT sum(cents) FROM deposits WHERE account = b.account)",
        ),
        not_set_aside: producer
            .messages()
            .filter(|message| !message.is_valid() && !aside.contains(&message.id))
            .count(),
        in_flight: setting.count("SELECT count(*) FROM idempotency_records WHERE state = 1"),
    }
}
