//! What the tests of several stores do as operators.

use std::{error::Error as _, time::Duration};

use bytes::Bytes;
use idempotent_core::{
    Abandoned, Fingerprint, Lease, OwnerToken, Principal, RecordId, ShortText, Store,
    protocol::{Claim, Fence, PagePosition, RecordFilter, Removal, Resolution, ResolveOutcome},
    store::Administration,
};

use crate::decision;

/// More pages than any list of a test has.
const TOO_MANY_PAGES: usize = 1_000;

/// A unique key.
pub fn id() -> RecordId {
    let mut id = [0; 32];
    id[..16].copy_from_slice(OwnerToken::random().unwrap().as_bytes());
    RecordId::from_bytes(id)
}

pub fn request() -> Claim {
    Claim::new(Fingerprint::from_bytes([1; Fingerprint::BYTES]), OwnerToken::random().unwrap())
        .with_lease(Duration::from_secs(30))
        .with_ttl(Duration::from_secs(3600))
}

pub fn administration(store: &dyn Store) -> &dyn Administration {
    store.administration().unwrap()
}

pub async fn claimed(store: &dyn Store, claim: Claim) -> Lease {
    let (id, owner) = (id(), claim.owner);
    store.claim(&id, &claim).await.unwrap();
    Lease { id, owner }
}

/// A key that is held.
pub async fn held(store: &dyn Store) -> Lease {
    held_by(store, request()).await
}

async fn held_by(store: &dyn Store, claim: Claim) -> Lease {
    let lease = claimed(store, claim).await;
    assert_eq!(store.abandon(&lease, Abandoned::Hold).await.unwrap(), Fence::Passed);
    lease
}

pub async fn completed(store: &dyn Store) -> Lease {
    let lease = claimed(store, request()).await;
    let recording = Bytes::from_static(b"done");
    assert_eq!(store.complete(&lease, &recording).await.unwrap(), Fence::Passed);
    lease
}

/// Which list.
#[derive(Clone, Copy, Debug)]
pub enum List {
    Watched,
    Scan,
}

/// The ids of the records of a list, and of those that cannot be read, in order and each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    pub records: Vec<RecordId>,
    pub unreadable: Vec<RecordId>,
}

impl List {
    pub async fn all(self, store: &dyn Store, filter: &RecordFilter, limit: u32) -> Listed {
        let (mut listed, mut after) = (Listed::default(), None::<PagePosition>);
        for _ in 0..TOO_MANY_PAGES {
            let store = administration(store);
            let page = match self {
                Self::Watched => store.watched(filter, after.as_ref(), limit).await.unwrap(),
                Self::Scan => store.scan(filter, after.as_ref(), limit).await.unwrap(),
            };
            listed.records.extend(page.records.iter().map(|listed| listed.id));
            listed.unreadable.extend(page.unreadable);
            after = page.next;
            if after.is_none() {
                for ids in [&mut listed.records, &mut listed.unreadable] {
                    ids.sort();
                    ids.dedup();
                }
                return listed;
            }
        }
        panic!("{self:?} has no end");
    }
}

/// Asserts that the pages of a list name a damaged record beside those that can be read, and that a
/// search for it fails.
///
/// # Panics
/// If not.
pub async fn assert_named_beside_others(
    store: &dyn Store,
    damaged: &RecordId,
    others: &[RecordId],
) {
    let mut others = others.to_vec();
    others.sort();
    let expected = Listed { records: others, unreadable: vec![*damaged] };
    for list in [List::Watched, List::Scan] {
        for limit in [1, 2, 10] {
            let listed = list.all(store, &RecordFilter::default(), limit).await;
            assert_eq!(listed, expected, "{list:?} in pages of {limit}");
        }
    }
    for first in [*damaged, RecordId::from_bytes([0; 32])] {
        let found = administration(store).find(&first, &RecordId::from_bytes([0xff; 32]), 10).await;
        let error = found.unwrap_err();
        let source = error.source().unwrap().to_string();
        assert!(error.is_unreadable() && source.contains(&damaged.to_string()), "{source}");
    }
    for id in &expected.records {
        assert_eq!(administration(store).find(id, id, 1).await.unwrap().len(), 1);
    }
}

/// Asserts that a SQL store lists what is beside damaged records, and names these. `sql` executes a
/// statement, in which `ID` stands for the id of the record.
///
/// # Panics
/// If not.
pub async fn assert_damaged_rows_are_named(store: &dyn Store, sql: impl AsyncFn(&RecordId, &str)) {
    let leases = [held(store).await, held(store).await, held(store).await];
    for damaged in leases {
        let others: Vec<_> =
            leases.iter().map(|lease| lease.id).filter(|id| *id != damaged.id).collect();
        for damage in ["history = 'x'", "lease = -1", "expires_at = -1"] {
            let set = format!("UPDATE idempotency_records SET {damage} WHERE id = ID");
            sql(&damaged.id, &set).await;
            assert_named_beside_others(store, &damaged.id, &others).await;
            let mend = "UPDATE idempotency_records \
                        SET history = '', lease = 1, expires_at = 1 WHERE id = ID";
            sql(&damaged.id, mend).await;
        }
    }
}

