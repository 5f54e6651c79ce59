//! Notes that wait for replicas.

use bytes::Bytes;
use idempotent_core::{
    Abandoned, ShortText,
    protocol::{ClaimOutcome, Fence, Note, Rejection},
    store::Store,
};

use super::{
    helpers::{GRANTED, describe, key, lease, request},
    replicas::{disconnect, impatient, lacks_replicas, pair, promote, reconnect},
};

fn text(text: &str) -> ShortText {
    ShortText::new(text).unwrap()
}

/// Fails if a note is acknowledged that no replica has: after a failover a step would run again, or
/// an operation past its point of no return would be retried.
#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledged_note_is_known_to_the_next_master() {
    let (master, replica, store) = pair().await;
    let (id, claim) = (key(), request());
    assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
    let lease = lease(id, &claim);
    let notes = [
        Note::input(Bytes::from_static(b"input")),
        Note::step(Bytes::from_static(b"step")),
        Note::reference(text("pi_1")),
        Note::hold(),
    ];
    for note in &notes {
        disconnect(&replica);
        let short = impatient(&store);
        let error = short.note(&lease, note).await.unwrap_err();
        assert!(lacks_replicas(&error), "{}", describe(&error));
        // Progress may be lost, so it waits for no replica.
        let progress = Note::progress(text("half"));
        assert_eq!(short.note(&lease, &progress).await.unwrap(), Fence::Passed);
        let other = super::helpers::lease(key(), &claim);
        assert_eq!(short.note(&other, note).await.unwrap(), Fence::Fenced);
        reconnect(&master, &replica);
        assert_eq!(store.note(&lease, note).await.unwrap(), Fence::Passed);
    }
    let next = promote(master, &replica).await;
    let record = next.look_up(&id).await.unwrap().unwrap().record;
    assert_eq!(record.abandoned, Abandoned::Hold);
    assert_eq!(record.notes.reference.as_deref(), Some("pi_1"));
    // The failed note has stayed on the master, and the step was added again.
    assert_eq!(
        (&record.notes.steps[..], &record.notes.input[..]),
        (&b"stepstep"[..], &b"input"[..])
    );
    assert!(matches!(
        next.claim(&id, &request()).await.unwrap(),
        ClaimOutcome::Rejected(Rejection::InFlight { reference: Some(_), .. })
    ));
}

/// Fails if an input is acknowledged whose index entry no replica has: the next master would not
/// find the abandoned operation.
#[tokio::test(flavor = "multi_thread")]
async fn the_next_master_finds_an_abandoned_operation() {
    let (master, replica, store) = pair().await;
    let (id, claim) = (key(), request());
    assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
    let lease = lease(id, &claim);
    let note = Note::input(Bytes::from_static(b"input"));
    assert_eq!(store.note(&lease, &note).await.unwrap(), Fence::Passed);
    let next = promote(master, &replica).await;
    assert_eq!(next.abandon(&lease, Abandoned::Retry).await.unwrap(), Fence::Passed);
    assert_eq!(next.resumable(&request().operation, None, 10).await.unwrap().ids, [id]);
}
