//! Lists of records. A store without [`Administration`] passes every case.

use std::collections::BTreeMap;

use tokio::task::JoinSet;

use crate::{
    conformance::fixture::{Fixture, KeyUnderTest, TOO_MANY_PAGES, recording, text},
    history::Kind,
    policy::Abandoned,
    protocol::{
        Claim, ListedRecord, ListedState, Note, PagePosition, RecordFilter, RecordPage, Resolution,
    },
    record::{Record, RecordState},
    record_id::RecordId,
    short_text::ShortText,
    store::{Administration, TransactionClaim},
};

/// Which list.
#[derive(Clone, Copy, Debug)]
pub(super) enum List {
    Watched,
    Scan,
}

impl List {
    pub(super) async fn page(
        self,
        store: &dyn Administration,
        filter: &RecordFilter,
        after: Option<&PagePosition>,
        limit: u32,
    ) -> RecordPage {
        match self {
            Self::Watched => store.watched(filter, after, limit).await.unwrap(),
            Self::Scan => store.scan(filter, after, limit).await.unwrap(),
        }
    }

    /// All records of the list, page by page.
    async fn all(
        self,
        store: &dyn Administration,
        filter: &RecordFilter,
        limit: u32,
    ) -> Vec<ListedRecord> {
        let (mut all, mut after) = (Vec::new(), None);
        for _ in 0..TOO_MANY_PAGES {
            let page = self.page(store, filter, after.as_ref(), limit).await;
            assert!(page.records.len() <= usize::try_from(limit).unwrap(), "{self:?}: {page:?}");
            all.extend(page.records);
            let Some(next) = page.next else { return all };
            assert_ne!(Some(&next), after.as_ref(), "{self:?}: each page is another");
            after = Some(next);
        }
        unreachable!("{self:?} has no end");
    }
}

/// A claim of an operation that no other case has.
fn of_own_operation(key: &KeyUnderTest, claim: Claim) -> (Claim, RecordFilter) {
    let operation = ShortText::truncated(&format!("operation {}", key.id));
    let filter = RecordFilter { operation: Some(operation.clone()), ..RecordFilter::default() };
    (claim.with_operation(operation), filter)
}

fn ids(listed: &[ListedRecord]) -> Vec<RecordId> {
    listed.iter().map(|listed| listed.id).collect()
}

fn sorted(mut ids: Vec<RecordId>) -> Vec<RecordId> {
    ids.sort();
    ids
}

pub(in crate::conformance) async fn what_can_be_held_is_watched(fixture: Fixture) {
    let Some(store) = fixture.store().administration() else { return };
    let [in_flight, noted, abandoned, met, unmet, released, completed, resolved, forgotten] =
        [(); 9].map(|()| fixture.key());
    let (hold, filter) = of_own_operation(&in_flight, fixture.hold_request());
    let retry = hold.with_abandoned(Abandoned::Retry);
    in_flight.claimed(&hold.with_lease(fixture.tick() * 3)).await;
    let lease = noted.claimed(&retry.with_lease(fixture.tick() * 3)).await;
    noted.note(&lease, &Note::hold()).await;
    let lease = abandoned.claimed(&retry).await;
    abandoned.abandon(&lease, Abandoned::Hold).await;
    met.claimed(&retry).await;
    unmet.claimed(&hold).await;
    let lease = released.claimed(&hold).await;
    released.release(&lease).await;
    let lease = completed.claimed(&hold).await;
    completed.complete(&lease, &recording("done")).await;
    for key in [&resolved, &forgotten] {
        let lease = key.claimed(&hold).await;
        key.abandon(&lease, Abandoned::Hold).await;
        let resolution = if key.id == resolved.id {
            Resolution::Complete(recording("known"))
        } else {
            Resolution::Release
        };
        key.resolve(&lease.owner, resolution).await;
    }
    fixture.expire_leases().await;
    met.claim(&hold.with_owner(fixture.request().owner)).await;
    let listed = List::Watched.all(store, &filter, 100).await;
    let all = [&in_flight, &noted, &abandoned, &met, &unmet].map(|key| key.id).to_vec();
    assert_eq!(sorted(ids(&listed)), sorted(all));
    let of_state = |state| RecordFilter { state: Some(state), ..filter.clone() };
    let held = List::Watched.all(store, &of_state(ListedState::Held), 100).await;
    let expected = [&abandoned, &met, &unmet].map(|key| key.id).to_vec();
    assert_eq!(sorted(ids(&held)), sorted(expected));
    let working = List::Watched.all(store, &of_state(ListedState::InFlight), 100).await;
    assert_eq!(sorted(ids(&working)), sorted(vec![in_flight.id, noted.id]));
}

