//! The transaction in which a handler's effects and its recorded response are committed.

use std::{
    any::TypeId,
    error::Error as StdError,
    fmt,
    future::{Ready, ready},
    marker::PhantomData,
    rc::Rc,
};

use actix_web::{
    Error, FromRequest, HttpMessage, HttpRequest, HttpResponse, ResponseError, dev::Payload,
    http::StatusCode,
};
use idempotent_core::{RecordId, StoreError, store::Transaction};
use sqlx::Database;

use crate::{
    idempotency::Idempotency,
    operation::OperationContext,
    problem::{self, Problem, ProblemKind},
    registered::misconfigured,
    request::UnkeyedRequest,
    tx_slot::TxSlot,
};

/// The transaction in which the handler's effects and its response are committed together, as an
/// extractor: `Tx<Postgres>` with a `PostgresStore`, `Tx<Sqlite>` with a `SqliteStore`.
///
/// What the handler writes through [`connection`](Self::connection) is committed when its response
/// is recorded, and only then. It is rolled back if the response's status is 400 or above (the
/// response is still recorded by the usual rule), if the response is not final, if the handler
/// panics, or if another attempt has taken the key over.
///
/// ```
/// use actix_web::{HttpResponse, post};
/// use idempotent_actix::{Tx, idempotent, scope};
/// use sqlx::Sqlite;
///
/// #[idempotent(scope = "scope::bearer_token", claim = "transaction")]
/// #[post("/v1/orders")]
/// async fn create_order(mut tx: Tx<Sqlite>, item: String) -> actix_web::Result<HttpResponse> {
///     let insert = sqlx::query("INSERT INTO orders (item) VALUES (?1)").bind(item);
///     let connection = tx.connection().await?;
///     insert.execute(connection).await.map_err(actix_web::error::ErrorInternalServerError)?;
///     Ok(HttpResponse::Created().finish())
/// }
/// ```
///
/// # sqlx
/// `Tx` and the stores' `from_pool` need sqlx 0.9, and `Database` is the trait of that version.
/// With a `Database` of sqlx 0.8 the compiler reports that the trait is not implemented, although
/// the type has the same name.
///
/// The connection is an executor for queries; `connection.begin()` (of `sqlx::Connection`) begins a
/// savepoint. A helper of yours that takes `&mut sqlx::Transaction<'_, Db>` cannot be called with
/// it, because only the guard may commit: let it take `&mut Db::Connection` (`&mut PgConnection`,
/// `&mut SqliteConnection`), which a `Transaction` gives as `&mut *transaction`.
///
/// # Which claim
/// With `claim = "transaction"`, claim, effects and recording are one commit. The transaction is
/// begun before the handler. An attempt that crashes leaves nothing behind, and no lease has to
/// expire. It is for short handlers that only write to the database. A duplicate in another process
/// waits for `wait`, but at least 50 ms (on SQLite 100 ms), then gets 409.
///
/// With `claim = "lease"` (the default) the claim is committed before the handler runs, and its
/// effects with the recording afterwards. The transaction begins with the first call of
/// [`connection`](Self::connection), so a handler may call other services before it. Duplicates get
/// 409 at once. An attempt that lost its lease to another is rolled back.
///
/// On SQLite a transaction is the file's only writer until the handler has responded, with either
/// claim: keep it short. With `claim = "transaction"` requests with other keys wait for their turn,
/// and get 409 if one transaction lasts longer than `wait` (at least 100 ms, or 4 s if it runs in
/// the same process).
///
/// # A request without a key
/// Where the key is optional, a request without one has a transaction too. It is committed or
/// rolled back by the same rules.
///
/// # What the handler must not do
/// Drop the `Tx` before the response: a transaction that a handler keeps, for example in a task,
/// is rolled back, and the client gets 500.
///
/// Do not end the transaction. On SQLite, `COMMIT` and `ROLLBACK` through it roll everything back,
/// as do errors after which SQLite itself rolls back (`ON CONFLICT ROLLBACK`, a full disk), and
/// nothing that the handler writes after them is committed. On Postgres what a handler commits
/// stays: with `claim = "transaction"` the key is then held, no response is recorded, and the
/// client gets 500. With `claim = "lease"` a response below 400 is not recorded either, and the
/// client gets 500; a response of 400 or above is recorded or released as usual, although the
/// handler's effects are committed.
pub struct Tx<D: Database> {
    slot: Rc<TxSlot>,
    transaction: Option<Box<dyn Transaction>>,
    context: Option<Rc<OperationContext>>,
    idempotency: Idempotency,
    database: PhantomData<fn() -> D>,
}

impl<D: Database> Tx<D> {
    /// Returns the connection, inside the transaction.
    ///
    /// The first call begins the transaction, unless the claim has done so (`claim =
    /// "transaction"`). Later calls return at once.
    ///
    /// # Errors
    /// [`TxError::Begin`] when the store cannot begin a transaction: it is tried twice, each time
    /// within the [`store_timeout`](crate::IdempotencyBuilder::store_timeout). As a response it is
    /// 503 (`store_unavailable`), and the key is released, or held under `abandoned = "hold"`.
    ///
    /// [`TxError::OutsideHandler`] in an extractor, and after the handler has responded.
    ///
    /// # Cancel safety
    /// Safe: no transaction stays open, and the next call begins one.
    pub async fn connection(&mut self) -> Result<&mut D::Connection, TxError> {
        let transaction = match self.transaction.take() {
            Some(transaction) => transaction,
            None => self.begin().await?,
        };
        Ok(Self::downcast(self.transaction.insert(transaction)))
    }

