//! Stores that are opened by URL.

use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use idempotent_actix::store::{ConnectError, connect};
use idempotent_core::{OwnerToken, Store, store::memory::MemoryStore};
use idempotent_postgres::PostgresStore;
use idempotent_sqlite::SqliteStore;

use test_support::{
    error_chain,
    servers::postgres::database,
    subjects::{redis::TestServer, sqlite::File},
    without_runtime,
};
use tokio::{net::TcpListener, time::timeout};

/// How long a store may wait for a server when it is opened, on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

async fn connect_error(url: &str) -> ConnectError {
    connect(url).await.map(drop).unwrap_err()
}

#[tokio::test]
async fn a_url_opens_its_store() {
    let file = File::new();
    let slashes = file.url().replacen("sqlite:", "sqlite://", 1);
    let (postgres, redis) = (database().await, TestServer::start());
    for url in ["memory:", &file.url(), &slashes, &postgres, redis.url()] {
        let store = connect(url).await.unwrap();
        store.migrate().await.unwrap();
        let id = idempotent_core::RecordId::from_bytes([7; 32]);
        assert_eq!(store.look_up(&id).await.unwrap(), None);
        let lease = idempotent_core::Lease { id, owner: OwnerToken::random().unwrap() };
        assert_eq!(store.release(&lease).await.unwrap(), idempotent_core::protocol::Fence::Fenced);
    }
}

#[tokio::test]
async fn the_error_for_an_unknown_scheme_lists_the_known_ones() {
    let error = connect_error("oracle://user:hunter2@host/db").await;
    for known in ["`oracle:`", "`memory:`", "`sqlite:`", "`postgres:`", "`mysql:`", "`redis:`"] {
        assert!(error.to_string().contains(known), "{error}");
    }
    assert!(!format!("{error:?} {}", error_chain(&error)).contains("hunter2"));
}

#[tokio::test]
async fn text_that_is_not_a_url_is_not_shown() {
    let error = connect_error("hunter2").await;
    assert!(matches!(error, ConnectError::NoScheme));
    assert!(!format!("{error:?} {}", error_chain(&error)).contains("hunter2"));
    assert!(matches!(connect_error("memory:orders").await, ConnectError::NotMemory));
    let misspelled = connect_error("redis//hunter2@localhost:6379").await;
    assert!(matches!(misspelled, ConnectError::NoScheme), "{misspelled}");
}

#[tokio::test]
async fn an_invalid_value_in_a_url_is_not_shown() {
    for (url, named) in [
        ("sqlite:x?mode=hunter2", "`mode`"),
        ("sqlite:x?hunter2=1", "the parameters are"),
        ("postgres://user@host/db?sslmode=hunter2", "`sslmode`"),
        ("postgres://user@host/db?max_transactions=hunter2", "`max_transactions`"),
        ("postgres://user@host/db?statement-cache-capacity=hunter2", "invalid digit"),
        ("postgres://user:hunter2@host:port/db", "invalid port"),
        ("redis://host?protocol=hunter2", "`protocol`"),
        ("memory:hunter2", "without a name"),
    ] {
        let error = connect_error(url).await;
        let shown = error_chain(&error);
        assert!(shown.contains(named), "{url}: {shown}");
        assert!(!format!("{error:?} {shown}").contains("hunter2"), "{url}: {shown}");
    }
}

#[tokio::test]
async fn an_unknown_parameter_is_refused_with_the_nearest_one_by_every_store() {
    for url in [
        "sqlite:x?mod=rw",
        "postgres://user@127.0.0.1:1/db?max_transaction=4",
        "redis://127.0.0.1:1?protcol=resp3",
        "redis+cluster://127.0.0.1:1?protcol=resp3",
        "redis+sentinel://127.0.0.1:1/main?sentinel_usename=me",
    ] {
        let shown = format!("{:?}", connect_error(url).await);
        let (_, parameter) = url.split_once('?').unwrap();
        let misspelled = format!("`{}`", parameter.split_once('=').unwrap().0);
        assert!(shown.contains(&misspelled) && shown.contains("write `"), "{url}: {shown}");
    }
    let shown = format!("{:?}", connect_error("memory:?namespace=shop").await);
    assert!(shown.contains("without parameters"), "{shown}");
    // A known one is not refused: the server is just not there.
    for url in [
        "postgres://user@127.0.0.1:1/db?application_name=a&options[lock_timeout]=1s",
        "redis://127.0.0.1:1?protocol=resp3",
        "redis+sentinel://127.0.0.1:1/main?sentinel_password=a",
    ] {
        let ConnectError::Store(source) = connect_error(url).await else { panic!("{url}") };
        assert!(source.is_transient(), "{url}: {source:?}");
    }
}

/// The builder sets it. In a URL it would be passed over, and applications would share their keys.
#[tokio::test]
async fn a_namespace_in_a_url_is_refused_by_every_store() {
    for url in [
        "sqlite:x?namespace=shop",
        "postgres://user@127.0.0.1:1/db?namespace=shop",
        "redis://127.0.0.1:1?namespace=shop",
        "redis+cluster://127.0.0.1:1?namespace=shop",
        "redis+sentinel://127.0.0.1:1/main?namespace=shop",
    ] {
        let shown = format!("{:?}", connect_error(url).await);
        assert!(shown.contains("Idempotency::builder(store).namespace("), "{url}: {shown}");
    }
}

