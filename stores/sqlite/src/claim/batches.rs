//! First claims and completions that are executed in one transaction.

use std::{
    num::{NonZeroU16, NonZeroUsize},
    time::Duration,
};

use bytes::Bytes;
use sqlx::SqliteConnection;

use crate::{
    connect::connections::{Access, return_connection},
    engine::retry::RetryDeadline,
    error::is_busy,
    sql::statement::{Statement, Value},
    sql::{Statements, claim_values, completion_values},
    store::NAME,
    store::SqliteStore,
    transaction::guarded::{self, LimitedTime},
};
use idempotent_core::{Lease, RecordId, StoreError, protocol::Claim, store::RuntimeThread};
use idempotent_sql::{
    PooledConnection,
    group_commit::{Batch, Batches, GroupCommit, GroupCommitLimits, GroupedStep, InBatch, Turn},
};

/// How many steps are executed side by side before further ones are executed in batches. A file has
/// one writer.
pub(crate) const ALONE: usize = 1;
/// About how many bytes a step writes beside its recording.
const STEP_BYTES: usize = 256;
/// How long the statements of a batch may take; then its steps are executed alone.
const BATCH_LIMIT: Duration = Duration::from_secs(1);
/// The same for a step alone, which then fails. All other writers wait for it, for as long as for a
/// connection.
const STEP_LIMIT: Duration = Duration::from_secs(2);
/// Executes the batches of all stores of the process.
static BATCH_THREAD: RuntimeThread = RuntimeThread::new("idempotency-sqlite");

/// The writes of one table that can be executed in batches.
pub(crate) type Group = GroupCommit<WriteStep, Written>;
/// Whether a step in a batch has changed a record.
type Written = Result<bool, Locked>;

/// A write that can be executed in a batch.
#[derive(Clone)]
pub(crate) enum WriteStep {
    /// Claims a key that has no record, or whose record has expired.
    Claim(RecordId, Claim),
    Complete(Lease, Bytes),
}

/// The file stayed locked by another connection; nothing was executed.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the file stayed locked by another connection")]
pub(crate) struct Locked;

impl GroupedStep for WriteStep {
    fn bytes(&self) -> usize {
        match self {
            Self::Claim(..) => STEP_BYTES,
            Self::Complete(_, recording) => STEP_BYTES + recording.len(),
        }
    }
}

impl WriteStep {
    fn statement(&self, statements: &Statements) -> Statement<'_> {
        match self {
            Self::Claim(id, claim) => statements.claim(id, claim),
            Self::Complete(lease, recording) => statements.complete(lease, recording),
        }
    }
}

/// Settings of group commit.
impl SqliteStore {
    /// Sets whether concurrent claims of new keys and completions are executed in
    /// [batches](#group-commit); the default is `true`.
    #[must_use]
    pub fn group_commit(self, enabled: bool) -> Self {
        let alone = if enabled { ALONE } else { usize::MAX };
        let limits = self.group.limits();
        self.with_limits(GroupCommitLimits { alone, ..limits })
    }

    /// Sets the largest number of steps in a [batch](#group-commit); the default is 64.
    #[must_use]
    pub fn max_batch_steps(self, steps: NonZeroU16) -> Self {
        let limits = self.group.limits();
        self.with_limits(GroupCommitLimits { steps, ..limits })
    }

    /// Sets about how many bytes a [batch](#group-commit) writes, unless a single step is larger;
    /// the default is 1 MiB.
    #[must_use]
    pub fn max_batch_bytes(self, bytes: NonZeroUsize) -> Self {
        let limits = self.group.limits();
        self.with_limits(GroupCommitLimits { bytes, ..limits })
    }

    pub(crate) fn with_limits(self, limits: GroupCommitLimits) -> Self {
        Self { group: Group::new(limits), ..self }
    }
}

impl SqliteStore {
    /// Executes a step alone or in a batch; returns whether it changed a record.
    pub(crate) async fn write_in_turn(
        &self,
        operation: &'static str,
        step: WriteStep,
    ) -> Result<bool, StoreError> {
        let start = |batches| match BATCH_THREAD.start() {
            Ok(runtime) => drop(runtime.spawn(self.clone().execute_batches(batches))),
            // The steps are then executed alone.
            Err(_) => drop(batches),
        };
        match self.group.turn(|| step.clone(), start).await {
            Turn::Alone(_turn) => {
                let statement = || step.statement(&self.statements);
                Ok(self.write_within(Some(STEP_LIMIT), operation, statement).await? == 1)
            }
            Turn::Done(Ok(changed)) => Ok(changed),
            Turn::Done(Err(locked)) => Err(StoreError::transient(NAME, operation, locked)),
            Turn::TimedOut => Err(self.store_error(operation, sqlx::Error::PoolTimedOut)),
        }
    }

