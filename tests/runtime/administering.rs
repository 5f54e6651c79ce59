//! What operators see and decide, and what the runtime adds to histories.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use idempotent_core::{
    Abandoned, FingerprintKeys, Lease, OwnerToken, Policy, Principal, RecordId, Runtime, ScopeId,
    StoreError,
    history::Kind,
    protocol::{
        Actor, AuditAction, AuditEntry, AuditedState, Claim, ClaimOutcome, Fence, ListedState,
        Note, RecordFilter, RenewOutcome, Renewal, Resolution, ResolveOutcome, Snapshot,
    },
    runtime::{Attempt, AttemptOutcome, FoundRecord, Subject},
    store::Store,
};
use test_support::{Fault, FaultyStore, Op};

use crate::support::*;

fn actor() -> Actor {
    Actor::new("ada", "as the bank's books say")
}

/// An attempt of this principal.
async fn attempt_of(runtime: &Runtime, key: &str, user: &ScopeId, policy: &Policy) -> Attempt {
    let subject = Subject::new(id(key)).with_operation("POST /payments");
    let subject = subject.with_principal(user.principal());
    expect_attempt(runtime.begin(subject, request("b"), policy).await.unwrap())
}

async fn owner_of(runtime: &Runtime, id: &RecordId) -> OwnerToken {
    runtime.look_up(id).await.unwrap().expect("a record").record.owner
}

/// The kinds of the history of a key.
async fn kinds(store: &FaultyStore, key: &str) -> Vec<Kind> {
    let found = store.inner().look_up(&id(key)).await.unwrap().expect("a record");
    found.record.history.entries().map(|entry| entry.kind).collect()
}

#[tokio::test]
async fn a_decision_is_logged_with_who_and_why() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let administrator = runtime.administrator();
    let attempt = attempt_of(&runtime, "k", &ScopeId::new("alice"), &HOLD).await;
    assert_eq!(attempt.abandon(Abandoned::Hold).await, AttemptOutcome::Stored);
    let (id, seen) = (id("k"), owner_of(&runtime, &id("k")).await);
    let resolution = Resolution::Complete(response("known").into());
    let actor = actor();
    let resolve = || administrator.resolve(&id, &seen, &resolution, &actor);
    assert_eq!(resolve().await.unwrap(), ResolveOutcome::Resolved);
    assert_eq!(resolve().await.unwrap(), ResolveOutcome::Conflict);
    let operator = owner_of(&runtime, &id).await;
    assert!(administrator.forget(&id, &operator, &actor).await.unwrap());
    assert!(!administrator.forget(&id, &operator, &actor).await.unwrap());
    let log = administrator.audit(None, 10).await.unwrap().entries;
    assert_eq!(administrator.audit_of(&id).await.unwrap(), log);
    assert_eq!(administrator.audit_of(&self::id("another")).await.unwrap(), []);
    let entries: Vec<_> = log.iter().map(|audited| &audited.entry).collect();
    let [forgotten, completed] = entries.as_slice() else { panic!("{entries:?}") };
    assert_eq!(forgotten.action, AuditAction::Forget);
    assert_eq!(forgotten.before, AuditedState::Completed(Some(201)));
    assert_eq!(forgotten.after, AuditedState::Absent);
    assert_eq!(completed.action, AuditAction::Complete);
    assert_eq!(completed.before, AuditedState::Held);
    assert_eq!(completed.after, AuditedState::Completed(Some(201)));
    for entry in entries {
        assert_eq!((entry.id, &entry.actor), (id, &actor));
        assert_eq!(entry.operation.as_str(), "POST /payments");
    }
}

#[tokio::test]
async fn a_record_is_found_by_the_digits_of_a_log() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let administrator = runtime.administrator();
    for key in ["a", "b"] {
        let attempt = proceed(&runtime, key, "b", &Policy::DEFAULT).await;
        attempt.complete(&response("done")).await;
    }
    let find = async |digits: &str| administrator.find(digits).await.map(Result::unwrap);
    let FoundRecord::One(found) = find(&id("a").short().to_string()).await.unwrap() else {
        panic!("the record is there")
    };
    assert_eq!(found.id, id("a"));
    let odd = &id("a").to_string()[..7];
    assert!(matches!(find(odd).await, Ok(FoundRecord::One(_))));
    let absent = if id("a").to_string().starts_with('0') { "ffffffff" } else { "00000000" };
    assert!(matches!(find(absent).await, Ok(FoundRecord::Absent)));
    assert!(find("").await.is_err() && find("xyz").await.is_err());
    for number in 0..20 {
        let attempt = proceed(&runtime, &number.to_string(), "b", &Policy::DEFAULT).await;
        attempt.complete(&response("done")).await;
    }
    let digits = "0123456789abcdef".chars().map(String::from);
    let mut ambiguous = 0;
    for digit in digits {
        if let Ok(FoundRecord::Ambiguous(found)) = find(&digit).await {
            assert!(found.iter().all(|one| one.id.to_string().starts_with(&digit)));
            ambiguous += 1;
        }
    }
    assert!(ambiguous > 0, "22 records have 16 first digits");
}

