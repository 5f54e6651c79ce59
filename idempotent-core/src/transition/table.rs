//! Every event in every state, as a table.

use super::*;
use crate::{
    fingerprint::Fingerprint,
    protocol::{Contents, Removal, Replacement, Resolution, ResolveOutcome},
    scope::Principal,
    short_text::ShortText,
};

/// `event state owner payload policy lease ttl = change outcome`
///
/// *owner*: whether the event has the record's owner token. *payload*: whether the claim has the
/// record's fingerprint. *policy*, *lease* and *ttl* are the record's; the end of a lease that is
/// *beyond* is further away than the length of the lease. `a|b` matches either, `*` matches any.
/// Every combination matches exactly one row. The change `operator` is a completion whose owner is
/// the operator, and `anew` starts the ttl anew.
const TABLE: &str = include_str!("table.txt");

const NOW: Timestamp = Timestamp::from_millis(100_000);
const LEASE: Duration = Duration::from_secs(7);
/// The length of the record's lease: short, so that times just within and just beyond it differ
/// little.
const LENGTH: Duration = Duration::from_millis(1);
const TTL: Duration = Duration::from_secs(50);
const MINE: OwnerToken = OwnerToken::from_bytes([1; 16]);
const OTHER: OwnerToken = OwnerToken::from_bytes([2; 16]);
/// Its bytes say that the status is 201.
const RECORDING: Bytes = Bytes::from_static(b"\x01\x00\xc9 the recording");
/// The history of an existing record before the event.
const OLD_HISTORY: History = History::EMPTY;
const EVENTS: [&str; 18] = [
    "claim:retry",
    "claim:hold",
    "renew",
    "note:empty",
    "note:plain",
    "note:hold",
    "complete",
    "release",
    "abandon:retry",
    "abandon:hold",
    "resolve:complete",
    "resolve:release",
    "remove:completed",
    "remove:any",
    "replace:seen",
    "replace:other",
    "append",
    "purge",
];

/// Every combination: event, state, owner, payload, policy, lease, ttl.
fn combinations() -> Vec<[&'static str; 7]> {
    let axes: [&[&str]; 7] = [
        &EVENTS,
        &["absent", "in-flight", "held", "completed"],
        &["mine", "other"],
        &["same", "other"],
        &["retry", "hold"],
        &["live", "over", "beyond"],
        &["live", "over"],
    ];
    axes.iter().enumerate().fold(vec![[""; 7]], |combinations, (at, words)| {
        let with = |combination: [&'static str; 7], word| {
            let mut combination = combination;
            combination[at] = word;
            combination
        };
        combinations
            .into_iter()
            .flat_map(|combination| words.iter().map(move |word| with(combination, *word)))
            .collect()
    })
}

/// A row's pattern and its result.
fn rows() -> Vec<(Vec<&'static str>, Vec<&'static str>)> {
    let rows =
        TABLE.lines().filter(|row| !row.trim().is_empty()).map(|row| row.split_once('=').unwrap());
    rows.map(|(pattern, result)| {
        (pattern.split_whitespace().collect(), result.split_whitespace().collect())
    })
    .collect()
}

fn matches(pattern: &[&str], combination: &[&str; 7]) -> bool {
    assert_eq!(pattern.len(), 7, "{pattern:?}");
    pattern.iter().zip(combination).all(|(pattern, word)| {
        pattern.split('|').any(|pattern| match pattern.strip_suffix('*') {
            Some(start) => word.starts_with(start),
            None => pattern == *word,
        })
    })
}

/// A future time, or the present, which counts as passed.
fn time(word: &str) -> Timestamp {
    match word {
        "live" => NOW.after(LENGTH),
        "beyond" => NOW.after(LENGTH * 2),
        _ => NOW,
    }
}

fn policy(word: &str) -> Abandoned {
    if word == "hold" { Abandoned::Hold } else { Abandoned::Retry }
}

fn record([_, state, owner, _, abandoned, lease, ttl]: [&str; 7]) -> Option<Record> {
    let state = match state {
        "in-flight" => RecordState::InFlight,
        "held" => RecordState::Held,
        "completed" => RecordState::Completed(Bytes::from_static(b"the first recording")),
        _ => return None,
    };
    Some(Record {
        fingerprint: Fingerprint::from_bytes([1; 36]),
        owner: if owner == "mine" { MINE } else { OTHER },
        attempt: 3,
        abandoned: policy(abandoned),
        lease: LENGTH,
        lease_until: time(lease),
        first_seen: Timestamp::from_millis(40_000),
        expires_at: time(ttl),
        state,
        operation: text("operation"),
        principal: Some(Principal::from_bytes([3; 16])),
        completed_at: None,
        status: None,
        notes: Notes {
            reference: Some(text("reference")),
            progress: Some(text("progress")),
            steps: Bytes::from_static(b"steps"),
            input: Bytes::from_static(b"input"),
        },
        history: OLD_HISTORY,
    })
}

