//! Steps that are not claims or completions of requests.

use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

use async_trait::async_trait;
use sqlx::{MySqlConnection, mysql::MySqlRow};

use crate::{
    engine::{Engine, Resend, Work, execute},
    error::NAME,
    sql::positional::{Positional, Repeated, ids},
};
use idempotent_core::{
    Lease, RecordId, ShortText, StoreError,
    protocol::{AuditEntry, RenewOutcome, Renewal, Resolution, ResolveOutcome, ResumablePage},
};
use idempotent_sql::{
    lease_from_row,
    statement::{Statement, Value},
    steps::{MARKED_PER_STATEMENT, Steps, sql_millis},
};

/// The number of ids in one statement.
const IDS_PER_STATEMENT: usize = 64;

/// Renews leases of the same length.
struct Renew<'a> {
    engine: &'a Engine,
    leases: &'a [Lease],
    extend: Duration,
}

#[async_trait]
impl Work<HashSet<Lease>> for Renew<'_> {
    /// Locks the records and renews those of their owners; returns these.
    async fn run(&self, connection: &mut MySqlConnection) -> Result<HashSet<Lease>, sqlx::Error> {
        let statements = &self.engine.statements;
        let text = statements.renew.text(self.leases.len());
        let lock = Statement::new(&*text, ids(self.leases.iter().map(|lease| &lease.id)));
        let locked = leases(&execute(connection, &lock).await?.rows)?;
        let due: Vec<_> = self.leases.iter().filter(|lease| locked.contains(*lease)).collect();
        if !due.is_empty() {
            let text = statements.renew_locked.text(due.len());
            let mut values = vec![Value::Int(sql_millis(self.extend))];
            values.extend(ids(due.iter().map(|lease| &lease.id)));
            execute(connection, &Statement::new(&*text, values)).await?;
        }
        Ok(due.into_iter().copied().collect())
    }
}

/// Decodes rows with ids and owners.
fn leases(rows: &[MySqlRow]) -> Result<HashSet<Lease>, sqlx::Error> {
    rows.iter().map(lease_from_row).collect::<Result<_, _>>().map_err(sqlx::Error::Decode)
}

pub(crate) async fn renew(
    engine: &Engine,
    leases: &[Renewal],
) -> Result<Vec<RenewOutcome>, StoreError> {
    let mut by_length = BTreeMap::<_, Vec<Lease>>::new();
    for renewal in leases {
        by_length.entry(renewal.extend).or_default().push(renewal.lease);
    }
    let (mut renewed, mut locked) = (HashSet::new(), HashSet::new());
    for (extend, leases) in by_length {
        for leases in leases.chunks(IDS_PER_STATEMENT) {
            let part = renew_some(engine, &Renew { engine, leases, extend }).await;
            let (done, skipped) = part.map_err(|error| engine.store_error("renew", error))?;
            renewed.extend(done);
            locked.extend(skipped);
        }
    }
    let outcome = |renewal: &Renewal| {
        if renewed.contains(&renewal.lease) {
            RenewOutcome::Renewed
        } else if locked.contains(&renewal.lease) {
            // Another transaction has locked the record.
            RenewOutcome::Unknown
        } else {
            RenewOutcome::Fenced
        }
    };
    Ok(leases.iter().map(outcome).collect())
}

/// Returns the leases that were renewed, and those whose records are locked.
async fn renew_some(
    engine: &Engine,
    renew: &Renew<'_>,
) -> Result<(HashSet<Lease>, HashSet<Lease>), sqlx::Error> {
    let renewed = engine.transaction(&engine.pools.renewals, Resend::Always, renew).await?;
    let skipped: Vec<_> = renew.leases.iter().filter(|lease| !renewed.contains(*lease)).collect();
    if skipped.is_empty() {
        return Ok((renewed, HashSet::new()));
    }
    let text = engine.statements.owners.text(skipped.len());
    let owners = Statement::new(&*text, ids(skipped.iter().map(|lease| &lease.id)));
    let owned = engine.try_execute(&owners, Resend::Always, &mut false).await?;
    Ok((renewed, leases(&owned.rows)?))
}

/// Finds records, locks them, and changes them.
struct ChangeLocked<'a> {
    find: Statement<'a, Positional>,
    change: &'a Repeated,
}

