//! All interleavings of a claim, which reads a record, decides and then writes, with the steps of
//! others.
//!
//! The steps between the read and the write may be any: other claims, ends of attempts, operators,
//! the purge, and a clock that moves in both directions. A write is correct if it changes nothing,
//! so that the claim starts over, or if it is what the state machine does at the moment of the
//! write, with the outcome that the claim returns.
//!
//! The check is exhaustive for times of a few milliseconds: for each write that a claim can decide
//! on, it executes the statement on every record that can be stored at the moment of the write. A
//! guard without which every write is still correct is redundant.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    time::Duration,
};

use bytes::Bytes;

use self::table::{Database, values};
use super::{Variant, backends::Backend, read};
use idempotent_core::{
    Abandoned::{self, Hold, Retry},
    Fingerprint, OwnerToken, Record, RecordState,
    clock::Timestamp,
    protocol::{Claim, ClaimOutcome, Note, Rejection, Resolution},
    transition::{self, Change, Event, transition},
};

pub(super) mod table;

const LEASE: Duration = Duration::from_millis(1);
const TTL: Duration = Duration::from_millis(2);
const LAST_TIME: u64 = 4;
/// Attempts are distinguished up to this number.
const LAST_ATTEMPT: u32 = 3;
/// The statement of MySQL that renews the lease of a claim that is sent again.
const RENEW_OWN: &str = "renew_own.sql";
/// The token of the claim whose writes are checked. It may also arrive several times.
const MINE: u8 = 1;

fn claim(owner: u8, fingerprint: u8, abandoned: Abandoned) -> Claim {
    let fingerprint = Fingerprint::from_bytes([fingerprint; Fingerprint::BYTES]);
    Claim::new(fingerprint, OwnerToken::from_bytes([owner; 16]))
        .with_lease(LEASE)
        .with_ttl(TTL)
        .with_abandoned(abandoned)
}

/// The claims of others: the same request under both policies, and a different one.
fn claims_of_others() -> [Claim; 4] {
    [claim(2, 1, Retry), claim(3, 1, Hold), claim(4, 2, Retry), claim(5, 2, Hold)]
}

/// All records that some steps lead to, by the time at which they are stored.
fn reachable(mine: Claim) -> BTreeMap<Timestamp, Vec<Record>> {
    let claims: Vec<_> = claims_of_others().into_iter().chain([mine]).collect();
    let (recording, operators) = (Bytes::from_static(b"\x01"), Bytes::from_static(b"\x02"));
    let past_the_point = Note::hold();
    let resolutions = [Resolution::Complete(operators), Resolution::Release];
    let events: Vec<_> = claims
        .iter()
        .flat_map(|claim| {
            let owner = claim.owner;
            let resolve = move |resolution| Event::Resolve(owner, resolution);
            [
                Event::Claim(claim),
                Event::Renew(owner, LEASE),
                Event::Note(owner, &past_the_point),
                Event::Complete(owner, &recording),
                Event::Release(owner),
                Event::Abandon(owner, Retry),
                Event::Abandon(owner, Hold),
            ]
            .into_iter()
            .chain(resolutions.iter().map(resolve))
        })
        .chain([Event::Purge])
        .collect();
    let (mut seen, mut next) = (HashSet::new(), vec![(None, 1)]);
    let mut records = BTreeMap::<_, Vec<_>>::new();
    while let Some((record, millis)) = next.pop() {
        let now = Timestamp::from_millis(millis);
        if !seen.insert((record.as_ref().map(values), millis)) {
            continue;
        }
        for event in &events {
            match transition(record.as_ref(), event, now).0 {
                Change::Keep => {}
                Change::Put(new) if new.attempt > LAST_ATTEMPT => {}
                Change::Put(new) => next.push((Some(new), millis)),
                Change::Remove => next.push((None, millis)),
            }
        }
        let times = [millis - 1, millis + 1].into_iter().filter(|at| (1..=LAST_TIME).contains(at));
        next.extend(times.map(|millis| (record.clone(), millis)));
        records.entry(now).or_default().extend(record);
    }
    records
}

/// A write that a claim has decided on after it has read a record.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct DecidedWrite {
    file: &'static str,
    owner_read: [u8; 16],
    attempt_read: u32,
    outcome: String,
}

