//! The guards of the state machine and of the memory store, and what each is replaced by.

/// A guard in a source file.
pub(super) struct SourceMutant {
    /// The file, in `idempotent-core/src`.
    pub(super) file: &'static str,
    /// The text of the guard, which occurs once in the file.
    pub(super) guard: &'static str,
    pub(super) replacement: &'static str,
}

const fn mutant(
    file: &'static str,
    guard: &'static str,
    replacement: &'static str,
) -> SourceMutant {
    SourceMutant { file, guard, replacement }
}

const TRANSITION: &str = "transition.rs";
const RECORD: &str = "record.rs";
const SHARD: &str = "store/memory/shard.rs";
const SHARES: &str = "store/memory/shares.rs";
pub(super) const FILES: [&str; 4] = [TRANSITION, RECORD, SHARD, SHARES];
/// The tests that notice.
pub(super) const TESTS: [&str; 3] =
    ["transition/table.rs", "transition/histories.rs", "store/memory/tests.rs"];

pub(super) const MUTANTS: &[SourceMutant] = &[
    mutant(TRANSITION, "Some(record) if record.is_expired(now) => (", "Some(_) => ("),
    mutant(TRANSITION, "if record.expires_at <= now && record.abandoned", "if record.abandoned"),
    mutant(TRANSITION, " && record.abandoned == Abandoned::Retry => {", " => {"),
    mutant(
        TRANSITION,
        "(keep(record, now), EventOutcome::Purge",
        "(Change::Keep, EventOutcome::Purge",
    ),
    mutant(
        TRANSITION,
        "record.with_shortened_lease(now).map_or(Change::Keep, Change::Put)",
        "Change::Keep",
    ),
    mutant(TRANSITION, "record.filter(|record| !record.is_expired(now)) else", "record else"),
    mutant(
        TRANSITION,
        "let in_flight = record.state == RecordState::InFlight;",
        "let in_flight = true;",
    ),
    mutant(TRANSITION, "if in_flight && record.owner", "if record.owner"),
    mutant(TRANSITION, "in_flight && record.owner == claim.owner", "in_flight"),
    mutant(TRANSITION, "in_flight && record.owner == claim.owner {", "false {"),
    mutant(TRANSITION, "if record.fingerprint != claim.fingerprint {", "if false {"),
    mutant(
        TRANSITION,
        "rejected(keep(record, now), Rejection::Mismatch",
        "rejected(Change::Keep, Rejection::Mismatch",
    ),
    mutant(
        TRANSITION,
        "RecordState::InFlight if !record.lease_expired(now) =>",
        "RecordState::InFlight if false =>",
    ),
    mutant(
        TRANSITION,
        "rejected(keep(record, now), Rejection::InFlight",
        "rejected(Change::Keep, Rejection::InFlight",
    ),
    mutant(TRANSITION, "record.abandoned.or(claim.abandoned)", "record.abandoned"),
    mutant(TRANSITION, "record.abandoned.or(claim.abandoned)", "claim.abandoned"),
    mutant(TRANSITION, "saturating_add(1)", "wrapping_add(1)"),
    mutant(TRANSITION, "let late = record.expires_at <= now;", "let late = true;"),
    mutant(TRANSITION, "let late = record.expires_at <= now;", "let late = false;"),
    mutant(TRANSITION, "if late { now.after(ttl) } else { record.expires_at }", "now.after(ttl)"),
    mutant(
        TRANSITION,
        "record.filter(|record| record.state == RecordState::InFlight && record.owner == owner)",
        "{ let _ = owner; record }",
    ),
    mutant(TRANSITION, "record.state == RecordState::InFlight && record.owner", "record.owner"),
    mutant(TRANSITION, " && record.owner == owner)", ")"),
    mutant(TRANSITION, "match record.filter(|record| record.owner == owner) {", "match record {"),
    mutant(
        TRANSITION,
        "RecordState::Completed(_) => (Change::Keep, Fence::Passed),\n            \
         RecordState::InFlight | RecordState::Held => {",
        "_ => {",
    ),
    mutant(TRANSITION, "match record.abandoned.or(policy) {", "match record.abandoned {"),
    mutant(TRANSITION, "match record.abandoned.or(policy) {", "match policy {"),
    mutant(TRANSITION, "if note.hold { Abandoned::Hold }", "if true { Abandoned::Hold }"),
    mutant(TRANSITION, "abandoned: record.abandoned.or(policy)", "abandoned: record.abandoned"),
    mutant(TRANSITION, "abandoned: record.abandoned.or(policy)", "abandoned: policy"),
    mutant(TRANSITION, "(true, _) => note.step.clone(),", "(true, _) => Bytes::new(),"),
    mutant(TRANSITION, "(false, true) => steps.clone(),", "(false, true) => Bytes::new(),"),
    mutant(TRANSITION, "[&steps[..], &note.step].concat().into()", "note.step.clone()"),
    mutant(TRANSITION, "note.reference.as_ref().or(reference.as_ref())", "note.reference.as_ref()"),
    mutant(TRANSITION, "note.progress.as_ref().or(progress.as_ref())", "note.progress.as_ref()"),
    mutant(
        TRANSITION,
        "if note.input.is_empty() { input } else { &note.input }.clone()",
        "note.input.clone()",
    ),
    mutant(TRANSITION, "completed_at: Some(now)", "completed_at: None"),
    mutant(TRANSITION, "status: EncodedRecording::status_of(recording)", "status: None"),
    mutant(TRANSITION, "lease_until: Timestamp::EPOCH, ", ""),
    mutant(
        TRANSITION,
        "match record.filter(|record| record.is_held(now) && record.owner == seen) {",
        "match record {",
    ),
    mutant(TRANSITION, "record.is_held(now) && ", ""),
    mutant(TRANSITION, " && record.owner == seen) {", ") {"),
    mutant(TRANSITION, "owner: OPERATOR, ", ""),
    mutant(TRANSITION, "record.filter(|record| record.owner == seen);", "record;"),
    mutant(
        TRANSITION,
        "seen.map_or(Change::Keep, |record| keep(record, now))",
        "{ let _ = seen; Change::Keep }",
    ),
    mutant(RECORD, "self.lease_until <= now", "true"),
    mutant(RECORD, "self.lease_until <= now", "self.lease_until < now"),
    mutant(RECORD, ".min(self.lease)", ""),
    mutant(RECORD, "self.state == RecordState::InFlight && self", "self"),
    mutant(RECORD, " && self.lease_until > lease_until;", ";"),
    mutant(RECORD, "self.expires_at <= now\n            && ", ""),
    mutant(RECORD, "self.expires_at <= now\n", "self.expires_at < now\n"),
    mutant(RECORD, "RecordState::Completed(_) => true,", "RecordState::Completed(_) => false,"),
    mutant(RECORD, "self.lease_expired(now) && self.abandoned == Abandoned::Retry", "true"),
    mutant(
        RECORD,
        "self.lease_expired(now) && self.abandoned == Abandoned::Re",
        "self.abandoned == Abandoned::Re",
    ),
    mutant(RECORD, " && self.abandoned == Abandoned::Retry", ""),
    mutant(RECORD, "RecordState::Held => false,", "RecordState::Held => true,"),
    mutant(RECORD, "RecordState::Held => true,", "RecordState::Held => false,"),
    mutant(
        RECORD,
        "self.lease_expired(now) && self.abandoned == Abandoned::Ho",
        "self.abandoned == Abandoned::Ho",
    ),
    mutant(RECORD, " && self.abandoned == Abandoned::Hold", ""),
    mutant(
        RECORD,
        "\n            RecordState::Completed(_) => false,",
        "\n            RecordState::Completed(_) => true,",
    ),
    mutant(
        RECORD,
        "=> self.abandoned == Abandoned::Retry && self.lease_expired(now),",
        "=> self.lease_expired(now),",
    ),
    mutant(
        RECORD,
        "=> self.abandoned == Abandoned::Retry && self.lease_expired(now),",
        "=> self.abandoned == Abandoned::Retry,",
    ),
    mutant(
        RECORD,
        "RecordState::Held | RecordState::Completed(_) => false",
        "RecordState::Held | RecordState::Completed(_) => true",
    ),
    mutant(RECORD, "abandoned && now < self", "now < self"),
    mutant(RECORD, " && now < self.expires_at", ""),
    mutant(RECORD, "now < self.expires_at", "now <= self.expires_at"),
    mutant(RECORD, " && !self.notes.input.is_empty()", ""),
    mutant(SHARD, ".filter(|(_, record)| record.is_resumable(now))", ""),
    mutant(SHARD, ".filter(|(_, record)| record.operation == *operation)", ""),
    mutant(SHARD, ".filter(|(id, _)| after.is_none_or(|after| *id > after))", ""),
    mutant(SHARD, "self.inputs.fetch_add(new.inputs, Ordering::Relaxed);", ""),
    mutant(SHARD, " + record.notes.steps.len()", ""),
    mutant(SHARD, " + record.notes.input.len()", ""),
    mutant(SHARD, "Change::Keep => false,", "Change::Keep => true,"),
    mutant(SHARD, "Change::Remove => true,", "Change::Remove => false,"),
    mutant(SHARD, "**record = shortened;", "let _ = shortened;"),
    mutant(SHARD, "expired.take(limit)", "{ let _ = limit; expired }"),
    mutant(SHARD, "self.capacity.take(new);", ""),
    mutant(
        SHARD,
        "if let Some(old) = self.map.remove(&self.id) {\n                    \
         self.capacity.give_back(Usage::of(&old));",
        "if let Some(old) = self.map.remove(&self.id) {\n                    drop(old);",
    ),
    mutant(SHARD, "if old != new {", "if false {"),
    mutant(SHARD, "if self.capacity.admits(principal).is_err() {", "if false {"),
    mutant(SHARD, "        self.capacity.admits(principal)\n", "        Ok(())\n"),
    mutant(SHARD, "if self.records.is_full() || self.bytes.is_full() {", "if false {"),
    mutant(SHARD, "self.records.is_full() || ", ""),
    mutant(SHARD, " || self.bytes.is_full()", ""),
    mutant(SHARD, "self.records.is_half_full() || ", ""),
    mutant(SHARD, " || self.bytes.is_half_full()", ""),
    mutant(SHARD, "if half && self.shares", "if self.shares"),
    mutant(SHARD, " && self.shares.is_used_up(principal)", ""),
    mutant(SHARD, "self.used() >= self.max\n", "self.used() > self.max\n"),
    mutant(SHARD, "self.used() >= self.max / 2", "self.used() > self.max / 2"),
    mutant(
        SHARD,
        "if let Some(principal) = new.principal {\n            self.shares.take(principal, \
         new.bytes);\n        }",
        "",
    ),
    mutant(
        SHARD,
        "if let Some(principal) = old.principal {\n            self.shares.give_back(principal, \
         old.bytes);\n        }",
        "",
    ),
    mutant(SHARES, "used.records >= self.share.records || ", ""),
    mutant(SHARES, " || used.bytes >= self.share.bytes", ""),
];
