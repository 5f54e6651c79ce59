//! What the annotated handlers need.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError, Weak},
};

use idempotent_core::StoreError;

use super::{Idempotency, Inner};
use crate::declaration::{Declaration, TxDatabase, annotated};

/// The handles of this process: several applications in it may have a store each.
static HANDLES: Mutex<Vec<Weak<Inner>>> = Mutex::new(Vec::new());

pub(super) fn register(handle: &Arc<Inner>) {
    let mut handles = HANDLES.lock().unwrap_or_else(PoisonError::into_inner);
    handles.retain(|handle| handle.strong_count() > 0);
    handles.push(Arc::downgrade(handle));
}

/// Whether some handle of this process has a store with transactions of this database.
fn is_served(database: TxDatabase) -> bool {
    let handles = HANDLES.lock().unwrap_or_else(PoisonError::into_inner);
    handles.iter().filter_map(Weak::upgrade).any(|handle| {
        let transactions = handle.runtime.transactions();
        transactions.is_some_and(|transactions| transactions.database() == database.id)
    })
}

impl Idempotency {
    /// Logs once that this process has other handles of the same namespace, which may be in one
    /// `App` by mistake. That cannot be seen when they are added: an `App` drops the earlier one.
    pub(super) fn log_others(&self) {
        let handles = HANDLES.lock().unwrap_or_else(PoisonError::into_inner);
        let namespace = self.inner.runtime.namespace();
        let handles = handles.iter().filter_map(Weak::upgrade);
        let others = handles.filter(|other| {
            !Arc::ptr_eq(other, &self.inner) && other.runtime.namespace() == namespace
        });
        let others: BTreeSet<_> = others.map(|other| other.origin.to_string()).collect();
        if others.is_empty() {
            return;
        }
        self.inner.others.call_once(|| {
            let others = Vec::from_iter(others).join("; ");
            let handle = self.origin();
            tracing::warn!(
                namespace, %handle, others,
                "this process has several `Idempotency` of one namespace; if they are added to one \
                 `App`, a handler uses the innermost, or of two at one place the last. If that is \
                 meant, give each a namespace"
            );
        });
    }

    /// Verifies what the annotated handlers need of the settings, of each other, and of a store.
    pub(super) fn check_operations(&self) -> Result<(), StoreError> {
        annotated().try_for_each(|operation| self.policy(operation).map(drop)).map_err(error)?;
        without_transactions(annotated(), is_served).map_err(error)?;
        same_name(annotated(), |operation| self.namespace_of(operation)).map_err(error)
    }
}

/// Fails if a handler takes a `Tx` of a database that is not served.
fn without_transactions(
    operations: impl Iterator<Item = &'static Declaration>,
    is_served: impl Fn(TxDatabase) -> bool,
) -> Result<(), UnservedTransactions> {
    // Another handle may be built or dropped meanwhile; the list has all handlers of a database, or
    // none of them.
    let mut served = HashMap::new();
    let mut unserved: Vec<_> = operations
        .filter_map(|operation| Some((operation.handler, operation.transaction()?)))
        .filter(|(_, database)| !*served.entry(database.id).or_insert_with(|| is_served(*database)))
        .map(|(handler, database)| format!("`{handler}` ({})", database.name))
        .collect();
    unserved.sort_unstable();
    if unserved.is_empty() {
        Ok(())
    } else {
        Err(UnservedTransactions { handlers: unserved.join(", ") })
    }
}

/// Fails if two handlers have the same `name` in a namespace.
fn same_name<'a>(
    operations: impl Iterator<Item = &'static Declaration>,
    namespace_of: impl Fn(&'static Declaration) -> &'a str,
) -> Result<(), SameName> {
    let mut named = HashMap::new();
    for operation in operations.filter(|operation| !operation.name.is_empty()) {
        if let Some(other) = named.insert((namespace_of(operation), operation.name), operation) {
            return Err(SameName { operation, other });
        }
    }
    Ok(())
}

fn error(source: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::permanent("settings", "check", source)
}

/// No store has the transactions that handlers take.
#[derive(Debug, thiserror::Error)]
#[error(
    "handlers take a `Tx` of a database in which no `Idempotency` of this process has its store, \
     so that they cannot run: {handlers}; open a store in that database"
)]
struct UnservedTransactions {
    handlers: String,
}

/// Two handlers have the same name.
#[derive(Debug, thiserror::Error)]
#[error(
    "the handlers `{}` and `{}` have the same `name = \"{}\"`, so that a key that was used at one \
     of them is not free at the other, which may get its response; give each a name of its own, or \
     give one handler both routes with `#[routes]`",
    other.handler, operation.handler, operation.name
)]
struct SameName {
    operation: &'static Declaration,
    other: &'static Declaration,
}

#[cfg(test)]
mod tests {
    use std::{any::TypeId, cell::Cell};

    use super::*;
    use crate::declaration::{Parameter, tests::LEASED};

    const DATABASE: TxDatabase = TxDatabase { id: TypeId::of::<u8>(), name: "PostgreSQL" };
    static NAMED: Declaration = Declaration { name: "pay", handler: "pay", ..LEASED };
    static ALSO: Declaration = Declaration { name: "pay", handler: "refund", ..LEASED };
    static UNNAMED: Declaration = Declaration { name: "", ..LEASED };
    static WITH_TX: Declaration = Declaration {
        parameters: &[Parameter { check: None, database: Some(|| DATABASE) }],
        handler: "transfer",
        ..LEASED
    };

    #[test]
    fn two_handlers_of_one_name_are_both_named() {
        let check = |operations: &[&'static Declaration]| {
            same_name(operations.iter().copied(), |operation| operation.package)
        };
        check(&[&NAMED, &UNNAMED, &UNNAMED]).unwrap();
        let refused = check(&[&NAMED, &UNNAMED, &ALSO]).unwrap_err().to_string();
        for part in ["`pay`", "`refund`", "`name = \"pay\"`"] {
            assert!(refused.contains(part), "{refused}");
        }
    }

    #[test]
    fn a_handler_whose_transactions_no_store_has_is_named() {
        let check = |served| {
            let operations = [&UNNAMED, &WITH_TX, &WITH_TX];
            let asked = Cell::new(false);
            without_transactions(operations.into_iter(), |database| {
                assert_eq!(database, DATABASE);
                assert!(!asked.replace(true), "two handlers may get two outcomes");
                served
            })
        };
        check(true).unwrap();
        let refused = check(false).unwrap_err().to_string();
        assert!(refused.contains("`transfer` (PostgreSQL)"), "{refused}");
    }
}