#[tokio::test]
async fn all_records_of_a_principal_are_erased() {
    let store = FaultyStore::default();
    let old = FingerprintKeys::none().with(1, b"0123456789abcdef").unwrap();
    let keys = FingerprintKeys::none().with(2, b"fedcba9876543210").unwrap();
    let with =
        |keys| Runtime::new(store.clone(), options(|options| options.fingerprint_keys = keys));
    let (alice, bob) = (ScopeId::new("alice"), ScopeId::new("bob"));
    let complete = async |runtime: &Runtime, key: &str, user: &ScopeId| {
        let attempt = attempt_of(runtime, key, user, &HOLD).await;
        assert_eq!(attempt.complete(&response("secret")).await, AttemptOutcome::Stored);
    };
    complete(&runtime(&store), "plain", &alice).await;
    complete(&with(old), "old", &alice).await;
    let runtime = with(keys.recognizing(1, b"0123456789abcdef").unwrap());
    for number in 0..300 {
        complete(&runtime, &format!("new {number}"), &alice).await;
    }
    complete(&runtime, "bob's", &bob).await;
    let held = attempt_of(&runtime, "held", &alice, &HOLD).await;
    held.abandon(Abandoned::Hold).await;
    let running = attempt_of(&runtime, "running", &alice, &HOLD).await;
    let administrator = runtime.administrator();
    let principals = administrator.principals(&alice);
    assert_eq!(principals.len(), 3);
    let erase = async |live| {
        let (mut erased, mut left, mut after) = (0, Vec::new(), None);
        loop {
            let page = administrator.erase(&principals, live, after.as_ref(), &actor()).await;
            let page = page.unwrap();
            erased += page.erased;
            left.extend(page.left.into_iter().map(|listed| listed.id));
            after = page.next;
            if after.is_none() {
                left.sort();
                return (erased, left);
            }
        }
    };
    let mut live = vec![id("held"), id("running")];
    live.sort();
    assert_eq!(erase(false).await, (302, live));
    assert_eq!(erase(true).await, (2, vec![]));
    // To the attempt that still ran, the store has lost its record.
    assert_eq!(running.complete(&response("late")).await, AttemptOutcome::Stored);
    assert_eq!(erase(false).await, (1, vec![]));
    let filter = RecordFilter::default();
    let left = administrator.scan(&filter, None, 1_000).await.unwrap().records;
    assert_eq!(left.iter().map(|listed| listed.id).collect::<Vec<_>>(), [id("bob's")]);
    let log = administrator.audit(None, 1_000).await.unwrap().entries;
    let erased = log.iter().filter(|audited| audited.entry.action == AuditAction::Erase);
    assert_eq!(erased.count(), 305);
    // Without a principal, nothing is erased.
    assert_eq!(administrator.erase(&[], true, None, &actor()).await.unwrap().erased, 0);
    let nobody = Principal::from_bytes([0; 16]);
    assert_eq!(administrator.erase(&[nobody], true, None, &actor()).await.unwrap().erased, 0);
}

/// Two operators erase at the same time: each record is gone to one of them.
#[tokio::test]
async fn a_record_that_has_gone_meanwhile_is_not_left() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let administrator = runtime.administrator();
    let alice = ScopeId::new("alice");
    for number in 0..100 {
        let attempt = attempt_of(&runtime, &number.to_string(), &alice, &HOLD).await;
        assert_eq!(attempt.complete(&response("secret")).await, AttemptOutcome::Stored);
    }
    let held = attempt_of(&runtime, "held", &alice, &HOLD).await;
    held.abandon(Abandoned::Hold).await;
    let principals = administrator.principals(&alice);
    let actor = actor();
    let erase = || administrator.erase(&principals, false, None, &actor);
    let (one, other) = tokio::join!(erase(), erase());
    let pages = [one.unwrap(), other.unwrap()];
    assert_eq!(pages.iter().map(|page| page.erased).sum::<u64>(), 100);
    for page in pages {
        let left: Vec<_> = page.left.iter().map(|listed| listed.id).collect();
        assert_eq!((left, page.unreadable, page.next), (vec![id("held")], vec![], None));
    }
    assert_eq!(administrator.audit(None, 1_000).await.unwrap().entries.len(), 100);
}

