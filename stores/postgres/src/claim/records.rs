//! What is done to records otherwise: they are renewed, found, resolved and removed.

use std::collections::HashMap;

use sqlx::{Row as _, postgres::PgRow};

use crate::{
    engine::{Engine, Resend},
    error::NAME,
};
use idempotent_core::{
    Lease, RecordId, ShortText, StoreError,
    protocol::{
        AuditEntry, RenewOutcome, Renewal, Resolution, ResolveOutcome, ResumablePage, Snapshot,
    },
};
use idempotent_sql::{snapshot, statement::Statement, steps::MARKED_PER_STATEMENT};

/// The number of leases in one statement, so that it ends well before the server's time limit.
const RENEWALS_PER_STATEMENT: usize = 1_000;

pub(crate) async fn renew(
    engine: &Engine,
    leases: &[Renewal],
) -> Result<Vec<RenewOutcome>, StoreError> {
    if leases.is_empty() {
        return Ok(Vec::new());
    }
    let (statements, connections) = (engine.statements("renew").await?, &engine.pools.renewals);
    let mut renewals = HashMap::new();
    for leases in leases.chunks(RENEWALS_PER_STATEMENT) {
        let statement = statements.renew(leases);
        let renewing = engine.execute_on(connections, "renew", statement, Resend::UnlessLocked);
        for row in renewing.await? {
            let (lease, renewed) =
                renewed(&row).map_err(|source| StoreError::permanent(NAME, "renew", source))?;
            renewals.insert(lease, renewed);
        }
    }
    let outcome = |renewal: &Renewal| match renewals.get(&renewal.lease) {
        Some(true) => RenewOutcome::Renewed,
        // Another transaction has locked the record.
        Some(false) => RenewOutcome::Unknown,
        None => RenewOutcome::Fenced,
    };
    Ok(leases.iter().map(outcome).collect())
}

/// Decodes a row of `renew.sql`.
fn renewed(row: &PgRow) -> Result<(Lease, bool), Box<dyn std::error::Error + Send + Sync>> {
    Ok((idempotent_sql::lease_from_row(row)?, row.try_get("renewed")?))
}

pub(crate) async fn look_up(
    engine: &Engine,
    id: &RecordId,
) -> Result<Option<Snapshot>, StoreError> {
    let statement = engine.statements("look up").await?.steps.read(id);
    Ok(engine.read("look up", statement).await?.and_then(snapshot))
}

pub(crate) async fn resolve(
    engine: &Engine,
    seen: &Lease,
    resolution: &Resolution,
    audit: &AuditEntry,
) -> Result<ResolveOutcome, StoreError> {
    let statements = engine.statements("resolve").await?;
    let statement = statements.resolve(seen, resolution, audit);
    if engine.change("resolve", statement, Resend::UnlessLost).await? {
        return Ok(ResolveOutcome::Resolved);
    }
    engine.change("resolve", statements.steps.shorten(seen), Resend::Always).await?;
    Ok(ResolveOutcome::Conflict)
}

pub(crate) async fn purge(engine: &Engine, limit: u32) -> Result<u64, StoreError> {
    let steps = &engine.statements("purge").await?.steps;
    let removed = count_changed(engine, steps.purge(limit)).await?;
    if removed < u64::from(limit) {
        engine.execute("purge", steps.shorten_expired(), Resend::Always).await?;
        while count_changed(engine, steps.keep(MARKED_PER_STATEMENT)).await?
            == u64::from(MARKED_PER_STATEMENT)
        {}
    }
    Ok(removed)
}

async fn count_changed(engine: &Engine, statement: Statement<'_>) -> Result<u64, StoreError> {
    let rows = engine.execute("purge", statement, Resend::Always).await?;
    let count = rows.first().map(|row| row.try_get::<i64, _>("changed")).transpose();
    let count = count.map_err(|error| engine.store_error("purge", error))?;
    Ok(count.and_then(|count| u64::try_from(count).ok()).unwrap_or_default())
}

pub(crate) async fn resumable(
    engine: &Engine,
    operation: &ShortText,
    after: Option<&RecordId>,
    limit: u32,
) -> Result<ResumablePage, StoreError> {
    const OPERATION: &str = "find resumable";
    let statement = engine.statements(OPERATION).await?.steps.resumable(operation, after, limit);
    let rows = engine.execute(OPERATION, statement, Resend::Always).await?;
    let ids = rows.iter().map(idempotent_sql::id_from_row).collect::<Result<_, _>>();
    let ids = ids.map_err(|source| StoreError::unreadable(NAME, OPERATION, source))?;
    Ok(ResumablePage::of(ids, limit))
}
