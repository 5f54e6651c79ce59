use super::*;

fn operation(label: Option<&str>, path: &str) -> PendingOperation {
    let mut headers = HeaderMap::new();
    headers.append("accept", HeaderValue::from_static("a"));
    headers.append("accept", HeaderValue::from_bytes(b"b: \xff").unwrap());
    headers.append("content-type", HeaderValue::from_static("text/plain"));
    let url = Url::parse("https://example.com").unwrap().join(path).unwrap();
    let body = Bytes::from_static(b"\0body\xff");
    let request = StoredRequest { method: Method::PATCH, url, headers, body };
    let now = Some(whole_millis(clock::now()));
    PendingOperation {
        label: label.map(str::to_owned),
        has_credentials: label.is_none(),
        ..PendingOperation::new(crate::key::random(), now, Duration::from_secs(60), request)
    }
}

fn whole_millis(at: SystemTime) -> SystemTime {
    time(millis(at).unwrap())
}

async fn open() -> (tempfile::TempDir, SqlitePending) {
    let directory = tempfile::tempdir().unwrap();
    let store = SqlitePending::open(directory.path().join("pending.db")).await.unwrap();
    (directory, store)
}

#[tokio::test]
async fn an_operation_is_stored_until_it_is_finished() {
    let (directory, store) = open().await;
    let (one, two) = (operation(None, "/one"), operation(None, "/two?a=b"));
    assert_eq!(store.begin(&one).await.unwrap(), None);
    assert_eq!(store.begin(&two).await.unwrap(), None);
    assert_eq!(store.begin(&one).await.unwrap().as_ref(), Some(&one));
    // Another process.
    let reopened = SqlitePending::open(directory.path().join("pending.db")).await.unwrap();
    assert_eq!(reopened.pending().await.unwrap(), [one.clone(), two.clone()]);
    store.finish(&one.key).await.unwrap();
    store.finish(&one.key).await.unwrap();
    assert_eq!(reopened.pending().await.unwrap(), std::slice::from_ref(&two));
    store.forget(&two.key).await.unwrap();
    assert_eq!(reopened.pending().await.unwrap(), []);
}

#[tokio::test]
async fn a_label_keeps_its_key_long_after_the_key_has_expired() {
    let (_directory, store) = open().await;
    let ago = |days: u64| whole_millis(clock::now()) - Duration::from_secs(days * 24 * 60 * 60);
    for (days, is_kept) in [(0, true), (29, true), (31, false)] {
        let (label, other) = (format!("order-{days}"), operation(None, "/orders"));
        let mut first = operation(Some(&label), "/orders");
        (first.started_at, first.expires_at) = (ago(days), ago(days));
        assert_eq!(store.begin(&first).await.unwrap(), None);
        let again = store.begin(&operation(Some(&label), "/")).await.unwrap();
        assert_eq!(again.as_ref(), Some(&first), "it has no outcome");
        store.finish(&first.key).await.unwrap();
        assert_eq!(store.pending().await.unwrap(), []);
        store.begin(&other).await.unwrap();
        store.finish(&other.key).await.unwrap();
        let again = store.begin(&operation(Some(&label), "/")).await.unwrap();
        let finished = PendingOperation { state: PendingState::Finished, ..first };
        assert_eq!(again, is_kept.then_some(finished), "{days}");
        store.forget(&again.map_or(other.key, |again| again.key)).await.unwrap();
        for pending in store.pending().await.unwrap() {
            store.forget(&pending.key).await.unwrap();
        }
    }
}

#[tokio::test]
async fn an_operation_can_get_its_label_later() {
    let (_directory, store) = open().await;
    let first = operation(None, "/orders");
    store.begin(&first).await.unwrap();
    let labelled = PendingOperation { label: Some("order-17".to_owned()), ..first.clone() };
    assert_eq!(store.begin(&labelled).await.unwrap(), Some(first));
    let again = store.begin(&operation(Some("order-17"), "/")).await.unwrap();
    assert_eq!(again, Some(labelled));
}

#[tokio::test]
async fn an_operation_is_retracted_only_by_its_only_call() {
    let (directory, store) = open().await;
    let file = directory.path().join("pending.db");
    let other = SqlitePending::open(&file).await.unwrap();
    for label in [None, Some("order-17")] {
        let first = operation(label, "/orders");
        store.begin(&first).await.unwrap();
        other.begin(&first).await.unwrap();
        assert!(!store.retract(&first.key).await.unwrap(), "another process has begun it");
        assert_eq!(other.pending().await.unwrap(), std::slice::from_ref(&first));
        store.forget(&first.key).await.unwrap();
        // It is being resumed.
        store.begin(&first).await.unwrap();
        other.pending().await.unwrap();
        assert!(!store.retract(&first.key).await.unwrap(), "another process resumes it");
        store.finish(&first.key).await.unwrap();
        assert!(!store.retract(&first.key).await.unwrap(), "its outcome is known");
        store.forget(&first.key).await.unwrap();
        store.begin(&first).await.unwrap();
        store.finish(&first.key).await.unwrap();
        assert!(!store.retract(&first.key).await.unwrap(), "it was done by this call");
        store.forget(&first.key).await.unwrap();
        store.begin(&first).await.unwrap();
        assert!(store.retract(&first.key).await.unwrap());
        assert!(!store.retract(&first.key).await.unwrap());
        assert_eq!(other.pending().await.unwrap(), []);
    }
}

#[tokio::test]
async fn a_label_that_was_not_done_keeps_its_key() {
    let (_directory, store) = open().await;
    let first = operation(Some("order-17"), "/orders");
    store.begin(&first).await.unwrap();
    assert!(store.retract(&first.key).await.unwrap());
    let second = operation(Some("order-17"), "/orders?b=c");
    let again = store.begin(&second).await.unwrap().unwrap();
    let expected = PendingOperation { key: first.key.clone(), ..second };
    assert_eq!(again, PendingOperation { state: PendingState::NotDone, ..expected.clone() });
    assert_eq!(store.pending().await.unwrap(), [expected]);
}

#[tokio::test]
async fn operations_of_an_earlier_release_stay_pending() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pending.db");
    let options = SqliteConnectOptions::new().filename(&file).create_if_missing(true);
    let pool = SqlitePool::connect_with(options).await.unwrap();
    let column = SCHEMA.find(",\n    -- How often").unwrap();
    let old = format!("{}) STRICT", &SCHEMA[..column]);
    sqlx::raw_sql(sqlx::AssertSqlSafe(old)).execute(&pool).await.unwrap();
    let first = operation(None, "/orders");
    let insert = INSERT.replace(", calls)", ")").replace(", 1)", ")");
    let insert = sqlx::AssertSqlSafe(insert);
    let PendingOperation { request, .. } = &first;
    sqlx::query(insert)
        .bind(first.key.as_str())
        .bind(&first.label)
        .bind(request.method.as_str())
        .bind(request.url.as_str())
        .bind(encode_headers(&request.headers))
        .bind(&request.body[..])
        .bind(first.has_credentials)
        .bind(millis(first.started_at).unwrap())
        .bind(millis(first.expires_at).unwrap())
        .execute(&pool)
        .await
        .unwrap();
    for _ in 0..2 {
        let store = SqlitePending::open(&file).await.unwrap();
        assert!(!store.retract(&first.key).await.unwrap(), "its calls were not counted");
        assert_eq!(store.pending().await.unwrap(), std::slice::from_ref(&first));
    }
}