/// Asserts that a filter excludes a damaged record of a SQL store by the columns that can be read.
///
/// # Panics
/// If not.
pub async fn assert_filters_select_damaged_rows(
    store: &dyn Store,
    sql: impl AsyncFn(&RecordId, &str),
) {
    let [hers, his] = [7, 8].map(|byte| Principal::from_bytes([byte; 16]));
    let text = |text: &str| ShortText::new(text).unwrap();
    let claim = request().with_principal(Some(hers)).with_operation(text("refund"));
    let damaged = held_by(store, claim).await;
    let set = "UPDATE idempotency_records SET history = 'x', reference = 're_1' WHERE id = ID";
    sql(&damaged.id, set).await;
    let with = |change: &dyn Fn(&mut RecordFilter)| {
        let mut filter = RecordFilter::default();
        change(&mut filter);
        filter
    };
    for (filter, is_selected) in [
        (with(&|filter| filter.principals = vec![his, hers]), true),
        (with(&|filter| filter.principals = vec![his]), false),
        (with(&|filter| filter.operation = Some(text("refund"))), true),
        (with(&|filter| filter.operation = Some(text("payment"))), false),
        (with(&|filter| filter.reference = Some(text("re_1"))), true),
        (with(&|filter| filter.reference = Some(text("re_2"))), false),
    ] {
        for list in [List::Watched, List::Scan] {
            let listed = list.all(store, &filter, 10).await;
            let expected = if is_selected { vec![damaged.id] } else { vec![] };
            assert_eq!(listed.unreadable, expected, "{list:?} of {filter:?}");
        }
    }
}

/// Asserts that decisions about a held and a completed record fail and change nothing while their
/// entries in the log are refused.
///
/// # Panics
/// If not.
pub async fn assert_decisions_fail_unlogged(store: &dyn Store, held: &Lease, done: &Lease) {
    let resolutions = [Resolution::Release, Resolution::Complete(Bytes::from_static(b"known"))];
    let removal = Removal::of_completed(done.owner);
    let before = [store.look_up(&held.id).await, store.look_up(&done.id).await];
    let before = before.map(|found| found.unwrap().unwrap().record);
    for resolution in &resolutions {
        let audit = decision(&held.id);
        store.resolve(&held.id, &held.owner, resolution, &audit).await.unwrap_err();
    }
    let audit = decision(&done.id);
    administration(store).remove(&done.id, &removal, &audit).await.unwrap_err();
    let after = [store.look_up(&held.id).await, store.look_up(&done.id).await];
    assert_eq!(after.map(|found| found.unwrap().unwrap().record), before);
}

/// Asserts that the same decisions are executed, and logged once each.
///
/// # Panics
/// If not.
pub async fn assert_decisions_are_logged(store: &dyn Store, held: &Lease, done: &Lease) {
    let audit = decision(&held.id);
    let resolved = store.resolve(&held.id, &held.owner, &Resolution::Release, &audit).await;
    assert_eq!(resolved.unwrap(), ResolveOutcome::Resolved);
    let (removal, audit) = (Removal::of_completed(done.owner), decision(&done.id));
    assert!(administration(store).remove(&done.id, &removal, &audit).await.unwrap());
    assert_eq!(administration(store).audit(None, 10).await.unwrap().entries.len(), 2);
}

/// Asserts that a list of old records ends at the first one that is young. The store has an old
/// watched record and more young ones than it reads for a page.
///
/// # Panics
/// If not.
pub async fn assert_an_old_list_ends(store: &dyn Store, old: &[RecordId]) {
    let mut filter = RecordFilter::default();
    filter.operation = Some(ShortText::new("none").unwrap());
    let page = administration(store).watched(&filter, None, 10).await.unwrap();
    assert!(page.records.is_empty() && page.next.is_some(), "{page:?}");
    filter.older_than = Some(Duration::from_secs(3600));
    let page = administration(store).watched(&filter, None, 10).await.unwrap();
    assert!(page.records.is_empty() && page.next.is_none(), "{page:?}");
    filter.operation = None;
    let page = administration(store).watched(&filter, None, 10).await.unwrap();
    let found: Vec<_> = page.records.iter().map(|listed| listed.id).collect();
    assert_eq!((found.as_slice(), page.next), (old, None));
}