fn claim_of([event, _, _, payload, ..]: [&str; 7]) -> Claim {
    let fingerprint = Fingerprint::from_bytes([if payload == "same" { 1 } else { 2 }; 36]);
    let abandoned = policy(event.strip_prefix("claim:").unwrap_or_default());
    let (principal, operation) = (Some(Principal::from_bytes([4; 16])), text("another"));
    Claim { fingerprint, owner: MINE, lease: LEASE, ttl: TTL, abandoned, principal, operation }
}

/// A note without its progress, which the record keeps.
fn note_of(hold: bool) -> Note {
    Note {
        reference: Some(text("new")),
        progress: None,
        step: Bytes::from_static(b" and more"),
        input: Bytes::from_static(b"new"),
        hold,
    }
}

fn text(text: &str) -> ShortText {
    ShortText::new(text).unwrap()
}

/// Replaces the recording and the input, and leaves the steps as they are.
fn replacement(seen: bool) -> Replacement {
    let contents = |text: &'static str, input: &'static str| Contents {
        recording: Bytes::from_static(text.as_bytes()),
        input: Bytes::from_static(input.as_bytes()),
        ..Contents::default()
    };
    // A record has a recording or an input; this one has both.
    let was = contents("the first recording", if seen { "input" } else { "another" });
    Replacement::new(MINE, was, contents("sealed", "sealed"))
}

fn step(combination: [&str; 7]) -> (Change, EventOutcome) {
    let (record, claim) = (record(combination), claim_of(combination));
    let replacement = match (combination[0], combination[1]) {
        ("replace:seen", "completed") => replacement(true),
        ("replace:seen", _) => {
            let Replacement { seen, mut was, becomes } = replacement(true);
            was.recording = Bytes::new();
            Replacement::new(seen, was, becomes)
        }
        _ => replacement(false),
    };
    let event = match combination[0] {
        "claim:retry" | "claim:hold" => Event::Claim(&claim),
        "renew" => Event::Renew(MINE, LEASE),
        "note:empty" => Event::Note(MINE, &Note::default()),
        "note:plain" => Event::Note(MINE, &note_of(false)),
        "note:hold" => Event::Note(MINE, &note_of(true)),
        "complete" => Event::Complete(MINE, &RECORDING),
        "release" => Event::Release(MINE),
        "abandon:retry" => Event::Abandon(MINE, Abandoned::Retry),
        "abandon:hold" => Event::Abandon(MINE, Abandoned::Hold),
        "resolve:complete" => Event::Resolve(MINE, &Resolution::Complete(RECORDING)),
        "resolve:release" => Event::Resolve(MINE, &Resolution::Release),
        "remove:completed" => Event::Remove(Removal::of_completed(MINE)),
        "remove:any" => Event::Remove(Removal::of_any(MINE)),
        "replace:seen" | "replace:other" => Event::Replace(&replacement),
        "append" => Event::Append(Kind::Fenced),
        _ => Event::Purge,
    };
    transition(record.as_ref(), &event, NOW)
}

/// The change that a word of the table stands for.
fn change(word: &str, combination: [&str; 7]) -> Change {
    let old = record(combination);
    let claim = claim_of(combination);
    let put = |change: fn(Record) -> Record| Change::Put(change(old.clone().unwrap()));
    match word {
        "keep" => Change::Keep,
        "remove" => Change::Remove,
        "first" => Change::Put(Record {
            fingerprint: claim.fingerprint,
            owner: MINE,
            attempt: 1,
            abandoned: claim.abandoned,
            lease: LEASE,
            lease_until: NOW.after(LEASE),
            first_seen: NOW,
            expires_at: NOW.after(TTL),
            state: RecordState::InFlight,
            operation: text("another"),
            principal: Some(Principal::from_bytes([4; 16])),
            completed_at: None,
            status: None,
            notes: Notes::default(),
            history: History::EMPTY.with(Kind::Claimed, NOW),
        }),
        "lease" => put(|old| Record { lease: LEASE, lease_until: NOW.after(LEASE), ..old }),
        "shorten" => put(|old| Record { lease_until: NOW.after(LENGTH), ..old }),
        "take" => put(|old| Record {
            owner: MINE,
            attempt: 4,
            lease: LEASE,
            lease_until: NOW.after(LEASE),
            history: appended(Kind::TakenOver),
            ..old
        }),
        "expire" => put(|old| Record {
            lease_until: Timestamp::EPOCH,
            history: appended(Kind::Abandoned),
            ..old
        }),
        "same" => put(|old| old),
        "note" => put(with_notes),
        "note-hold" => put(|old| Record { abandoned: Abandoned::Hold, ..with_notes(old) }),
        "hold" => {
            put(|old| Record { state: RecordState::Held, history: appended(Kind::Held), ..old })
        }
        "append" => put(|old| Record { history: appended(Kind::Fenced), ..old }),
        "replace" => put(|old| Record {
            state: RecordState::Completed(Bytes::from_static(b"sealed")),
            ..with_input(old)
        }),
        "replace-notes" => put(with_input),
        "complete" => put(with_recording),
        "complete-anew" => put(|old| with_new_ttl(with_recording(old))),
        "operator" => put(by_operator),
        "operator-anew" => put(|old| with_new_ttl(by_operator(old))),
        _ => panic!("{word}"),
    }
}