    /// Returns the id of the record that will hold the response: for a foreign key to the table of
    /// records, or for a unique key of a row. `None` for a request without a key.
    ///
    /// The record exists from the transaction's first statement on. It is removed some time after
    /// its ttl, and so should be what refers to it (`ON DELETE CASCADE`) or the reference (`ON
    /// DELETE SET NULL`).
    #[must_use]
    pub fn record_id(&self) -> Option<&RecordId> {
        self.context.as_ref()?.record_id()
    }

    async fn begin(&self) -> Result<Box<dyn Transaction>, TxError> {
        if let Some(transaction) = self.slot.take() {
            return Ok(transaction);
        }
        if !self.slot.may_begin() {
            return Err(TxError::OutsideHandler);
        }
        let begun = self.idempotency.runtime().transaction().await;
        let transaction = begun.map_err(|source| TxError::Begin { source })?;
        // A `Tx` in a task may begin while the handler responds; its transaction is rolled back.
        if self.slot.note_begun() { Ok(transaction) } else { Err(TxError::OutsideHandler) }
    }

    #[expect(clippy::expect_used, reason = "the extractor has compared the databases")]
    fn downcast(transaction: &mut Box<dyn Transaction>) -> &mut D::Connection {
        let connection = transaction.connection_mut().downcast_mut();
        connection.expect("the store's connections are of this database")
    }
}

impl<D: Database> Drop for Tx<D> {
    fn drop(&mut self) {
        if let Some(transaction) = self.transaction.take() {
            self.slot.give_back(transaction);
        }
    }
}

impl<D: Database> fmt::Debug for Tx<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tx").field("record", &self.record_id()).finish_non_exhaustive()
    }
}

impl<D: Database> FromRequest for Tx<D> {
    type Error = Error;
    type Future = Ready<Result<Self, Error>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(extract::<D>(request))
    }
}

fn extract<D: Database>(request: &HttpRequest) -> Result<Tx<D>, Error> {
    let idempotency = Idempotency::of(request)?;
    prepare::<D>(idempotency, request).map_err(|reason| {
        tracing::error!(database = D::NAME, "a handler's `Tx` cannot be extracted");
        misconfigured(request, reason)
    })
}

/// Makes the `Tx` of a request, or returns why it has none.
fn prepare<D: Database>(
    idempotency: &Idempotency,
    request: &HttpRequest,
) -> Result<Tx<D>, &'static str> {
    let mut extensions = request.extensions_mut();
    let context = extensions.get::<Rc<OperationContext>>().cloned();
    if context.is_none() && extensions.get::<UnkeyedRequest>().is_none() {
        return Err(
            "a handler without `#[idempotent]` takes a `Tx`; annotate the handler, or take a \
                    transaction of your pool",
        );
    }
    match idempotency.runtime().transactions().map(|transactions| transactions.database()) {
        Some(database) if database == TypeId::of::<D>() => {}
        Some(_) => {
            return Err(
                "a handler takes a `Tx` of another database than the store's; use the store's",
            );
        }
        None => {
            return Err("a handler takes a `Tx`, and the store has no transactions; use \
                        `SqliteStore` or `PostgresStore`");
        }
    }
    let slot = Rc::<TxSlot>::default();
    if extensions.insert(slot.clone()).is_some() {
        return Err("a handler takes two `Tx`, but its response is recorded in one transaction");
    }
    let (transaction, database, idempotency) = (None, PhantomData, idempotency.clone());
    Ok(Tx { slot, transaction, context, idempotency, database })
}

/// Why [`Tx::connection`] has no connection.
///
/// As a [`ResponseError`] it is rendered like the guard's own problems, by the function that the
/// application has set with [`problems`](crate::IdempotencyBuilder::problems).
#[derive(Debug)]
#[non_exhaustive]
pub enum TxError {
    /// The transaction could not be begun.
    #[non_exhaustive]
    Begin {
        /// The error of the store.
        source: StoreError,
    },
    /// The `Tx` was used in an extractor, or after the handler had responded.
    OutsideHandler,
}

impl TxError {
    fn kind(&self) -> ProblemKind {
        match self {
            Self::Begin { source } => problem::kind_of(source),
            Self::OutsideHandler => ProblemKind::HandlerFailed,
        }
    }
}

impl fmt::Display for TxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Begin { .. } => "the transaction of a `Tx` could not be begun",
            Self::OutsideHandler => {
                "a `Tx` was used in an extractor or after its handler had responded; use it in the \
                 handler"
            }
        })
    }
}

impl StdError for TxError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Begin { source } => Some(source),
            Self::OutsideHandler => None,
        }
    }
}

impl ResponseError for TxError {
    fn status_code(&self) -> StatusCode {
        self.kind().status()
    }

    fn error_response(&self) -> HttpResponse {
        tracing::error!(error = %self, cause = self.source(), "a handler's transaction failed");
        let kind = self.kind();
        let problem = Problem::new(kind, kind.advice(), "/idempotency#");
        let mut response = problem::render::response(&problem, kind.status(), &problem.to_json());
        response.extensions_mut().insert(problem::TxProblem(kind));
        response
    }
}
