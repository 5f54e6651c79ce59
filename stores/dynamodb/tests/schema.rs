//! The table, and the permissions.

use std::time::Duration;

use idempotent_core::{Store as _, store::Administration as _};
use idempotent_dynamodb::{DynamoDbStore, internals};
use test_support::servers::dynamodb::{Emulator, Fault, FaultProxy, open, patient, unique_table};

use super::helpers::{GRANTED, Lab, describe, key, request};

/// What the store must be permitted to do.
const ACTIONS: [&str; 9] = [
    "DescribeTable",
    "DescribeTimeToLive",
    "GetItem",
    "BatchGetItem",
    "PutItem",
    "UpdateItem",
    "DeleteItem",
    "Query",
    "Scan",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_is_created_once_and_verified() {
    let store = Emulator::shared().unmigrated();
    let error = store.check().await.unwrap_err();
    assert!(!error.is_transient() && describe(&error).contains("migrate"), "{}", describe(&error));
    let [one, two, three] = [store.migrate(), store.migrate(), store.migrate()];
    let (one, two, three) = tokio::join!(one, two, three);
    one.and(two).and(three).unwrap();
    store.migrate().await.unwrap();
    store.check().await.unwrap();
    assert_eq!(store.claim(&key(), &request()).await.unwrap(), GRANTED);
    let facts = store.measure().await.unwrap();
    assert!(facts.findings.iter().all(|finding| !finding.found.contains("time to live")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_sends_nothing_that_changes_the_table() {
    let lab = Lab::new().await;
    lab.store.check().await.unwrap();
    assert_eq!(internals::items(&lab.direct).await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_names_the_action_that_is_denied() {
    let lab = Lab::new().await;
    for denied in ACTIONS {
        lab.proxy.plan(move |_, action| (action == denied).then_some(Fault::Denied));
        let error = lab.store.check().await.unwrap_err();
        let message = describe(&error);
        assert!(!error.is_transient(), "{message}");
        assert!(message.contains(&format!("`dynamodb:{denied}` is denied")), "{message}");
    }
    // Nothing else is sent for a request or an operator, but to transactions: they need the
    // permissions of their parts.
    let sent = lab.sent_by_all_calls().await;
    for action in &sent {
        let known = ACTIONS.contains(&action.as_str()) || action == "TransactWriteItems";
        assert!(known, "{action}: {sent:?}");
    }
}

impl Lab {
    /// The actions that the calls of the store send, without `migrate`.
    async fn sent_by_all_calls(&self) -> std::collections::BTreeSet<String> {
        let sent = std::sync::Arc::new(std::sync::Mutex::default());
        let seen: std::sync::Arc<std::sync::Mutex<std::collections::BTreeSet<String>>> = sent;
        let record = seen.clone();
        self.proxy.plan(move |_, action| {
            record.lock().unwrap().insert(action.to_owned());
            None
        });
        super::faults::call_everything(&self.store).await;
        self.store.count().await.unwrap();
        self.store.measure().await.unwrap();
        self.proxy.clear();
        let seen = seen.lock().unwrap();
        seen.clone()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_with_another_key_is_refused() {
    let emulator = Emulator::shared();
    for (table, named) in internals::unsuitable_tables(&emulator.endpoint()).await.unwrap() {
        let store = open(emulator.port, &table, patient());
        let error = store.check().await.unwrap_err();
        let message = describe(&error);
        assert!(!error.is_transient() && message.contains(named), "{named}: {message}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_index_and_time_to_live_are_created() {
    let emulator = Emulator::shared();
    for (table, named) in internals::unsuitable_tables(&emulator.endpoint()).await.unwrap() {
        if matches!(named, "no index" | "not enabled") {
            let store = open(emulator.port, &table, patient());
            store.migrate().await.unwrap();
            store.check().await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_is_opened_by_its_url() {
    let refused = DynamoDbStore::connect("dynamodb://us-east-1/t?endpoint=ftp://h").await;
    assert!(!refused.unwrap_err().is_transient());
    let prefix = "p".repeat(65);
    let long = DynamoDbStore::options().key_prefix(&prefix);
    assert!(long.connect("dynamodb://us-east-1/t").await.is_err());
    // No credentials, and a port at which nobody listens.
    let options = DynamoDbStore::options().call_timeout(Duration::from_millis(500));
    let url = "dynamodb://us-east-1/t?endpoint=http://127.0.0.1:9";
    let store = options.connect(url).await.unwrap();
    assert!(store.check().await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_with_other_prefixes_share_a_table() {
    let emulator = Emulator::shared();
    let table = unique_table();
    let [one, two] =
        ["", "two:"].map(|prefix| open(emulator.port, &table, patient().key_prefix(prefix)));
    one.migrate().await.unwrap();
    let id = key();
    assert_eq!(one.claim(&id, &request()).await.unwrap(), GRANTED);
    assert_eq!(two.claim(&id, &request()).await.unwrap(), GRANTED);
    for store in [&one, &two] {
        let page = store.scan(&Default::default(), None, 100).await.unwrap();
        assert_eq!(page.records.len(), 1, "{page:?}");
        assert!(page.unreadable.is_empty(), "{page:?}");
    }
}

/// A table that does not exist is no reason to wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_table_is_a_permanent_error() {
    let emulator = Emulator::shared();
    let proxy = FaultProxy::start(emulator.port).await;
    let store = open(proxy.port, &unique_table(), patient());
    let error = store.claim(&key(), &request()).await.unwrap_err();
    assert!(!error.is_transient(), "{}", describe(&error));
    assert_eq!(proxy.requests(), 1);
}
