//! A store with records, and how the program finds it.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use idempotent_core::{
    Abandoned, Fingerprint, FingerprintKeys, Key, Keyring, Lease, OwnerToken, RecordId, Runtime,
    ScopeId, ShortText, Store,
    protocol::{Claim, ClaimOutcome, Fence, Note},
    runtime::RuntimeOptions,
};
use idempotent_http::recording::{RecordedBody, encode};
#[cfg(feature = "mysql")]
use idempotent_mysql::MySqlStore;
use idempotent_postgres::PostgresStore;
use idempotent_redis::RedisStore;
#[cfg(feature = "dynamodb")]
use test_support::servers::dynamodb::{Emulator, open, patient, unique_table};
use test_support::{
    servers::postgres::database,
    subjects::{
        redis::{TestServer, unique_prefix},
        sqlite::File,
    },
};

use crate::program::Program;

pub(crate) const NAMESPACE: &str = "shop";
pub(crate) const OPERATION: &str = "POST /refunds";

/// A store, and what the program has to be told to find it.
pub(crate) struct Backend {
    pub(crate) store: Arc<dyn Store>,
    url: String,
    flags: Vec<String>,
    /// What has to live as long.
    _server: Box<dyn std::any::Any>,
}

impl Backend {
    pub(crate) async fn sqlite() -> Self {
        let file = File::new();
        let (store, url) = (file.open().await, file.url());
        store.migrate().await.unwrap();
        Self { store: Arc::new(store), url, flags: Vec::new(), _server: Box::new(file) }
    }

    /// In a schema and a table of its own.
    pub(crate) async fn postgres() -> Self {
        let url = database().await;
        let options = PostgresStore::options().schema("payments").table("keys");
        let store = options.connect(&url).await.unwrap();
        let flags = ["--schema", "payments", "--table", "keys"].map(str::to_owned).to_vec();
        Self { store: Arc::new(store), url, flags, _server: Box::new(()) }
    }

    /// In a table of its own.
    #[cfg(feature = "mysql")]
    pub(crate) async fn mysql() -> Self {
        let url = test_support::servers::mariadb::database().await;
        let store = MySqlStore::options().table("keys").connect(&url).await.unwrap();
        let flags = ["--table", "keys"].map(str::to_owned).to_vec();
        Self { store: Arc::new(store), url, flags, _server: Box::new(()) }
    }

    /// In a table of its own, with a prefix.
    #[cfg(feature = "dynamodb")]
    pub(crate) async fn dynamodb() -> Self {
        let (emulator, table) = (Emulator::shared(), unique_table());
        let store = open(emulator.port, &table, patient().key_prefix("shop:"));
        store.migrate().await.unwrap();
        let url = format!("dynamodb://us-east-1/{table}?endpoint={}", emulator.endpoint());
        let flags = ["--key-prefix", "shop:"].map(str::to_owned).to_vec();
        Self { store: Arc::new(store), url, flags, _server: Box::new(()) }
    }

    /// With a prefix of its own.
    pub(crate) async fn redis() -> Self {
        let (server, prefix) = (TestServer::start(), unique_prefix());
        let store = RedisStore::options().key_prefix(&prefix).connect(server.url()).await.unwrap();
        let (url, flags) = (server.url().to_owned(), vec!["--key-prefix".to_owned(), prefix]);
        Self { store: Arc::new(store), url, flags, _server: Box::new(server) }
    }

    /// The program with this store.
    pub(crate) fn program(&self, arguments: &[&str]) -> Program {
        let flags = self.flags.iter().map(String::as_str);
        let arguments: Vec<_> = arguments.iter().copied().chain(flags).collect();
        Program::new(&arguments).with("IDEMPOTENCY_URL", &self.url)
    }

    /// Claims a key of alice.
    pub(crate) async fn claimed(&self, key: &str, abandoned: Abandoned) -> Lease {
        self.claimed_with(key, abandoned, &FingerprintKeys::none()).await
    }

    pub(crate) async fn claimed_with(
        &self,
        key: &str,
        abandoned: Abandoned,
        keys: &FingerprintKeys,
    ) -> Lease {
        let owner = OwnerToken::random().unwrap();
        let mut claim = Claim::new(Fingerprint::from_bytes([1; Fingerprint::BYTES]), owner)
            .with_lease(Duration::from_secs(60))
            .with_ttl(Duration::from_secs(3600))
            .with_principal(Some(keys.sign_principal(alice().principal())))
            .with_operation(ShortText::truncated(OPERATION));
        claim.abandoned = abandoned;
        let id = id(key);
        let granted = self.store.claim(&id, &claim).await.unwrap();
        assert_eq!(granted, ClaimOutcome::Granted { attempt: 1 });
        Lease { id, owner }
    }

    /// A runtime of an application that seals with the first of these keys.
    pub(crate) fn sealed(&self, ids: &[u8]) -> Runtime {
        let key = |keyring: Keyring, id: &u8| keyring.with((*id).into(), &[*id; 32]).unwrap();
        let mut options = RuntimeOptions::default();
        options.keyring = ids.iter().fold(Keyring::none(), key);
        Runtime::shared(self.store.clone(), options)
    }

    /// A key of alice whose handler died after it had noted this reference.
    pub(crate) async fn held(&self, key: &str, reference: &str) -> RecordId {
        let lease = self.claimed(key, Abandoned::Hold).await;
        let note = Note::reference(ShortText::truncated(reference));
        assert_eq!(self.store.note(&lease, &note).await.unwrap(), Fence::Passed);
        let held = self.store.abandon(&lease, Abandoned::Hold).await.unwrap();
        assert_eq!(held, Fence::Passed);
        lease.id
    }

    pub(crate) async fn completed(&self, key: &str) -> RecordId {
        self.completed_with(key, &FingerprintKeys::none()).await
    }

    pub(crate) async fn completed_with(&self, key: &str, keys: &FingerprintKeys) -> RecordId {
        let lease = self.claimed_with(key, Abandoned::Retry, keys).await;
        let body = RecordedBody::Whole(Bytes::from_static(b"confidential"));
        let response = encode(200, &[(b"content-type", b"text/plain")], &body);
        let done = self.store.complete(&lease, response.as_bytes()).await.unwrap();
        assert_eq!(done, Fence::Passed);
        lease.id
    }
}

pub(crate) fn alice() -> ScopeId {
    ScopeId::of("user", "alice")
}

/// The id of the record of alice's key.
pub(crate) fn id(key: &str) -> RecordId {
    RecordId::new(NAMESPACE, &alice(), OPERATION, &Key::from_text(key).unwrap())
}

/// The line of a keyring with the key of this id, which consists of the byte of its id.
pub(crate) fn keyring_line(id: u8) -> String {
    format!("{id}:hex:{}", format!("{id:02x}").repeat(32))
}