pub(in crate::conformance) async fn what_is_renewed_is_watched(fixture: Fixture) {
    let Some(store) = fixture.store().administration() else { return };
    let [renewed, completed, taken_over] = [(); 3].map(|()| fixture.key());
    let (claim, filter) = of_own_operation(&renewed, fixture.request());
    for key in [&renewed, &completed, &taken_over] {
        let lease = key.claimed(&claim).await;
        key.renew(&lease, fixture.tick()).await;
    }
    completed.complete(&completed.lease(claim.owner), &recording("done")).await;
    let listed = List::Watched.all(store, &filter, 100).await;
    assert_eq!(sorted(ids(&listed)), sorted(vec![renewed.id, taken_over.id]));
    fixture.expire_leases().await;
    taken_over.claim(&claim.with_owner(fixture.request().owner)).await;
    let listed = List::Watched.all(store, &filter, 100).await;
    assert_eq!(sorted(ids(&listed)), sorted(vec![renewed.id, taken_over.id]));
    fixture.expire_records().await;
    fixture.purge_all().await;
    assert_eq!(List::Watched.all(store, &filter, 100).await, []);
}

pub(in crate::conformance) async fn a_key_that_starts_over_is_watched_if_it_can_be_held(
    fixture: Fixture,
) {
    let Some(store) = fixture.store().administration() else { return };
    let (completed, abandoned) = (fixture.key(), fixture.key());
    let (hold, filter) = of_own_operation(&completed, fixture.hold_request());
    let retry = hold.with_abandoned(Abandoned::Retry);
    let lease = completed.claimed(&retry).await;
    completed.complete(&lease, &recording("done")).await;
    abandoned.claimed(&retry).await;
    fixture.expire_records().await;
    for key in [&completed, &abandoned] {
        key.claimed(&hold.with_owner(fixture.request().owner)).await;
    }
    let listed = List::Watched.all(store, &filter, 100).await;
    assert_eq!(sorted(ids(&listed)), sorted(vec![completed.id, abandoned.id]));
}

pub(in crate::conformance) async fn a_claim_that_is_committed_alone_is_watched_if_it_can_be_held(
    fixture: Fixture,
) {
    let Some(store) = fixture.store().administration() else { return };
    let Some(transactions) = fixture.store().transactions() else { return };
    let [absent, hold, abandoned, expired] = [(); 4].map(|()| fixture.key());
    let (request, filter) = of_own_operation(&absent, fixture.request());
    let lease = expired.claimed(&request).await;
    expired.complete(&lease, &recording("old")).await;
    fixture.expire_records().await;
    let lease = abandoned.claimed(&request).await;
    abandoned.abandon(&lease, Abandoned::Retry).await;
    let mut can_be_held = Vec::new();
    for key in [&absent, &hold, &abandoned, &expired] {
        let policy = if key.id == hold.id { Abandoned::Hold } else { Abandoned::Retry };
        let claim = request.with_owner(fixture.request().owner).with_abandoned(policy);
        let claimed = transactions.claim(&key.id, &claim, fixture.tick()).await.unwrap();
        let TransactionClaim::Granted { transaction, .. } = claimed else {
            unreachable!("the key is free: {claimed:?}");
        };
        transaction.commit().await.unwrap();
        // A store may decide that a handler which commits its claim must not run again.
        if key.record().await.is_some_and(|record| record.abandoned == Abandoned::Hold) {
            can_be_held.push(key.id);
        }
    }
    let listed = ids(&List::Watched.all(store, &filter, 100).await);
    let missing = can_be_held.iter().find(|id| !listed.contains(id));
    assert_eq!(missing, None, "{listed:?}");
}

