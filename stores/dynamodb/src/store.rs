//! The store in DynamoDB.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use aws_sdk_dynamodb::Client;
use bytes::Bytes;

use crate::{connect, engine::Engine, error::CallFailure, options::DynamoDbOptions, schema, steps};
use idempotent_core::{
    Abandoned, Lease, OwnerToken, RecordId, ShortText, StoreError,
    protocol::{
        AuditEntry, Claim, ClaimOutcome, Fence, Note, RenewOutcome, Renewal, Resolution,
        ResolveOutcome, ResumablePage, Snapshot,
    },
    store::{Administration, Store},
};

/// A store in a table of Amazon DynamoDB.
///
/// Each record is one item. Claiming a new key, completing it, and replaying a recording of up to
/// 8 KiB each take one request; larger recordings are in items of their own, and take two or three.
/// Each write is conditional on the owner token, or on the record being the one that was read.
///
/// The service has no clock that a condition could use. The store takes the time from the `Date`
/// headers of its responses, which bound it to less than 2 seconds: a key whose owner has died
/// stays claimed for about 2 seconds longer than its lease, at most 4. Safety does not depend on
/// the time.
///
/// A request that the service throttles, or does not respond to, is sent again for a [bounded
/// time](DynamoDbOptions::call_timeout). Every request passes for its own second sending, so a lost
/// response never makes an operation run twice.
///
/// The store refuses a global table with eventual consistency. The guide [DynamoDB in production]
/// has the permissions, capacity and costs.
///
/// [DynamoDB in production]: https://docs.rs/idempotent-actix/latest/idempotent_actix/guide/dynamodb/index.html
///
/// # Examples
/// ```no_run
/// # async fn open() -> Result<(), idempotent_core::StoreError> {
/// use idempotent_dynamodb::DynamoDbStore;
///
/// let store = DynamoDbStore::connect("dynamodb://eu-central-1/idempotency").await?;
/// store.migrate().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct DynamoDbStore {
    pub(crate) engine: Arc<Engine>,
}

impl DynamoDbStore {
    /// Returns the default options, to be changed before the store is opened.
    pub fn options() -> DynamoDbOptions {
        DynamoDbOptions::default()
    }

    /// Opens a store with the default options, at a URL of the form
    /// `dynamodb://REGION/TABLE[?endpoint=URL]`. Without the Region (`dynamodb:///TABLE`), it is
    /// that of the environment. `endpoint` names an emulator, or an endpoint of a VPC.
    ///
    /// Credentials are those of the environment: variables, the profile, a web identity, the
    /// container or the instance. A profile with single sign-on needs [`from_client`] and a client
    /// whose `aws-config` has the feature `sso`.
    ///
    /// [`from_client`]: Self::from_client
    ///
    /// # Errors
    /// Fails with a permanent error if the URL is invalid. Nothing is sent to the service: call
    /// [`check`](Self::check) to find out whether it can be reached.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::options().connect(url).await
    }

    /// Opens a store with the default options in a table of the application's client. The store
    /// uses the client's credentials, its endpoint and its connections, but not its retries and
    /// time limits.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect).
    pub fn from_client(client: &Client, table: &str) -> Result<Self, StoreError> {
        Self::options().from_client(client, table)
    }

    /// Creates the table with on-demand capacity, its index `held`, and its time to live, unless
    /// they exist; waits until they are ready, for up to five minutes. An application whose
    /// credentials do not permit that needs a table that was created otherwise: the guide has its
    /// definition.
    ///
    /// # Errors
    /// Fails with a permanent error if the credentials do not permit an action, or if the table has
    /// a time to live of another attribute; with a transient error if the service cannot be reached
    /// or takes too long.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        schema::migrate(&self.engine).await.map_err(of("migrate"))
    }

    /// Verifies the key of the table, its index and its time to live, that it is not a global table
    /// with eventual consistency, and that the credentials permit each action, by sending a request
    /// of each kind that changes nothing.
    ///
    /// # Errors
    /// Fails with a permanent error whose source names the setting, or the action and the table
    /// that the policy has to allow; with a transient error if the service cannot be reached.
    pub async fn check(&self) -> Result<(), StoreError> {
        schema::check(&self.engine).await.map_err(of("check"))
    }
}

