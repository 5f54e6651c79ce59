//! Unreadable records: damaged values, and values of other types.

use bytes::Bytes;
use idempotent_core::{
    Abandoned, RecordId, StoreError,
    protocol::{Fence, Note, RenewOutcome, Renewal, Resolution},
    store::Store,
};
use idempotent_redis::RedisStore;

use super::helpers::{GRANTED, describe, key, lease, request};
use test_support::decision;
use test_support::servers::redis::{IN_MEMORY, Server};

/// Values that are not records, with the command that stores each.
const NOT_RECORDS: [(&str, &[&str]); 6] = [
    ("HSET", &["field", "value"]),
    ("RPUSH", &["value"]),
    ("SADD", &["value"]),
    ("ZADD", &["1", "value"]),
    ("XADD", &["*", "field", "value"]),
    ("SET", &["value"]),
];

fn put(server: &Server, id: &RecordId, (command, args): (&str, &[&str])) {
    let mut connection = server.client().get_connection().unwrap();
    redis::cmd(command)
        .arg(id.as_bytes())
        .arg(args)
        .query::<redis::Value>(&mut connection)
        .unwrap();
}

/// The error of every step of the store on a record.
async fn every_step(store: &RedisStore, id: RecordId) -> Vec<(&'static str, StoreError)> {
    let claim = request();
    let hold = claim.with_abandoned(Abandoned::Hold);
    let lease = lease(id, &claim);
    let renewal = Renewal::new(lease, claim.lease);
    let input = Note::input(Bytes::from_static(b"input"));
    let complete = Resolution::Complete(Bytes::from_static(b"done"));
    vec![
        ("claim", store.claim(&id, &claim).await.unwrap_err()),
        ("claim by script", store.claim(&id, &hold).await.unwrap_err()),
        ("renew", store.renew(&[renewal]).await.unwrap_err()),
        ("complete", store.complete(&lease, &Bytes::from_static(b"done")).await.unwrap_err()),
        ("note", store.note(&lease, &Note::hold()).await.unwrap_err()),
        ("note an input", store.note(&lease, &input).await.unwrap_err()),
        ("release", store.release(&lease).await.unwrap_err()),
        ("abandon", store.abandon(&lease, Abandoned::Retry).await.unwrap_err()),
        ("look up", store.look_up(&id).await.unwrap_err()),
        (
            "resolve",
            store
                .resolve(&id, &claim.owner, &Resolution::Release, &decision(&id))
                .await
                .unwrap_err(),
        ),
        (
            "complete a held key",
            store.resolve(&id, &claim.owner, &complete, &decision(&id)).await.unwrap_err(),
        ),
    ]
}

/// Fails if an unreadable record is reported as absent, or as a failure of the store, which a
/// client would retry forever.
#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_is_not_a_record_is_unreadable_in_every_step() {
    let server = Server::start(IN_MEMORY);
    let store = RedisStore::options().key_prefix("").connect(&server.url()).await.unwrap();
    for foreign in NOT_RECORDS {
        let id = key();
        put(&server, &id, foreign);
        for (step, error) in every_step(&store, id).await {
            assert!(
                error.is_unreadable() && !error.is_transient(),
                "{} {step}: {}",
                foreign.0,
                describe(&error)
            );
            assert!(
                describe(&error).contains("cannot be read"),
                "{} {step}: {}",
                foreign.0,
                describe(&error)
            );
        }
        let mut connection = server.client().get_connection().unwrap();
        let left: String = redis::cmd("TYPE").arg(id.as_bytes()).query(&mut connection).unwrap();
        assert_ne!(left, "none", "a step removed a value that is no record");
    }
}

/// Fails if one unreadable record prevents the renewal of other leases.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_record_does_not_prevent_other_renewals() {
    let server = Server::start(IN_MEMORY);
    let store = RedisStore::options().key_prefix("").connect(&server.url()).await.unwrap();
    let mut renewals = Vec::new();
    for _ in 0..10 {
        let (id, claim) = (key(), request());
        assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
        renewals.push(Renewal::new(lease(id, &claim), claim.lease));
    }
    for (at, foreign) in [(3, NOT_RECORDS[0]), (7, NOT_RECORDS[5])] {
        server
            .client()
            .get_connection()
            .map(|mut connection| {
                redis::cmd("DEL").arg(renewals[at].lease.id.as_bytes()).query::<()>(&mut connection)
            })
            .unwrap()
            .unwrap();
        put(&server, &renewals[at].lease.id, foreign);
    }
    let outcomes = store.renew(&renewals).await.unwrap();
    for (at, outcome) in outcomes.into_iter().enumerate() {
        let expected =
            if [3, 7].contains(&at) { RenewOutcome::Unknown } else { RenewOutcome::Renewed };
        assert_eq!(outcome, expected, "{at}");
    }
    assert!(store.renew(&renewals[3..4]).await.unwrap_err().is_unreadable());
}

/// Fails if one unreadable record prevents that abandoned operations are found.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_record_does_not_hide_an_abandoned_operation() {
    let server = Server::start(IN_MEMORY);
    let store = RedisStore::options().key_prefix("").connect(&server.url()).await.unwrap();
    let ids = [key(), key()];
    for id in ids {
        let claim = request();
        assert_eq!(store.claim(&id, &claim).await.unwrap(), GRANTED);
        let (lease, note) = (lease(id, &claim), Note::input(Bytes::from_static(b"input")));
        assert_eq!(store.note(&lease, &note).await.unwrap(), Fence::Passed);
        assert_eq!(store.abandon(&lease, Abandoned::Retry).await.unwrap(), Fence::Passed);
    }
    put(&server, &ids[0], NOT_RECORDS[5]);
    assert_eq!(store.resumable(&request().operation, None, 10).await.unwrap().ids, [ids[1]]);
}