pub(in crate::conformance) async fn a_watched_list_is_in_the_order_of_the_first_claims(
    fixture: Fixture,
) {
    let Some(store) = fixture.store().administration() else { return };
    let keys = [(); 7].map(|()| fixture.key());
    let (hold, filter) = of_own_operation(&keys[0], fixture.hold_request());
    // Side by side, so that some have the same time.
    let claims = keys.iter().cloned().map(|key| {
        let hold = hold.clone();
        async move {
            let lease = key.claimed(&hold).await;
            key.abandon(&lease, Abandoned::Hold).await;
        }
    });
    claims.collect::<JoinSet<_>>().join_all().await;
    for limit in [1, 2, 3, 7, 100] {
        let listed = List::Watched.all(store, &filter, limit).await;
        let places = listed.iter().map(|listed| (listed.record.first_seen, listed.id));
        assert!(places.is_sorted(), "{listed:?}");
        assert_eq!(sorted(ids(&listed)), sorted(keys.iter().map(|key| key.id).collect()));
    }
}

pub(in crate::conformance) async fn a_list_has_what_its_filter_says(fixture: Fixture) {
    let Some(store) = fixture.store().administration() else { return };
    let [young, old, noted, completed] = [(); 4].map(|()| fixture.key());
    let (hold, of_operation) = of_own_operation(&young, fixture.hold_request());
    let hold = hold.with_lease(fixture.tick() * 8).with_ttl(fixture.tick() * 20);
    old.claimed(&hold.with_principal(None)).await;
    fixture.advance_a_tick().await;
    young.claimed(&hold).await;
    let lease = noted.claimed(&hold.with_principal(None)).await;
    noted.note(&lease, &Note::reference(text("re_1"))).await;
    let lease = completed.claimed(&hold).await;
    completed.note(&lease, &Note::reference(text("re_1"))).await;
    completed.complete(&lease, &recording("done")).await;
    let with = |change: &dyn Fn(&mut RecordFilter)| {
        let mut filter = of_operation.clone();
        change(&mut filter);
        filter
    };
    let principal = hold.principal.unwrap();
    for (filter, watched, scanned) in [
        (with(&|_| ()), vec![&young, &old, &noted], vec![&completed]),
        (with(&|filter| filter.older_than = Some(fixture.tick() / 2)), vec![&old], vec![]),
        (with(&|filter| filter.reference = Some(text("re_1"))), vec![&noted], vec![&completed]),
        (with(&|filter| filter.reference = Some(text("re_2"))), vec![], vec![]),
        (with(&|filter| filter.principals = vec![principal]), vec![&young], vec![&completed]),
        (
            with(&|filter| {
                filter.principals = vec![crate::scope::Principal::from_bytes([9; 16]), principal];
            }),
            vec![&young],
            vec![&completed],
        ),
        (with(&|filter| filter.state = Some(ListedState::Completed)), vec![], vec![&completed]),
        (
            with(&|filter| filter.state = Some(ListedState::InFlight)),
            vec![&young, &old, &noted],
            vec![],
        ),
        (with(&|filter| filter.state = Some(ListedState::Held)), vec![], vec![]),
        (with(&|filter| filter.operation = Some(text("another"))), vec![], vec![]),
    ] {
        let watched: Vec<_> = watched.into_iter().map(|key| key.id).collect();
        let listed = List::Watched.all(store, &filter, 100).await;
        assert_eq!(sorted(ids(&listed)), sorted(watched.clone()), "{filter:?}");
        let listed = List::Scan.all(store, &filter, 100).await;
        let mut found = sorted(ids(&listed));
        found.dedup();
        let all = watched.into_iter().chain(scanned.into_iter().map(|key| key.id));
        assert_eq!(found, sorted(all.collect()), "{filter:?}");
    }
}

pub(in crate::conformance) async fn every_record_is_on_a_page_of_a_scan(fixture: Fixture) {
    let Some(store) = fixture.store().administration() else { return };
    let keys: Vec<_> = (0..23).map(|_| fixture.key()).collect();
    let (claim, filter) = of_own_operation(keys.first().unwrap(), fixture.request());
    for (key, owner) in keys.iter().zip(0..) {
        let claim = claim.with_owner(crate::lease::OwnerToken::from_bytes([owner; 16]));
        let lease = key.claimed(&claim).await;
        if owner % 2 == 0 {
            key.complete(&lease, &recording("done")).await;
        }
    }
    for limit in [1, 5, 23, 1_000] {
        let listed = List::Scan.all(store, &filter, limit).await;
        let listed: BTreeMap<RecordId, Record> =
            listed.into_iter().map(|listed| (listed.id, listed.record)).collect();
        assert_eq!(listed.len(), keys.len(), "pages of {limit}");
        for key in &keys {
            let record = key.record().await.unwrap();
            let expected = ListedRecord::new(key.id, record);
            assert_eq!(listed.get(&key.id), Some(&expected.record));
        }
    }
    let any = ids(&List::Scan.all(store, &RecordFilter::default(), 1_000).await);
    assert!(keys.iter().all(|key| any.contains(&key.id)));
}