#[tokio::test]
async fn a_password_that_is_not_percent_encoded_is_refused_and_not_shown() {
    for scheme in ["postgres", "redis", "redis+cluster"] {
        for password in ["zq#qz", "zq/qz", "12/qz", "zq?qz", "12?usr=qz", "12#qz"] {
            let url = format!("{scheme}://user:{password}@127.0.0.1:1/0");
            let error = connect_error(&url).await;
            let shown = format!("{error:?} {}", error_chain(&error));
            assert!(shown.contains("percent-encoded"), "{url}: {shown}");
            assert!(["zq", "qz", "usr"].iter().all(|part| !shown.contains(part)), "{shown}");
        }
        // The rest of such a URL would be ignored.
        let error = connect_error(&format!("{scheme}://127.0.0.1:1/0#part")).await;
        assert!(error_chain(&error).contains("percent-encoded"), "{error:?}");
    }
}

/// `fn main() -> Result<(), Box<dyn Error>>` shows the `Debug` output.
#[tokio::test]
async fn an_error_at_start_reads_as_its_message_and_its_causes() {
    for url in
        ["db", "mysql://h/d", "memory:orders", "sqlite:x?mode=wrong", "postgres://127.0.0.1:1/d"]
    {
        let error = connect_error(url).await;
        let (shown, message) = (format!("{error:?}"), error.to_string());
        assert!(shown.starts_with(&message), "{shown}");
        let mut cause = error.source();
        while let Some(error) = cause {
            assert!(shown.contains(&error.to_string()), "{shown}");
            assert!(!shown.contains("{ "), "{shown}");
            cause = error.source();
        }
    }
    let shown = format!("{:?}", connect_error("postgres://127.0.0.1:1/d").await);
    assert!(shown.ends_with(": Connection refused (os error 111)"), "{shown}");
    let file = File::new();
    let store = SqliteStore::connect(&file.url()).await.unwrap();
    let missing = format!("{:?}", store.check().await.unwrap_err());
    let (begin, end) =
        ("sqlite: failed to check: the table has", "`migrate()` on the store at start");
    assert!(missing.starts_with(begin) && missing.ends_with(end), "{missing}");
    let down = PostgresStore::connect("postgres://127.0.0.1:1/d").await.unwrap_err();
    let shown = format!("{down:?}");
    assert!(shown.ends_with(": Connection refused (os error 111) (transient)"), "{shown}");
    assert_eq!(shown.matches("Connection refused").count(), 1, "{shown}");
    let refused = SqliteStore::options().table("a b").connect(&file.url()).await.unwrap_err();
    let shown = format!("{refused:?}");
    assert!(shown.contains("the option `table` is invalid: the name of a table"), "{shown}");
}

#[tokio::test]
async fn sqlite_in_memory_is_refused_in_favor_of_the_memory_store() {
    for url in [
        "sqlite::memory:",
        "sqlite://:memory:",
        "sqlite:",
        "sqlite://",
        "sqlite:x?cache=shared&mode=memory",
    ] {
        let error = connect_error(url).await;
        assert!(error_chain(&error).contains("`memory:`"), "{url}: {}", error_chain(&error));
    }
}

#[test]
fn calls_outside_of_a_tokio_runtime_are_refused_with_that_reason() {
    let file = File::new();
    without_runtime::assert_done_or_refused(
        "connect",
        without_runtime::call(SqliteStore::connect(&file.url())),
    );
    without_runtime::call(connect(&file.url())).map(drop).unwrap_err();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (own, pool) = runtime.block_on(async { (file.open().await, file.pool().await) });
    runtime.block_on(own.migrate()).unwrap();
    without_runtime::call_all(&own);
    let shared = runtime.block_on(SqliteStore::from_pool(pool)).unwrap();
    without_runtime::call_all(&shared);
    without_runtime::call_all(&std::sync::Arc::new(MemoryStore::new()));
}

/// Fails if a store waits for ever for a server that accepts connections and never responds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_accepts_connections_and_never_responds_is_a_transient_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = accepted.clone();
    let silent = tokio::spawn(async move {
        let mut open = Vec::new();
        loop {
            open.push(listener.accept().await.unwrap());
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    for url in [
        format!("postgres://postgres@{address}/postgres"),
        format!("redis://{address}/"),
        format!("redis+cluster://{address}"),
        format!("redis+sentinel://{address}/payments"),
    ] {
        let before = accepted.load(Ordering::SeqCst);
        let opened = timeout(LIMIT, connect(&url)).await.expect("the store waits for ever");
        let error = opened.map(drop).unwrap_err();
        let ConnectError::Store(source) = &error else { panic!("{url}: {error:?}") };
        assert!(source.is_transient(), "{url}: {}", error_chain(&error));
        assert!(accepted.load(Ordering::SeqCst) > before, "{url}: no connection");
    }
    silent.abort();
}
