//! First claims and completions that are executed in one transaction.

use std::time::Duration;

use sqlx::SqliteConnection;

use crate::{
    connect::{
        connections::{Access, return_connection},
        hooked::LimitedTime,
    },
    engine::{
        Engine,
        group::{Locked, WriteStep, Written},
        retry::RetryDeadline,
    },
    error::{NAME, is_busy},
    sql::Statements,
};
use idempotent_core::{StoreError, store::RuntimeThread};
use idempotent_sql::{
    PooledConnection,
    group_commit::{Batch, Batches, InBatch, Turn},
    statement::Value,
};

/// How long the statements of a batch may take; then its steps are executed alone. Only a
/// statement that computes for long exceeds the limit, as that of a slow trigger does.
const BATCH_LIMIT: Duration = Duration::from_millis(100);
/// The same for a step alone, which then fails. All other writers wait for it.
const STEP_LIMIT: Duration = Duration::from_millis(200);
/// Executes the batches of all stores of the process.
static BATCH_THREAD: RuntimeThread = RuntimeThread::new("idempotency-sqlite");

/// Executes a step alone or in a batch; returns whether it changed a record.
pub(crate) async fn write_in_turn(
    engine: &Engine,
    operation: &'static str,
    step: WriteStep,
) -> Result<bool, StoreError> {
    let start = |batches| match BATCH_THREAD.start() {
        Ok(runtime) => drop(runtime.spawn(execute_batches(engine.clone(), batches))),
        // The steps are then executed alone.
        Err(_) => drop(batches),
    };
    match engine.group.turn(|| step.clone(), start).await {
        Turn::Alone(_turn) => {
            let statement = || step.statement(&engine.statements.steps);
            Ok(engine.write_within(Some(STEP_LIMIT), operation, statement).await? == 1)
        }
        Turn::Done(Ok(changed)) => Ok(changed),
        Turn::Done(Err(locked)) => Err(StoreError::transient(NAME, operation, locked)),
        Turn::TimedOut => Err(engine.store_error(operation, sqlx::Error::PoolTimedOut)),
    }
}

async fn execute_batches(engine: Engine, mut batches: Batches<WriteStep, Written>) {
    while let Some((connection, mut batch)) = batches.next(&engine.connections.writer).await {
        // Claims first, as in the outcomes of the batch.
        batch.sort_by_key(|(step, _)| matches!(step, WriteStep::Complete(..)));
        match execute_batch(&engine, connection, &batch).await {
            Ok(changed) => {
                for ((_, reply), changed) in batch.into_iter().zip(changed) {
                    reply.send(InBatch::Done(Ok(changed)));
                }
            }
            Err(error) => {
                let locked = is_busy(&error);
                let table = engine.statements.table.as_str();
                if locked {
                    tracing::debug!(table, %error, "a batch failed, and its steps fail");
                } else {
                    tracing::debug!(table, %error, "a batch failed; executing its steps alone");
                }
                for (_, reply) in batch {
                    reply.send(if locked { InBatch::Done(Err(Locked)) } else { InBatch::Alone });
                }
            }
        }
    }
}

/// Executes a batch in one transaction; returns which steps have changed a record.
async fn execute_batch(
    engine: &Engine,
    connection: Result<PooledConnection<SqliteConnection>, sqlx::Error>,
    batch: &Batch<WriteStep, Written>,
) -> Result<Vec<bool>, sqlx::Error> {
    let mut connection =
        begin_batch(engine, engine.connections.ready_to_write(connection?).await?).await?;
    let mut written = write_together(&engine.statements, &mut connection, batch).await;
    if let Ok(None) = written {
        if let Err(error) = sqlx::query("ROLLBACK").execute(&mut *connection).await {
            connection.close();
            return Err(error);
        }
        connection = begin_batch(engine, connection).await?;
        written = write_each(&engine.statements, &mut connection, batch).await.map(Some);
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
    engine: &Engine,
    mut connection: PooledConnection<SqliteConnection>,
) -> Result<PooledConnection<SqliteConnection>, sqlx::Error> {
    let deadline = RetryDeadline::on(&engine.connections.writer);
    loop {
        let begun = sqlx::query("BEGIN IMMEDIATE").execute(&mut *connection).await;
        let Err(error) = begun else { return Ok(connection) };
        if is_busy(&error) {
            engine.lock.observe(&mut connection).await;
        }
        return_connection(connection, Err(error))
            .or_else(|error| if deadline.allows_retry(&error) { Ok(()) } else { Err(error) })?;
        connection = engine.connections.get(Access::Write).await?;
    }
}

/// Writes all steps by one statement a kind, and commits; returns `None` without a commit if
/// some steps have changed no record.
async fn write_together(
    statements: &Statements,
    connection: &mut PooledConnection<SqliteConnection>,
    batch: &Batch<WriteStep, Written>,
) -> Result<Option<Vec<bool>>, sqlx::Error> {
    let _limited = LimitedTime::begin(connection, BATCH_LIMIT).await?;
    let (claims, completions) = values(statements, batch);
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
    statements: &Statements,
    connection: &mut PooledConnection<SqliteConnection>,
    batch: &Batch<WriteStep, Written>,
) -> Result<Vec<bool>, sqlx::Error> {
    let _limited = LimitedTime::begin(connection, BATCH_LIMIT).await?;
    let (claims, completions) = values(statements, batch);
    let mut changed = statements.claim_batch.execute_each(connection, &claims).await?;
    changed.extend(statements.complete_batch.execute_each(connection, &completions).await?);
    sqlx::query("COMMIT").execute(&mut **connection).await?;
    Ok(changed)
}

/// The parameters of each claim and of each completion.
fn values<'a>(
    Statements { steps, .. }: &'a Statements,
    batch: &'a Batch<WriteStep, Written>,
) -> (Vec<Vec<Value<'a>>>, Vec<Vec<Value<'a>>>) {
    let (mut claims, mut completions) = (Vec::new(), Vec::new());
    for (step, _) in batch {
        let values = step.statement(steps).values;
        match step {
            WriteStep::Claim(..) => claims.push(values),
            WriteStep::Complete(..) => completions.push(values),
        }
    }
    (claims, completions)
}
