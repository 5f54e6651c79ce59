//! Sealing again, after the first keyring and after a rotation.

use idempotent_core::{protocol::PagePosition, runtime::ResealedPage};

use super::*;

/// Seals all pages again, and adds up their counts.
async fn reseal(runtime: &Runtime) -> ResealedPage {
    let administrator = runtime.administrator();
    let (mut total, mut after) = (ResealedPage::default(), None::<PagePosition>);
    loop {
        let page = administrator.reseal(after.as_ref()).await.unwrap();
        total.resealed += page.resealed;
        total.current += page.current;
        total.changed += page.changed;
        total.unreadable.extend(page.unreadable);
        after = page.next;
        if after.is_none() {
            return total;
        }
    }
}

fn counts(page: &ResealedPage) -> [usize; 4] {
    let count = |number: u64| usize::try_from(number).unwrap();
    [count(page.resealed), count(page.current), count(page.changed), page.unreadable.len()]
}

#[tokio::test]
async fn everything_is_sealed_with_the_first_key() {
    let store = FaultyStore::default();
    complete(&runtime(&store), "plain", "a").await;
    complete(&sealed_runtime(&store, &[1]), "old", "b").await;
    abandoned(&store, &runtime(&store), "half").await;
    let rotated = sealed_runtime(&store, &[2, 1]);
    // A sealed step beside one that is not.
    let attempt = proceed(&sealed_runtime(&store, &[1]), "half", "b", &Policy::DEFAULT).await;
    assert!(!step(attempt.operation(), "charge", "another").await.0);
    assert!(step(attempt.operation(), "ledger", "17").await.0);
    complete(&rotated, "new", "c").await;
    let _untouched = proceed(&rotated, "empty", "b", &Policy::DEFAULT).await;
    assert_eq!(counts(&reseal(&rotated).await), [3, 2, 0, 0]);
    let Contents { steps, input, .. } = contents(&store, "half").await;
    assert!(!contains(&steps, SECRET) && !contains(&input, SECRET));
    assert_eq!(counts(&reseal(&rotated).await), [0, 5, 0, 0], "it is repeated");
    // Only the new key is needed by now, and nothing that is not sealed is left.
    let later = Runtime::new(store.clone(), with_keyring(keyring(&[2]).refusing_unsealed()));
    for (key, body) in [("plain", "a"), ("old", "b"), ("new", "c")] {
        assert_eq!(verdict_of(&later, key, "b", &Policy::DEFAULT).await, replay_of(body), "{key}");
    }
    attempt.release().await;
    let attempt = proceed(&later, "half", "b", &Policy::DEFAULT).await;
    for name in ["charge", "ledger"] {
        assert!(!step(attempt.operation(), name, "another").await.0, "{name} ran again");
    }
    let input = later.look_up(&id("half")).await.unwrap().unwrap().record.notes.input;
    assert_eq!(decode_input::<String>(&input).unwrap(), SECRET);
}

#[tokio::test]
async fn what_cannot_be_opened_is_counted_and_left() {
    let store = FaultyStore::default();
    complete(&sealed_runtime(&store, &[3]), "k", "a").await;
    let before = contents(&store, "k").await;
    let page = reseal(&sealed_runtime(&store, &[2, 1])).await;
    assert_eq!((counts(&page), page.unreadable), ([0, 0, 0, 1], vec![id("k")]));
    assert_eq!(contents(&store, "k").await, before);
    complete(&runtime(&store), "plain", "a").await;
    let strict = Runtime::new(store.clone(), with_keyring(keyring(&[3]).refusing_unsealed()));
    let page = reseal(&strict).await;
    assert_eq!((counts(&page), page.unreadable), ([0, 1, 0, 1], vec![id("plain")]));
}

#[tokio::test]
async fn a_completion_between_read_and_replace_is_kept() {
    let store = FaultyStore::default();
    let (before, after) = (runtime(&store), sealed_runtime(&store, &[1]));
    let attempt = proceed(&before, "k", "b", &Policy::DEFAULT).await;
    attempt.operation().set_input(SECRET).unwrap();
    assert!(step(attempt.operation(), "charge", SECRET).await.0);
    store.set_fault(Op::LookUp, 1, Fault::HangAfter);
    let (ended, looked_up) = (store.begun(Op::Complete), store.begun(Op::LookUp));
    let resealing = tokio::spawn({
        let after = after.clone();
        async move { reseal(&after).await }
    });
    until("the record is read", || store.begun(Op::LookUp) > looked_up).await;
    assert_eq!(attempt.complete(&response("the first")).await, AttemptOutcome::Stored);
    assert_eq!(store.begun(Op::Complete), ended + 1);
    store.resume();
    assert_eq!(counts(&in_time(resealing).await.unwrap()), [0, 0, 1, 0]);
    let verdict = verdict_of(&after, "k", "b", &Policy::DEFAULT).await;
    assert_eq!(verdict, replay_of("the first"));
    assert_eq!(counts(&reseal(&after).await), [1, 0, 0, 0], "it is repeated");
    let verdict = verdict_of(&after, "k", "b", &Policy::DEFAULT).await;
    assert_eq!(verdict, replay_of("the first"));
}

#[tokio::test]
async fn a_step_between_read_and_replace_is_kept() {
    let store = FaultyStore::default();
    let (before, after) = (runtime(&store), sealed_runtime(&store, &[1]));
    let attempt = proceed(&before, "k", "b", &Policy::DEFAULT).await;
    assert!(step(attempt.operation(), "charge", "a").await.0);
    store.set_fault(Op::LookUp, 1, Fault::HangAfter);
    let looked_up = store.begun(Op::LookUp);
    let resealing = tokio::spawn({
        let after = after.clone();
        async move { reseal(&after).await }
    });
    until("the record is read", || store.begun(Op::LookUp) > looked_up).await;
    assert!(step(attempt.operation(), "ledger", "b").await.0);
    store.resume();
    assert_eq!(counts(&in_time(resealing).await.unwrap()), [0, 0, 1, 0]);
    assert_eq!(counts(&reseal(&after).await), [1, 0, 0, 0]);
    drop(attempt);
    store.advance(Policy::DEFAULT.lease);
    let attempt = proceed(&after, "k", "b", &Policy::DEFAULT).await;
    for name in ["charge", "ledger"] {
        assert!(!step(attempt.operation(), name, "another").await.0, "{name} ran again");
    }
}

#[tokio::test]
async fn a_keyring_that_seals_nothing_reseals_nothing() {
    let store = FaultyStore::default();
    let opening = Keyring::none().opening(1, &[1; 32]).unwrap();
    for keyring in [Keyring::none(), opening] {
        let runtime = Runtime::new(store.clone(), with_keyring(keyring));
        let error = runtime.administrator().reseal(None).await.unwrap_err();
        assert!(!error.is_transient());
        let chain = test_support::error_chain(&error);
        assert!(chain.contains("no key that seals; add one with `Keyring::with`"), "{chain}");
    }
}