#[async_trait]
impl Work<u64> for ChangeLocked<'_> {
    async fn run(&self, connection: &mut MySqlConnection) -> Result<u64, sqlx::Error> {
        let rows = execute(connection, &self.find).await?.rows;
        let found = rows.iter().map(idempotent_sql::id_from_row).collect::<Result<Vec<_>, _>>();
        let found = found.map_err(sqlx::Error::Decode)?;
        for part in found.chunks(IDS_PER_STATEMENT) {
            let text = self.change.text(part.len());
            execute(connection, &Statement::new(&*text, ids(part))).await?;
        }
        Ok(u64::try_from(found.len()).unwrap_or(u64::MAX))
    }
}

pub(crate) async fn purge(engine: &Engine, limit: u32) -> Result<u64, StoreError> {
    let now = engine.now("purge").await?;
    let at = || [Value::Int(now.as_millis().try_into().unwrap_or(i64::MAX))];
    let statements = &engine.statements;
    let steps = &statements.steps;
    let changed = async |find, change| {
        let work = ChangeLocked { find, change };
        let changed = engine.transaction(&engine.pools.renewals, Resend::Always, &work).await;
        changed.map_err(|error| engine.store_error("purge", error))
    };
    let find = steps.purge(limit).with_values(at());
    let removed = changed(find, &statements.delete_locked).await?;
    if removed < u64::from(limit) {
        let find = steps.shorten_expired().with_values(at());
        changed(find, &statements.shorten_locked).await?;
        loop {
            let find = steps.keep(MARKED_PER_STATEMENT).with_values(at());
            let kept = changed(find, &statements.keep_locked).await?;
            if kept < u64::from(MARKED_PER_STATEMENT) {
                break;
            }
        }
    }
    Ok(removed)
}

/// Changes a record and, if it was changed, adds the entry to the log of operators' decisions in
/// the same transaction.
struct ChangeLogged<'a> {
    engine: &'a Engine,
    seen: &'a Lease,
    change: Statement<'a, Positional>,
    audit: &'a AuditEntry,
}

#[async_trait]
impl Work<bool> for ChangeLogged<'_> {
    async fn run(&self, connection: &mut MySqlConnection) -> Result<bool, sqlx::Error> {
        use sqlx::Row as _;
        let statements = &self.engine.statements;
        let before = execute(connection, &statements.before(&self.seen.id)).await?.rows;
        let Some(row) = before.first() else { return Ok(false) };
        if execute(connection, &self.change).await?.changed == 0 {
            return Ok(false);
        }
        let log = statements.log(self.audit, row.try_get("before")?);
        execute(connection, &log).await?;
        Ok(true)
    }
}

/// Changes the record that was seen, and logs that; returns whether it was changed.
pub(crate) async fn change_logged<'a>(
    engine: &'a Engine,
    operation: &'static str,
    seen: &'a Lease,
    change: Statement<'a, Positional>,
    audit: &'a AuditEntry,
) -> Result<bool, StoreError> {
    let work = ChangeLogged { engine, seen, change, audit };
    let changed = engine.transaction(&engine.pools.steps, Resend::UnlessLost, &work).await;
    changed.map_err(|error| engine.store_error(operation, error))
}

pub(crate) async fn resolve(
    engine: &Engine,
    seen: &Lease,
    resolution: &Resolution,
    audit: &AuditEntry,
) -> Result<ResolveOutcome, StoreError> {
    let change = engine.statements.resolve(seen, resolution);
    if change_logged(engine, "resolve", seen, change, audit).await? {
        return Ok(ResolveOutcome::Resolved);
    }
    let shorten = engine.statements.steps.shorten(seen);
    engine.change("resolve", shorten, Resend::Always).await?;
    Ok(ResolveOutcome::Conflict)
}

pub(crate) async fn resumable(
    engine: &Engine,
    operation: &ShortText,
    after: Option<&RecordId>,
    limit: u32,
) -> Result<ResumablePage, StoreError> {
    const OPERATION: &str = "find resumable";
    let statement = Steps::resumable(&engine.statements.steps, operation, after, limit);
    let rows = engine.rows(OPERATION, statement).await?;
    let ids = rows.iter().map(idempotent_sql::id_from_row).collect::<Result<_, _>>();
    let ids = ids.map_err(|source| StoreError::unreadable(NAME, OPERATION, source))?;
    Ok(ResumablePage::of(ids, limit))
}