    async fn execute_batches(self, mut batches: Batches<WriteStep, Written>) {
        while let Some((connection, mut batch)) = batches.next(&self.writer).await {
            // Claims first, as in the outcomes of the batch.
            batch.sort_by_key(|(step, _)| matches!(step, WriteStep::Complete(..)));
            match self.execute_batch(connection, &batch).await {
                Ok(changed) => {
                    for ((_, reply), changed) in batch.into_iter().zip(changed) {
                        reply.send(InBatch::Done(Ok(changed)));
                    }
                }
                Err(error) => {
                    let locked = is_busy(&error);
                    let table = self.statements.table.as_str();
                    if locked {
                        tracing::debug!(table, %error, "a batch failed, and its steps fail");
                    } else {
                        tracing::debug!(table, %error, "a batch failed; executing its steps alone");
                    }
                    for (_, reply) in batch {
                        reply.send(if locked {
                            InBatch::Done(Err(Locked))
                        } else {
                            InBatch::Alone
                        });
                    }
                }
            }
        }
    }

    /// Executes a batch in one transaction; returns which steps have changed a record.
    async fn execute_batch(
        &self,
        connection: Result<PooledConnection<SqliteConnection>, sqlx::Error>,
        batch: &Batch<WriteStep, Written>,
    ) -> Result<Vec<bool>, sqlx::Error> {
        let mut connection = self.begin_batch(self.ready_to_write(connection?).await?).await?;
        let mut written = self.write_together(&mut connection, batch).await;
        if let Ok(None) = written {
            if let Err(error) = sqlx::query("ROLLBACK").execute(&mut *connection).await {
                connection.close();
                return Err(error);
            }
            connection = self.begin_batch(connection).await?;
            written = self.write_each(&mut connection, batch).await.map(Some);
        }
        match written {
            Ok(_) => connection.give_back(),
            // This rolls the transaction back.
            Err(_) => connection.close(),
        }
        written.map(Option::unwrap_or_default)
    }

    /// Begins a transaction, as soon as no other connection has one.
    async fn begin_batch(
        &self,
        mut connection: PooledConnection<SqliteConnection>,
    ) -> Result<PooledConnection<SqliteConnection>, sqlx::Error> {
        let deadline = RetryDeadline::on(&self.writer);
        loop {
            let begun = sqlx::query("BEGIN IMMEDIATE").execute(&mut *connection).await;
            let Err(error) = begun else { return Ok(connection) };
            if is_busy(&error) {
                guarded::observe_lock(&mut connection, &self.lock).await;
            }
            return_connection(connection, Err(error))
                .or_else(|error| if deadline.allows_retry(&error) { Ok(()) } else { Err(error) })?;
            connection = self.connection(Access::Write).await?;
        }
    }

    /// Writes all steps by one statement a kind, and commits; returns `None` without a commit if
    /// some steps have changed no record.
    async fn write_together(
        &self,
        connection: &mut PooledConnection<SqliteConnection>,
        batch: &Batch<WriteStep, Written>,
    ) -> Result<Option<Vec<bool>>, sqlx::Error> {
        let _limited = LimitedTime::begin(connection, BATCH_LIMIT).await?;
        let ((claims, completions), statements) = (values(batch), &self.statements);
        if statements.claim_batch.changes_all(connection, &claims).await?
            && statements.complete_batch.changes_all(connection, &completions).await?
        {
            sqlx::query("COMMIT").execute(&mut **connection).await?;
            return Ok(Some(vec![true; batch.len()]));
        }
        Ok(None)
    }

    /// Writes each step by a statement of its own, and commits.
    async fn write_each(
        &self,
        connection: &mut PooledConnection<SqliteConnection>,
        batch: &Batch<WriteStep, Written>,
    ) -> Result<Vec<bool>, sqlx::Error> {
        let _limited = LimitedTime::begin(connection, BATCH_LIMIT).await?;
        let ((claims, completions), statements) = (values(batch), &self.statements);
        let mut changed = statements.claim_batch.execute_each(connection, &claims).await?;
        changed.extend(statements.complete_batch.execute_each(connection, &completions).await?);
        sqlx::query("COMMIT").execute(&mut **connection).await?;
        Ok(changed)
    }
}

/// The parameters of the claims and of the completions.
fn values(batch: &Batch<WriteStep, Written>) -> (Vec<[Value<'_>; 8]>, Vec<[Value<'_>; 4]>) {
    let (mut claims, mut completions) = (Vec::new(), Vec::new());
    for (step, _) in batch {
        match step {
            WriteStep::Claim(id, claim) => claims.push(claim_values(id, claim)),
            WriteStep::Complete(lease, recording) => {
                completions.push(completion_values(lease, recording));
            }
        }
    }
    (claims, completions)
}