impl DecidedWrite {
    /// The write that `write_claim` of the stores chooses for a record that was read, if it is an
    /// update. A new claim, and a renewal in Postgres and SQLite, do not depend on what was read.
    fn of(claim: &Claim, read: &Record, now: Timestamp, backend: &Backend) -> Option<Self> {
        let (change, outcome) = transition::claim(Some(read), claim, now);
        let Change::Put(new) = change else { return None };
        let expired = read.is_expired(now);
        let file = match (&new.state, new.owner == claim.owner) {
            (RecordState::InFlight, true) if expired && backend.starts_over() => "start_over.sql",
            (RecordState::Held, _) => "hold.sql",
            (RecordState::InFlight, false) => "shorten.sql",
            (RecordState::InFlight, true) if !expired && read.owner != claim.owner => {
                "take_over.sql"
            }
            #[cfg(feature = "mysql")]
            (RecordState::InFlight, true)
                if !expired && matches!(backend, Backend::MySql { .. }) =>
            {
                RENEW_OWN
            }
            _ => return None,
        };
        // A take-over names the attempt, every other write the owner.
        let (owner_read, attempt_read) = match file {
            "take_over.sql" => ([0; 16], read.attempt),
            _ => (*read.owner.as_bytes(), 0),
        };
        Some(Self { file, owner_read, attempt_read, outcome: without_time(&outcome) })
    }

    /// Whether the state machine makes this of a record.
    fn is_correct(&self, record: &Record, written: &str, claim: &Claim, now: Timestamp) -> bool {
        if self.file == RENEW_OWN {
            // A claim that is sent again was granted when it was read; then it renews its lease.
            let renewed = transition(Some(record), &Event::Renew(claim.owner, LEASE), now).0;
            return matches!(renewed, Change::Put(new) if values(&new) == written);
        }
        let (change, outcome) = transition::claim(Some(record), claim, now);
        matches!(change, Change::Put(new) if values(&new) == written)
            && without_time(&outcome) == self.outcome
    }

    /// The statement with its parameters, for all records of the table. It marks what it updates.
    fn statement(&self, text: &str, claim: &Claim, now: Timestamp, database: &Database) -> String {
        let blob = |bytes: &[u8]| database.blob(bytes);
        let (fingerprint, owner) = (claim.fingerprint.to_bytes(), claim.owner);
        let (lease, ttl) = (LEASE.as_millis().to_string(), TTL.as_millis().to_string());
        let hold = u8::from(claim.abandoned == Hold).to_string();
        let owner_read = blob(&self.owner_read);
        let parameters = match self.file {
            "take_over.sql" => {
                vec![
                    blob(&fingerprint),
                    blob(owner.as_bytes()),
                    lease,
                    self.attempt_read.to_string(),
                    hold,
                ]
            }
            "hold.sql" => vec![blob(&fingerprint), owner_read, hold],
            "shorten.sql" => vec![owner_read],
            RENEW_OWN => vec![owner_read, lease],
            _ => {
                let (operation, principal) = (blob(b"operation"), blob(b""));
                let first = [blob(&fingerprint), blob(owner.as_bytes()), lease, ttl, hold];
                first.into_iter().chain([operation, principal, owner_read]).collect()
            }
        };
        let id = ["id".to_owned()];
        let parameters = (1..).zip(id.into_iter().chain(parameters));
        let text = parameters.fold(text.to_owned(), |text, (number, value)| {
            text.replace(&format!("?{number}"), &value).replace(&format!("${number}"), &value)
        });
        text.replace("{appended:'t'}", "history")
            .replace("{appended:'h'}", "history")
            .replace("{now}", &now.as_millis().to_string())
            .replace("{table}", database.table())
            .replace("{schema}", "")
            .replace("{bounded}", "")
            .replacen("SET ", "SET touched = 1, ", 1)
    }
}

/// An outcome, without the remaining time of a lease, which depends on the time of the read.
fn without_time(outcome: &ClaimOutcome) -> String {
    let in_flight = matches!(outcome, ClaimOutcome::Rejected(Rejection::InFlight { .. }));
    if in_flight { "InFlight".to_owned() } else { format!("{outcome:?}") }
}

/// An incorrect write of a claim, if there is one.
pub(super) async fn incorrect_write(backend: &Backend, variant: Variant) -> Option<String> {
    let (database, mut checked) = (Database::new(backend).await, BTreeMap::<_, usize>::new());
    for policy in [Retry, Hold] {
        let mine = claim(MINE, 1, policy);
        let reachable = reachable(mine.clone());
        let mut writes = BTreeSet::new();
        for (now, records) in &reachable {
            let decided = |read| DecidedWrite::of(&mine, read, *now, backend);
            writes.extend(records.iter().filter_map(decided));
        }
        for (now, records) in &reachable {
            database.fill(records).await;
            for write in &writes {
                let text = variant.alter(write.file, &read(backend.folder(), write.file));
                let statement = write.statement(&text, &mine, *now, &database);
                let touched = match database.touched(statement).await {
                    Ok(touched) => touched,
                    Err(error) => return Some(error.to_string()),
                };
                *checked.entry(write.file).or_default() += touched.len();
                for (at, written) in touched {
                    if !write.is_correct(&records[at], &written, &mine, *now) {
                        return Some(format!(
                            "{} of a claim with {policy:?} that returns {} changes {:?} at {now:?} \
                             to {written}",
                            write.file, write.outcome, records[at],
                        ));
                    }
                }
            }
        }
    }
    assert!(checked.values().all(|writes| *writes > 10), "{checked:?}");
    None
}