// Here, so that the options need not know the store.
impl DynamoDbOptions {
    /// Opens a store with these options. [`DynamoDbStore::connect`] has the form of the URL.
    ///
    /// # Errors
    /// As for [`DynamoDbStore::connect`], and if the prefix of the keys has more than 64 bytes.
    pub async fn connect(self, url: &str) -> Result<DynamoDbStore, StoreError> {
        Ok(DynamoDbStore { engine: Arc::new(connect::open(url, &self).await?) })
    }

    /// Opens a store with these options in a table of the application's client; see
    /// [`DynamoDbStore::from_client`].
    ///
    /// # Errors
    /// Fails if the prefix of the keys has more than 64 bytes.
    pub fn from_client(self, client: &Client, table: &str) -> Result<DynamoDbStore, StoreError> {
        Ok(DynamoDbStore { engine: Arc::new(connect::share(client, table, &self)?) })
    }
}

impl fmt::Debug for DynamoDbStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynamoDbStore")
            .field("table", &self.engine.table.name)
            .finish_non_exhaustive()
    }
}

/// Converts the failure of an operation.
fn of(operation: &'static str) -> impl Fn(CallFailure) -> StoreError {
    move |failure| failure.into_error(operation)
}

#[async_trait]
impl Store for DynamoDbStore {
    async fn migrate(&self) -> Result<(), StoreError> {
        self.migrate().await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.check().await
    }

    async fn claim(&self, id: &RecordId, claim: &Claim) -> Result<ClaimOutcome, StoreError> {
        steps::claim(&self.engine, id, claim).await.map_err(of("claim"))
    }

    /// Sends a request for each lease, up to 64 at the same time. The outcome of a lease is
    /// [`RenewOutcome::Unknown`] if the service does not respond in time; the call fails only if
    /// that is so for all of them. It waits for an eighth of the shortest lease, and at least
    /// for three quarters of the time limit of one request.
    async fn renew(&self, leases: &[Renewal]) -> Result<Vec<RenewOutcome>, StoreError> {
        steps::renew(&self.engine, leases).await.map_err(of("renew"))
    }

    /// A step of more than 512 bytes and an input of more than 1 KiB are written to items of their
    /// own before, because each renewal is billed by the size of the record's item.
    async fn note(&self, lease: &Lease, note: &Note) -> Result<Fence, StoreError> {
        steps::note(&self.engine, lease, note).await.map_err(of("note"))
    }

    /// A recording of more than 8 KiB is written to items of its own before, of 384 KiB each.
    async fn complete(&self, lease: &Lease, recording: &Bytes) -> Result<Fence, StoreError> {
        steps::complete(&self.engine, lease, recording).await.map_err(of("complete"))
    }

    async fn release(&self, lease: &Lease) -> Result<Fence, StoreError> {
        steps::release(&self.engine, lease).await.map_err(of("release"))
    }

    async fn abandon(&self, lease: &Lease, policy: Abandoned) -> Result<Fence, StoreError> {
        steps::abandon(&self.engine, lease, policy).await.map_err(of("abandon"))
    }

    async fn look_up(&self, id: &RecordId) -> Result<Option<Snapshot>, StoreError> {
        steps::look_up(&self.engine, id).await.map_err(of("look up"))
    }

    async fn resolve(
        &self,
        id: &RecordId,
        seen: &OwnerToken,
        resolution: &Resolution,
        audit: &AuditEntry,
    ) -> Result<ResolveOutcome, StoreError> {
        steps::resolve(&self.engine, id, seen, resolution, audit).await.map_err(of("resolve"))
    }

    /// Does nothing and returns 0: the table's time to live removes expired records, an hour after
    /// they expire at the earliest, and within a few days. Until then they count as absent for
    /// claims and lookups.
    async fn purge(&self, _limit: u32) -> Result<u64, StoreError> {
        Ok(0)
    }

    /// Queries all watched records, and reads at most 256 of them, so a page may have fewer ids
    /// than `limit` although it is not the last one. Records that cannot be read are skipped.
    async fn resumable(
        &self,
        operation: &ShortText,
        after: Option<&RecordId>,
        limit: u32,
    ) -> Result<ResumablePage, StoreError> {
        steps::resumable(&self.engine, operation, after, limit).await.map_err(of("resumable"))
    }

    fn administration(&self) -> Option<&dyn Administration> {
        Some(self)
    }
}