/// The history of an existing record after the event.
fn appended(kind: Kind) -> History {
    OLD_HISTORY.with(kind, NOW)
}

fn by_operator(old: Record) -> Record {
    Record { owner: OPERATOR, history: appended(Kind::Resolved), ..with_recording(old) }
}

fn with_input(old: Record) -> Record {
    let notes = Notes { input: Bytes::from_static(b"sealed"), ..old.notes };
    Record { notes, ..old }
}

fn with_recording(old: Record) -> Record {
    Record {
        state: RecordState::Completed(RECORDING),
        completed_at: Some(NOW),
        status: Some(201),
        notes: Notes { reference: Some(text("reference")), ..Notes::default() },
        history: appended(Kind::Completed),
        ..old
    }
}

fn with_notes(old: Record) -> Record {
    let notes = Notes {
        reference: Some(text("new")),
        progress: Some(text("progress")),
        steps: Bytes::from_static(b"steps and more"),
        input: Bytes::from_static(b"new"),
    };
    Record { notes, ..old }
}

fn with_new_ttl(old: Record) -> Record {
    Record { expires_at: Timestamp::from_millis(160_000), ..old }
}

fn outcome(word: &str) -> EventOutcome {
    let claim = match word {
        "passed" => return EventOutcome::Fence(Fence::Passed),
        "fenced" => return EventOutcome::Fence(Fence::Fenced),
        "resolved" => return EventOutcome::Resolve(ResolveOutcome::Resolved),
        "conflict" => return EventOutcome::Resolve(ResolveOutcome::Conflict),
        "purged" => return EventOutcome::Purge(true),
        "spared" => return EventOutcome::Purge(false),
        "changed" => return EventOutcome::Changed(true),
        "unchanged" => return EventOutcome::Changed(false),
        "appended" => return EventOutcome::Appended,
        "completed" => {
            ClaimOutcome::Rejected(Rejection::Completed(Bytes::from_static(b"the first recording")))
        }
        "held" => ClaimOutcome::Rejected(Rejection::Held {
            newly: false,
            reference: Some(text("reference")),
        }),
        "newly-held" => ClaimOutcome::Rejected(Rejection::Held {
            newly: true,
            reference: Some(text("reference")),
        }),
        "mismatch" => ClaimOutcome::Rejected(Rejection::Mismatch {
            recorded: Fingerprint::from_bytes([1; 36]),
        }),
        "in-flight" => ClaimOutcome::Rejected(Rejection::InFlight {
            lease_left: LENGTH,
            reference: Some(text("reference")),
        }),
        granted => ClaimOutcome::Granted {
            attempt: granted.strip_prefix("granted:").unwrap().parse().unwrap(),
        },
    };
    EventOutcome::Claim(claim)
}

#[test]
fn every_event_in_every_state_has_the_result_of_its_row() {
    let rows = rows();
    let mut used = vec![0_usize; rows.len()];
    for combination in combinations() {
        let fitting: Vec<_> =
            (0..rows.len()).filter(|row| matches(&rows[*row].0, &combination)).collect();
        let [row] = fitting[..] else { panic!("{combination:?} is in {} rows", fitting.len()) };
        used[row] += 1;
        let [change_word, outcome_word] = rows[row].1[..] else { panic!("{:?}", rows[row]) };
        let expected = (change(change_word, combination), outcome(outcome_word));
        assert_eq!(step(combination), expected, "{combination:?}");
    }
    assert_eq!(used.iter().sum::<usize>(), EVENTS.len() * 4 * 48);
    assert!(used.iter().all(|count| *count > 0), "a row is never used");
}

#[test]
fn a_part_of_a_lease_is_left() {
    let half = Record {
        lease: Duration::from_secs(10),
        lease_until: NOW.after(Duration::from_secs(4)),
        ..record(["", "in-flight", "other", "", "retry", "live", "live"]).unwrap()
    };
    assert_eq!(half.lease_left(NOW), Duration::from_secs(4));
}

#[test]
fn a_note_replaces_the_progress() {
    let old = record(["", "in-flight", "mine", "", "retry", "live", "live"]).unwrap();
    let (change, _) = super::note(Some(&old), MINE, &Note::progress(text("further")));
    let notes = Notes { progress: Some(text("further")), ..old.notes.clone() };
    assert_eq!(change, Change::Put(Record { notes, ..old }));
}

#[test]
fn counters_and_times_at_their_end_do_not_wrap() {
    let old = record(["", "in-flight", "other", "", "retry", "over", "live"]).unwrap();
    let last = Record { attempt: u32::MAX, ..old };
    let claim =
        Claim { lease: Duration::MAX, ..claim_of(["claim:retry", "", "", "same", "", "", ""]) };
    let (change, outcome) = super::claim(Some(&last), &claim, NOW);
    assert_eq!(outcome, ClaimOutcome::Granted { attempt: u32::MAX });
    let Change::Put(taken) = change else { panic!("{change:?}") };
    assert_eq!(taken.lease_until, Timestamp::from_millis(u64::MAX));
    assert_eq!(taken.with_shortened_lease(NOW), None);
}