pub(in crate::conformance) async fn a_record_is_found_by_the_beginning_of_its_id(fixture: Fixture) {
    let Some(store) = fixture.store().administration() else { return };
    let key = fixture.key();
    key.completed(&recording("done")).await;
    let digits = key.id.to_string();
    // Other cases may have a record with the same 8 digits, but not with the same 16.
    for length in [16, 17, 63, 64] {
        let (first, last) = RecordId::range(&digits[..length]).unwrap();
        assert_eq!(ids(&store.find(&first, &last, 2).await.unwrap()), [key.id]);
    }
    let (first, last) = RecordId::range(&digits[..1]).unwrap();
    let found = store.find(&first, &last, 1_000).await.unwrap();
    assert!(ids(&found).contains(&key.id));
    let (all, none) = (store.find(&first, &last, 1).await.unwrap(), fixture.key().id);
    assert_eq!(all.len(), 1);
    assert_eq!(store.find(&none, &none, 10).await.unwrap(), []);
    let [low, high] = [0, 0xff].map(|byte| RecordId::from_bytes([byte; 32]));
    assert!(!store.find(&low, &high, 1).await.unwrap().is_empty());
}

pub(in crate::conformance) async fn a_list_shows_no_stored_bytes(fixture: Fixture) {
    let Some(store) = fixture.store().administration() else { return };
    let (held, completed) = (fixture.key(), fixture.key());
    let (hold, filter) = of_own_operation(&held, fixture.hold_request());
    let lease = held.claimed(&hold).await;
    held.note(&lease, &Note::step(recording("secret"))).await;
    held.note(&lease, &Note::input(recording("secret"))).await;
    held.note(&lease, &Note::progress(text("halfway"))).await;
    let lease = completed.claimed(&hold).await;
    completed.complete(&lease, &recording("secret")).await;
    let mut found = List::Scan.all(store, &filter, 100).await;
    found.extend(List::Watched.all(store, &filter, 100).await);
    found.extend(store.find(&held.id, &held.id, 1).await.unwrap());
    assert!(found.len() >= 4, "{found:?}");
    for ListedRecord { id, record } in found {
        assert!(record.notes.steps.is_empty() && record.notes.input.is_empty());
        if id == held.id {
            assert_eq!(record.notes.progress, Some(text("halfway")));
        } else {
            assert_eq!(record.state, RecordState::Completed(bytes::Bytes::new()));
            let kinds: Vec<_> = record.history.entries().map(|entry| entry.kind).collect();
            assert_eq!(kinds, [Kind::Claimed, Kind::Completed]);
        }
    }
}

pub(in crate::conformance) async fn a_position_of_another_list_is_an_error(fixture: Fixture) {
    let Some(store) = fixture.store().administration() else { return };
    let wrong: PagePosition = "nowhere".parse().unwrap();
    let filter = RecordFilter::default();
    for error in [
        store.watched(&filter, Some(&wrong), 1).await.unwrap_err(),
        store.scan(&filter, Some(&wrong), 1).await.unwrap_err(),
        store.audit(Some(&wrong), 1).await.unwrap_err(),
    ] {
        assert!(!error.is_transient(), "{error}");
    }
}

pub(in crate::conformance) async fn records_are_counted(fixture: Fixture) {
    let Some(store) = fixture.store().administration() else { return };
    let before = store.count().await.unwrap();
    let key = fixture.key();
    key.held().await;
    let working = fixture.key();
    working.claimed(fixture.hold_request().with_lease(fixture.tick() * 8)).await;
    key.claim(&fixture.request()).await;
    let first_seen = key.record().await.unwrap().first_seen;
    let after = store.count().await.unwrap();
    // Other cases may use the same store.
    assert!(after.held >= 1 && after.in_flight >= 1, "{before:?}, {after:?}");
    assert!(after.oldest_held.is_some_and(|oldest| oldest <= first_seen), "{after:?}");
    assert!(after.at >= first_seen, "{after:?}");
    assert!(!after.is_exact || after.records >= 2, "{after:?}");
}
