//! Decisions of operators. A store without
//! [`Administration`](crate::store::Administration) passes every case.

use crate::{
    conformance::{
        cases::noting::encoded,
        fixture::{
            Fixture, KeyUnderTest, TOO_MANY_PAGES, granted, owner, recording, replay_of, text,
        },
    },
    policy::Abandoned,
    protocol::{
        AuditAction, AuditEntry, AuditedState, Contents, Note, PagePosition, RecordFilter, Removal,
        Replacement, Resolution, ResolveOutcome,
    },
    record::RecordState,
    store::Administration,
};

/// The entries of the log about a key, the latest first.
pub(super) async fn logged(
    store: &dyn Administration,
    key: &KeyUnderTest,
    limit: u32,
) -> Vec<AuditEntry> {
    let (mut entries, mut after): (Vec<_>, Option<PagePosition>) = (Vec::new(), None);
    for _ in 0..TOO_MANY_PAGES {
        let page = store.audit(after.as_ref(), limit).await.unwrap();
        assert!(page.entries.is_sorted_by(|later, earlier| later.at >= earlier.at), "{page:?}");
        let entry = page.entries.into_iter().map(|audited| audited.entry);
        entries.extend(entry.filter(|entry| entry.id == key.id));
        assert!(page.next.is_none() || page.next != after, "each page is another");
        after = page.next;
        if after.is_none() {
            return entries;
        }
    }
    unreachable!("the log has no end");
}

pub(in crate::conformance) async fn a_completed_record_is_removed(fixture: Fixture) {
    if fixture.store().administration().is_none() {
        return;
    }
    let key = fixture.key();
    let lease = key.completed(&recording("done")).await;
    assert_eq!(key.remove(&Removal::of_completed(owner())).await, Some(false));
    assert_eq!(key.claim(&fixture.request()).await, replay_of(recording("done")));
    assert_eq!(key.remove(&Removal::of_completed(lease.owner)).await, Some(true));
    assert_eq!(key.record().await, None);
    assert_eq!(key.remove(&Removal::of_completed(lease.owner)).await, Some(false));
    assert_eq!(key.claim(&fixture.other_request()).await, granted(1));
}

pub(in crate::conformance) async fn a_live_record_is_removed_only_if_it_may_be(fixture: Fixture) {
    if fixture.store().administration().is_none() {
        return;
    }
    let [held, working, past_its_ttl, past_its_lease, can_be_held] =
        [(); 5].map(|()| fixture.key());
    let long = fixture.tick() * 8;
    let short = fixture.tick() / 2;
    let leases = [
        held.held().await,
        working.claimed(fixture.request().with_lease(long)).await,
        past_its_ttl.claimed(fixture.request().with_lease(long).with_ttl(short)).await,
        past_its_lease.claimed(fixture.request().with_ttl(long)).await,
        can_be_held.claimed(fixture.hold_request()).await,
    ];
    fixture.expire_leases().await;
    let keys = [held, working, past_its_ttl, past_its_lease, can_be_held];
    for (key, lease) in keys.iter().zip(leases) {
        let before = key.record().await;
        assert_eq!(key.remove(&Removal::of_completed(lease.owner)).await, Some(false));
        assert_eq!(key.remove(&Removal::of_any(owner())).await, Some(false));
        assert_eq!(key.record().await, before);
        assert_eq!(key.remove(&Removal::of_any(lease.owner)).await, Some(true));
        assert_eq!(key.record().await, None);
        key.assert_fenced(lease.owner).await;
    }
}

