//! Decisions of operators that meet other changes. A store without
//! [`Administration`](crate::store::Administration) passes every case.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{
    conformance::{
        cases::{administering::logged, listing::List},
        fixture::{Fixture, KeyUnderTest, TOO_MANY_PAGES, many, recording},
    },
    lease::{Lease, OwnerToken},
    policy::Abandoned,
    protocol::{
        AuditAction, Claim, Contents, Fence, Note, PagePosition, RecordFilter, Removal,
        Replacement, Resolution, ResolveOutcome,
    },
    record::RecordState,
    record_id::RecordId,
    short_text::ShortText,
};

/// Carries out one of three decisions. Returns what was logged, if it was carried out.
async fn decide(key: &KeyUnderTest, seen: &OwnerToken, which: usize) -> Option<AuditAction> {
    let (action, done) = match which % 3 {
        0 => {
            let outcome = key.resolve(seen, Resolution::Complete(recording("known"))).await;
            (AuditAction::Complete, outcome == ResolveOutcome::Resolved)
        }
        1 => {
            let outcome = key.resolve(seen, Resolution::Release).await;
            (AuditAction::Release, outcome == ResolveOutcome::Resolved)
        }
        _ => (AuditAction::Forget, key.remove(&Removal::of_any(*seen)).await == Some(true)),
    };
    done.then_some(action)
}

pub(in crate::conformance) async fn one_of_many_decisions_about_a_held_key_is_carried_out(
    fixture: Fixture,
) {
    let Some(store) = fixture.store().administration() else { return };
    for _ in 0..4 {
        let key = fixture.key();
        let Lease { owner, .. } = key.held().await;
        let next = AtomicUsize::new(0);
        let decided = many(|| {
            let (key, which) = (key.clone(), next.fetch_add(1, Ordering::Relaxed));
            async move { decide(&key, &owner, which).await }
        });
        let carried_out: Vec<_> = decided.await.into_iter().flatten().collect();
        assert_eq!(carried_out.len(), 1, "{carried_out:?}");
        let entries = logged(store, &key, 100).await;
        assert_eq!(entries.iter().map(|entry| entry.action).collect::<Vec<_>>(), carried_out);
        let is_completed = carried_out == [AuditAction::Complete];
        assert_eq!(key.record().await.is_some(), is_completed, "{carried_out:?}");
    }
}

pub(in crate::conformance) async fn a_removal_and_a_completion_come_one_after_the_other(
    fixture: Fixture,
) {
    let Some(store) = fixture.store().administration() else { return };
    for round in 0..16 {
        let key = fixture.key();
        let lease = key.claimed(fixture.request()).await;
        let live = round % 2 == 0;
        let removal = Removal { seen: lease.owner, live };
        let done = recording("done");
        let (fence, removed) = tokio::join!(key.complete(&lease, &done), key.remove(&removal));
        // Before the completion only a removal of any record is carried out.
        assert!(removed == Some(true) || !live, "{removal:?}");
        assert!(fence == Fence::Passed || live, "{removal:?}");
        assert_eq!(key.record().await.is_none(), removed == Some(true), "{removal:?}, {fence:?}");
        let entries = logged(store, &key, 100).await.len();
        assert_eq!(entries, usize::from(removed == Some(true)));
    }
}

pub(in crate::conformance) async fn a_replacement_undoes_no_other_change(fixture: Fixture) {
    if fixture.store().administration().is_none() {
        return;
    }
    for _ in 0..16 {
        let [completed, noted] = [(); 2].map(|()| fixture.key());
        let claim = fixture.request();
        for key in [&completed, &noted] {
            let lease = key.claimed(&claim).await;
            key.note(&lease, &Note::input(recording("input"))).await;
        }
        let input = |text| Contents { input: recording(text), ..Contents::default() };
        let replacement = Replacement::new(claim.owner, input("input"), input("sealed"));
        let (done, step) = (recording("done"), Note::step(recording("step")));
        let [completes, notes] = [&completed, &noted].map(|key| key.lease(claim.owner));
        let (fences, replaced) = tokio::join!(
            async {
                (completed.complete(&completes, &done).await, noted.note(&notes, &step).await)
            },
            async { (completed.replace(&replacement).await, noted.replace(&replacement).await) },
        );
        assert_eq!(fences, (Fence::Passed, Fence::Passed));
        assert_eq!(replaced.1, Some(true));
        let record = completed.record().await.unwrap();
        assert_eq!(record.state, RecordState::Completed(done));
        assert!(record.notes.input.is_empty(), "{record:?}");
        let notes = noted.record().await.unwrap().notes;
        assert_eq!([notes.steps, notes.input], ["step", "sealed"].map(recording));
    }
}

pub(in crate::conformance) async fn pages_have_what_stays_while_other_records_change(
    fixture: Fixture,
) {
    let Some(store) = fixture.store().administration() else { return };
    let operation = ShortText::truncated(&format!("operation {}", fixture.key().id));
    let filter = RecordFilter { operation: Some(operation.clone()), ..RecordFilter::default() };
    let request = || fixture.hold_request().with_operation(operation.clone());
    for list in [List::Watched, List::Scan] {
        let (mut stays, mut goes) = (Vec::new(), Vec::new());
        for _ in 0..12 {
            stays.push(held(&fixture, request()).await.0.id);
            goes.push(held(&fixture, request()).await);
        }
        let (mut found, mut after) = (Vec::<RecordId>::new(), None::<PagePosition>);
        for _ in 0..TOO_MANY_PAGES {
            let page = list.page(store, &filter, after.as_ref(), 3).await;
            found.extend(page.records.iter().map(|listed| listed.id));
            after = page.next;
            if after.is_none() {
                break;
            }
            if let Some((key, owner)) = goes.pop() {
                decide(&key, &owner, found.len()).await;
                held(&fixture, request()).await;
            }
        }
        assert_eq!(after, None, "{list:?} has no end");
        let missing: Vec<_> = stays.iter().filter(|id| !found.contains(id)).collect();
        assert!(missing.is_empty(), "{list:?} lacks {missing:?}");
    }
}

/// A new key that is held.
async fn held(fixture: &Fixture, claim: Claim) -> (KeyUnderTest, OwnerToken) {
    let key = fixture.key();
    let lease = key.claimed(&claim).await;
    key.abandon(&lease, Abandoned::Hold).await;
    (key, lease.owner)
}