#[tokio::test]
async fn a_key_whose_lease_ran_out_unseen_is_listed_and_counted_as_held() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let administrator = runtime.administrator();
    // Another process claims the key under `hold`, and dies.
    let (_, outcome) = claim_in_another_process(&store, "k", "b", &HOLD).await;
    assert_eq!(outcome, ClaimOutcome::Granted { attempt: 1 });
    let of_state = async |state| {
        let filter = RecordFilter::of_state(state);
        let page = administrator.watched(&filter, None, 10).await.unwrap();
        page.records.into_iter().map(|listed| listed.id).collect::<Vec<_>>()
    };
    assert_eq!(of_state(ListedState::InFlight).await, [id("k")]);
    assert_eq!(of_state(ListedState::Held).await, []);
    store.advance(Policy::DEFAULT.lease);
    assert_eq!(of_state(ListedState::InFlight).await, []);
    assert_eq!(of_state(ListedState::Held).await, [id("k")]);
    let count = administrator.count().await.unwrap();
    assert_eq!((count.held, count.in_flight, count.records), (1, 0, 1));
    assert!(count.oldest_held.is_some());
}

#[tokio::test]
async fn a_history_tells_of_a_lost_lease_and_of_a_fenced_end() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let attempt = proceed(&runtime, "k", "b", &with_lease(Duration::from_millis(300))).await;
    store.advance(Policy::DEFAULT.lease);
    let (_, outcome) = claim_in_another_process(&store, "k", "b", &Policy::DEFAULT).await;
    assert_eq!(outcome, ClaimOutcome::Granted { attempt: 2 });
    let known = [Kind::Claimed, Kind::TakenOver, Kind::RenewalLost];
    for _ in 0..500 {
        if kinds(&store, "k").await == known {
            break;
        }
        tokio::time::sleep(ms(10)).await;
    }
    assert_eq!(kinds(&store, "k").await, known);
    assert!(matches!(attempt.complete(&response("late")).await, AttemptOutcome::Fenced(_)));
    assert_eq!(kinds(&store, "k").await, [&known[..], &[Kind::Fenced]].concat());
}

#[tokio::test]
async fn a_history_tells_of_a_completion_that_was_stored_later() {
    let store = FaultyStore::default();
    let runtime = runtime(&store);
    let attempt = proceed(&runtime, "k", "b", &Policy::DEFAULT).await;
    store.set_fault(Op::Complete, 3, Fault::Before);
    assert_eq!(attempt.complete(&response("a")).await, AttemptOutcome::Deferred);
    in_time(runtime.drain()).await;
    assert_eq!(kinds(&store, "k").await, [Kind::Claimed, Kind::Completed, Kind::Deferred]);
}

#[tokio::test]
async fn a_store_without_administration_says_so() {
    /// The memory store without its lists.
    struct Plain(FaultyStore);

    #[async_trait]
    impl Store for Plain {
        async fn claim(&self, id: &RecordId, claim: &Claim) -> Result<ClaimOutcome, StoreError> {
            self.0.claim(id, claim).await
        }
        async fn renew(&self, leases: &[Renewal]) -> Result<Vec<RenewOutcome>, StoreError> {
            self.0.renew(leases).await
        }
        async fn note(&self, lease: &Lease, note: &Note) -> Result<Fence, StoreError> {
            self.0.note(lease, note).await
        }
        async fn complete(&self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
            self.0.complete(lease, recording).await
        }
        async fn release(&self, lease: &Lease) -> Result<Fence, StoreError> {
            self.0.release(lease).await
        }
        async fn abandon(&self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
            self.0.abandon(lease, policy).await
        }
        async fn look_up(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
            self.0.look_up(id).await
        }
        async fn resolve(
            &self,
            id: &RecordId,
            seen: &OwnerToken,
            resolution: &Resolution,
            audit: &AuditEntry,
        ) -> Result<ResolveOutcome, StoreError> {
            self.0.resolve(id, seen, resolution, audit).await
        }
        async fn purge(&self, limit: u32) -> Result<u64, StoreError> {
            self.0.purge(limit).await
        }
    }

    let runtime = Runtime::new(Plain(FaultyStore::default()), no_purge());
    let administrator = runtime.administrator();
    let filter = RecordFilter::default();
    for error in [
        administrator.watched(&filter, None, 1).await.unwrap_err(),
        administrator.scan(&filter, None, 1).await.unwrap_err(),
        administrator.find("ab").await.unwrap().unwrap_err(),
        administrator.count().await.unwrap_err(),
        administrator.audit(None, 1).await.unwrap_err(),
        administrator.measure().await.unwrap_err(),
    ] {
        assert!(error.is_unsupported(), "{error}");
    }
    // A held key can be resolved all the same.
    let attempt = proceed(&runtime, "k", "b", &HOLD).await;
    assert_eq!(attempt.abandon(Abandoned::Hold).await, AttemptOutcome::Stored);
    let seen = owner_of(&runtime, &id("k")).await;
    let resolved = administrator.resolve(&id("k"), &seen, &Resolution::Release, &actor()).await;
    assert_eq!(resolved.unwrap(), ResolveOutcome::Resolved);
}
