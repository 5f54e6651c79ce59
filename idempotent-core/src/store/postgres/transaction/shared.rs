//! Claims in transactions on connections of the application's. What begins there must be sqlx's own call, which gives no rows and writes no
//! log; so a claim that changes nothing makes it fail.

use std::{fmt::Write as _, time::Duration};

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

use super::{CHANGED, Mark, TAKEN, code, in_flight};
use crate::{
    error::StoreError,
    lease::OwnerToken,
    record::RecordId,
    store::{
        Claim, ClaimedWithin,
        postgres::{
            NAME, PostgresStore,
            claiming::ROUNDS,
            error::{Kind, LOCKED, kind, waited_for_a_record},
            run::LIMIT,
        },
        sql::{Contended, Open},
    },
    transition::{self, Change},
};

/// How a claim within a transaction is written.
enum Write {
    Insert,
    StartOver(OwnerToken),
    TakeOver(OwnerToken),
}

impl PostgresStore {
    /// Reads first: a replay that went by a failing claim would be a line in the server's log.
    pub(super) async fn claim_within_shared(
        &self,
        id: &RecordId,
        claim: &Claim,
        patience: Duration,
    ) -> Result<ClaimedWithin, StoreError> {
        for _ in 0..ROUNDS {
            let (write, attempt) = match self.read("claim", self.statements.read(id)).await? {
                Some((None, _)) | None => (Write::Insert, 1),
                Some((Some(record), now)) => {
                    let (change, outcome) = transition::claim(Some(&record), claim, now);
                    let Change::Put(new) = change else { return Ok(ClaimedWithin::Told(outcome)) };
                    // What is not granted is written outside of the transaction.
                    if new.owner != claim.owner {
                        match self.write_claim(id, claim, &record, false, &new).await {
                            Ok(true) => return Ok(ClaimedWithin::Told(outcome)),
                            Ok(false) => continue,
                            Err(error) if waited_for_a_record(&error) => return Ok(in_flight()),
                            Err(error) => return Err(self.failed("claim", error)),
                        }
                    }
                    let over = if record.expired(now) { Write::StartOver } else { Write::TakeOver };
                    (over(record.owner), new.attempt)
                }
            };
            // Between the read and this write the record may change; it repeats every guard and names the owner that was seen (case
            // `one_of_many_concurrent_takeovers_wins`).
            let mark = Mark::new();
            let message = self.message(id, claim, &write, (patience, mark));
            let begin = |connection| Open::begin(connection, message.clone(), leaves_nothing);
            let error = match self.begun(patience + LIMIT, begin).await {
                Ok(open) => {
                    return Ok(ClaimedWithin::Granted { attempt, transaction: Box::new(self.opened(open, mark)) });
                }
                Err(error) => error,
            };
            match code(&error).as_deref() {
                Some(LOCKED) if waited_for_a_record(&error) => return Ok(in_flight()),
                Some(TAKEN | CHANGED) => {}
                _ if kind(&error) == Kind::Conflict => {}
                _ => return Err(self.failed("claim", error)),
            }
        }
        Err(StoreError::transient(NAME, "claim", Contended))
    }

    /// Claims, begins, and sets the savepoint. The setting of the application's session is as it was afterwards.
    fn message(&self, id: &RecordId, claim: &Claim, claiming: &Write, (patience, mark): (Duration, Mark)) -> SqlStr {
        let patience = i32::try_from(patience.as_millis()).unwrap_or(i32::MAX);
        let mut text = format!(
            "SELECT set_config('idempotent.lock_timeout', current_setting('lock_timeout'), true), \
             set_config('lock_timeout', '{patience}', true); "
        );
        match claiming {
            Write::Insert => self.statements.insert(id, claim).write(&mut text),
            Write::StartOver(seen) => self.statements.start_over(id, claim, seen).write_checked(&mut text),
            Write::TakeOver(seen) => self.statements.take_over(id, claim, seen).write_checked(&mut text),
        }
        let _ = write!(
            text,
            "; BEGIN; SELECT set_config('lock_timeout', current_setting('idempotent.lock_timeout'), true); {}; SAVEPOINT {}",
            mark.set_and_bound(self.pools.server),
            mark.savepoint()
        );
        AssertSqlSafe(text).into_sql_str()
    }
}

/// Whether a message that begins a transaction has left nothing open. The claim comes before the `BEGIN`, so that a claim that fails ends
/// the transaction that the message by itself would be.
fn leaves_nothing(error: &sqlx::Error) -> bool {
    matches!(code(error).as_deref(), Some(LOCKED | TAKEN | CHANGED)) || kind(error) == Kind::Conflict
}