pub(in crate::conformance) async fn an_expired_record_is_scanned_and_removed(fixture: Fixture) {
    let Some(store) = fixture.store().administration() else { return };
    let (completed, abandoned) = (fixture.key(), fixture.key());
    let leases =
        [completed.completed(&recording("done")).await, abandoned.claimed(fixture.request()).await];
    fixture.expire_records().await;
    let (mut found, mut after) = (Vec::new(), None);
    for _ in 0..TOO_MANY_PAGES {
        let page = store.scan(&RecordFilter::default(), after.as_ref(), 100).await.unwrap();
        found.extend(page.records.into_iter().map(|listed| listed.id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(after, None, "the scan has no end");
    for (key, lease) in [completed, abandoned].iter().zip(leases) {
        // A store whose server removes expired records has it no more.
        let removed = key.remove(&Removal::of_completed(lease.owner)).await;
        assert!(removed == Some(false) || found.contains(&key.id), "{:?}", key.id);
        assert_eq!(key.remove(&Removal::of_any(lease.owner)).await, Some(false));
    }
}

pub(in crate::conformance) async fn a_key_that_is_held_past_its_ttl_is_live(fixture: Fixture) {
    if fixture.store().administration().is_none() {
        return;
    }
    let (held, can_be_held) = (fixture.key(), fixture.key());
    // The policy of the record stays "retry".
    let lease = held.claimed(fixture.request()).await;
    held.abandon(&lease, Abandoned::Hold).await;
    let leases = [lease, can_be_held.claimed(fixture.hold_request()).await];
    fixture.expire_records().await;
    for (key, lease) in [held, can_be_held].iter().zip(leases) {
        let before = key.record().await;
        assert_eq!(key.remove(&Removal::of_completed(lease.owner)).await, Some(false));
        assert_eq!(key.record().await, before);
        assert_eq!(key.remove(&Removal::of_any(lease.owner)).await, Some(true));
    }
}

pub(in crate::conformance) async fn bytes_are_replaced_if_they_are_those_that_were_seen(
    fixture: Fixture,
) {
    if fixture.store().administration().is_none() {
        return;
    }
    let with = |[recorded, steps, input]: [&'static str; 3]| Contents {
        recording: recording(recorded),
        steps: recording(steps),
        input: recording(input),
    };
    let (held, completed) = (fixture.key(), fixture.key());
    let lease = held.claimed(fixture.request()).await;
    held.note(&lease, &Note::step(recording("steps"))).await;
    held.note(&lease, &Note::input(recording("input"))).await;
    held.abandon(&lease, Abandoned::Hold).await;
    let done = completed.completed(&recording("done")).await;
    for (key, owner, was, passes) in [
        (&held, lease.owner, ["", "steps", "other"], false),
        (&held, lease.owner, ["", "other", "input"], false),
        (&held, owner(), ["", "steps", "input"], false),
        (&held, lease.owner, ["", "steps", "input"], true),
        (&held, lease.owner, ["", "steps", "input"], false),
        (&completed, done.owner, ["other", "", ""], false),
        (&completed, owner(), ["done", "", ""], false),
        (&completed, done.owner, ["done", "", ""], true),
        (&completed, done.owner, ["done", "", ""], false),
    ] {
        let before = key.record().await.unwrap();
        let becomes = was.map(|part| if part.is_empty() { "" } else { "sealed" });
        let replacement = Replacement::new(owner, with(was), with(becomes));
        assert_eq!(key.replace(&replacement).await, Some(passes), "{was:?}");
        let mut expected = before.clone();
        if passes {
            match &mut expected.state {
                RecordState::Completed(bytes) => *bytes = recording("sealed"),
                RecordState::InFlight | RecordState::Held => {
                    expected.notes.steps = recording("sealed");
                    expected.notes.input = recording("sealed");
                }
            }
        }
        assert_eq!(key.record().await, Some(expected));
    }
    // Only the part that is named.
    let mut replacement = Replacement::new(lease.owner, with([""; 3]), with([""; 3]));
    for (was, becomes, steps, input) in [
        (["", "", "sealed"], ["", "", "open"], "sealed", "open"),
        (["", "sealed", ""], ["", "new", ""], "new", "open"),
    ] {
        replacement = Replacement::new(lease.owner, with(was), with(becomes));
        assert_eq!(held.replace(&replacement).await, Some(true));
        let notes = held.record().await.unwrap().notes;
        assert_eq!([notes.steps, notes.input], [steps, input].map(recording));
    }
    assert_eq!(fixture.key().replace(&replacement).await, Some(false));
}

pub(in crate::conformance) async fn a_decision_is_logged(fixture: Fixture) {
    let Some(store) = fixture.store().administration() else { return };
    let key = fixture.key();
    let entry = |action, before| AuditEntry { before, ..key.audit(action) };
    let lease = key.held().await;
    key.resolve(&lease.owner, Resolution::Complete(recording("known"))).await;
    let completed = entry(AuditAction::Complete, AuditedState::Held);
    assert_eq!(logged(store, &key, 100).await, std::slice::from_ref(&completed));
    let operator = key.record().await.unwrap().owner;
    assert_eq!(key.remove(&Removal::of_completed(operator)).await, Some(true));
    let lease = key.held().await;
    key.resolve(&lease.owner, Resolution::Release).await;
    let released = entry(AuditAction::Release, AuditedState::Held);
    let forgotten = entry(AuditAction::Forget, AuditedState::Completed(None));
    assert_eq!(logged(store, &key, 2).await, [released, forgotten, completed]);
    // Any text can be logged.
    let strange = fixture.key();
    let lease = strange.completed(&recording("done")).await;
    let mut audit = strange.audit(AuditAction::Erase);
    audit.before = AuditedState::Completed(None);
    audit.actor =
        crate::protocol::Actor::new("'; DROP TABLE x; --", "\u{e9}\u{1f600} \"quoted\" \\");
    audit.operation = text("");
    let removal = Removal::of_completed(lease.owner);
    assert!(store.remove(&strange.id, &removal, &audit).await.unwrap());
    assert_eq!(logged(store, &strange, 100).await, [audit]);
}

/// What an operator has seen of a record may be outdated.
pub(in crate::conformance) async fn the_log_says_what_a_record_was_when_it_was_changed(
    fixture: Fixture,
) {
    let Some(store) = fixture.store().administration() else { return };
    let keys = [(); 9].map(|()| fixture.key());
    let [working, late, held, unmet, can_be_held, completed, plain, resolved, released] = keys;
    let (request, hold) = (fixture.request(), fixture.hold_request());
    let lasting = fixture.tick() * 8;
    for (key, claim) in [
        (&working, request.with_lease(lasting)),
        (&late, request.with_ttl(lasting)),
        (&held, request.clone()),
        (&unmet, hold.clone()),
        (&can_be_held, hold.with_lease(lasting)),
        (&completed, request.clone()),
        (&plain, request.clone()),
        (&resolved, hold.clone()),
        (&released, hold.clone()),
    ] {
        key.claimed(&claim.with_owner(request.owner)).await;
    }
    held.abandon(&held.lease(request.owner), Abandoned::Hold).await;
    completed.complete(&completed.lease(request.owner), &encoded(201)).await;
    plain.complete(&plain.lease(request.owner), &recording("done")).await;
    fixture.expire_leases().await;
    let known = Resolution::Complete(recording("known"));
    assert_eq!(resolved.resolve(&request.owner, known).await, ResolveOutcome::Resolved);
    let outcome = released.resolve(&request.owner, Resolution::Release).await;
    assert_eq!(outcome, ResolveOutcome::Resolved);
    for key in [&working, &late, &held, &unmet, &can_be_held, &completed, &plain] {
        assert_eq!(key.remove(&Removal::of_any(request.owner)).await, Some(true));
    }
    for (key, before) in [
        (&working, AuditedState::InFlight),
        (&late, AuditedState::InFlight),
        (&held, AuditedState::Held),
        (&unmet, AuditedState::Held),
        (&can_be_held, AuditedState::InFlight),
        (&completed, AuditedState::Completed(Some(201))),
        (&plain, AuditedState::Completed(None)),
        (&resolved, AuditedState::Held),
        (&released, AuditedState::Held),
    ] {
        let entries = logged(store, key, 100).await.into_iter();
        assert_eq!(entries.map(|entry| entry.before).collect::<Vec<_>>(), [before]);
    }
}

pub(in crate::conformance) async fn a_decision_that_changes_nothing_is_not_logged(
    fixture: Fixture,
) {
    let Some(store) = fixture.store().administration() else { return };
    let (held, completed, absent) = (fixture.key(), fixture.key(), fixture.key());
    let lease = held.held().await;
    let done = completed.completed(&recording("done")).await;
    held.resolve(&owner(), Resolution::Release).await;
    completed.resolve(&done.owner, Resolution::Complete(recording("wrong"))).await;
    held.remove(&Removal::of_completed(lease.owner)).await;
    for key in [held, completed, absent] {
        key.resolve(&owner(), Resolution::Release).await;
        key.remove(&Removal::of_any(owner())).await;
        assert_eq!(logged(store, &key, 100).await, []);
    }
}

pub(in crate::conformance) async fn the_log_has_pages(fixture: Fixture) {
    let Some(store) = fixture.store().administration() else { return };
    let key = fixture.key();
    for _ in 0..7 {
        let lease = key.completed(&recording("done")).await;
        assert_eq!(key.remove(&Removal::of_completed(lease.owner)).await, Some(true));
    }
    for limit in [1, 3, 7, 1_000] {
        assert_eq!(logged(store, &key, limit).await.len(), 7, "pages of {limit}");
    }
}
