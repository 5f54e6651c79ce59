//! The transaction in which a handler's effects and its recorded response are committed.

use std::{
    any::TypeId,
    borrow::Cow,
    error::Error as StdError,
    fmt,
    future::{Ready, ready},
    marker::PhantomData,
    sync::Arc,
};

use actix_web::{
    Error, FromRequest, HttpMessage, HttpRequest, HttpResponse, ResponseError, dev::Payload,
    http::StatusCode,
};
use idempotent_core::{
    RecordId,
    runtime::{HandlerTransaction, Run, TransactionError, TransactionHandle, TransactionSlot},
    store::Transaction,
};
use sqlx::Database;

use crate::{
    handle_of_request::misconfigured,
    idempotency::Idempotency,
    operation::extraction::RequestOperation,
    problem::{self, HandlerProblem, ProblemKind},
};

/// An extractor of the database transaction in which the handler's effects and its recorded
/// response are committed together: `Tx<Postgres>` with a `PostgresStore`, `Tx<Sqlite>` with a
/// `SqliteStore`, `Tx<MySql>` with a `MySqlStore`.
///
/// What the handler writes through [`connection`](Self::connection) is committed when its response
/// is recorded, and only then. It is rolled back if
///
/// * the status of the response is 400 or above (the response is still recorded by the usual rule),
/// * the response is not recorded,
/// * the handler panics or exceeds its time limit, or
/// * another attempt has taken over the key.
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
/// `Tx` and the stores' `from_pool` need sqlx 0.9. With a `Database` of sqlx 0.8 the compiler
/// reports that the trait is not implemented, although the name of the type is the same.
///
/// The connection is an executor for queries, and `connection.begin()` (of `sqlx::Connection`)
/// begins a savepoint. A function that takes `&mut sqlx::Transaction<'_, Db>` cannot be called with
/// the connection, because only the guard may commit. Let the function take `&mut Db::Connection`
/// instead (`&mut PgConnection`, `&mut SqliteConnection`, `&mut MySqlConnection`), which a
/// `Transaction` provides as `&mut *transaction`.
///
/// # Which claim
/// With `claim = "transaction"`, the claim, the effects and the recording are one commit. The
/// transaction is begun before the handler runs. An attempt that crashes leaves nothing behind, and
/// no lease has to expire before the next one. Choose it for short handlers that only write to the
/// database. A duplicate waits for `wait`, then gets 409; if the first request runs in another
/// process, the duplicate waits for at least 100 ms on SQLite.
///
/// With `claim = "lease"` (the default), the claim is committed before the handler runs, and the
/// effects are committed with the recording afterwards. The transaction begins with the first call
/// of [`connection`](Self::connection), so a handler may call other services before that without
/// keeping a database connection. A duplicate waits for `wait` (zero by default), then gets 409. An
/// attempt whose key another attempt has taken over is rolled back.
///
/// On SQLite a transaction is the only writer of the file until the handler has responded, with
/// either claim: keep it short. With `claim = "transaction"`, requests with other keys wait for
/// their turn. They get 409 if a single transaction lasts longer than `wait`, but not before 100
/// ms, or 4 seconds if that transaction runs in the same process.
///
/// # A request without a key
/// With `key = "optional"`, a request without a key has a transaction too. It is committed or
/// rolled back by the same rules.
///
/// # What the handler must not do
/// The handler must not keep the `Tx`, for example in a task that it spawns: the transaction is
/// then rolled back, and the client gets 500.
///
/// The handler must not end the transaction with SQL:
///
/// * On SQLite, `COMMIT` and `ROLLBACK` both roll everything back, as do errors after which SQLite
///   itself rolls back (`ON CONFLICT ROLLBACK`, a full disk). Nothing that the handler writes
///   afterwards is committed, and the client gets 500.
/// * On MySQL and MariaDB, the server refuses such a statement, and the transaction goes on.
/// * On Postgres, the key is then held, because what the handler has written since is unknown: with
///   either claim, in any session, and whatever the status of the response is. The client gets 500.
///   The server refuses `COMMIT` and `PREPARE TRANSACTION`, and rolls everything back, as
///   `ROLLBACK` does, unless the handler executes `CLOSE ALL` before. In the store's own sessions,
///   whatever the handler writes afterwards fails, because they are read-only outside of the
///   store's transactions, unless it begins one with `READ WRITE` or `AND CHAIN`. In the sessions
///   of an application's pool, or behind a pooler, it is committed by itself.
pub struct Tx<D: Database> {
    handle: TransactionHandle,
    operation: RequestOperation,
    idempotency: Idempotency,
    database: PhantomData<fn() -> D>,
}

impl<D: Database> Tx<D> {
    /// Returns the connection, inside the transaction.
    ///
    /// With `claim = "lease"` the first call begins the transaction. With `claim = "transaction"`
    /// the transaction has begun before the handler.
    ///
    /// # Errors
    /// [`Begin`](TransactionError::Begin) if the store cannot begin a transaction. A transient
    /// failure within the first second is retried once; each try is limited by the
    /// [`store_timeout`](crate::IdempotencyBuilder::store_timeout). A handler that returns the
    /// error responds with 503 (`store_unavailable`), or with 500 (`handler_failed`) if the error
    /// is permanent; the key is released, or held under `abandoned = "hold"`.
    ///
    /// [`NotClaimed`](TransactionError::NotClaimed) in an extractor,
    /// [`Ended`](TransactionError::Ended) after the handler has responded, and
    /// [`InStep`](TransactionError::InStep) within a [step](crate::Operation::step).
    ///
    /// # Cancel safety
    /// Safe: no transaction stays open, and the next call begins one.
    pub async fn connection(&mut self) -> Result<&mut D::Connection, TxError> {
        let Self { handle, operation, idempotency, .. } = self;
        let begin = idempotency.runtime().transaction();
        Ok(handle.connection(begin, run_of(operation)).await?)
    }

    /// Returns the transaction, which the first call may begin.
    pub(crate) async fn transaction(&mut self) -> Result<&mut Box<dyn Transaction>, TxError> {
        let Self { handle, operation, idempotency, .. } = self;
        let begin = idempotency.runtime().transaction();
        Ok(handle.transaction(begin, run_of(operation)).await?)
    }

    /// Returns the id of the record that will contain the response. Use it as a foreign key to the
    /// table of records, or as a unique key of a row. Returns `None` for a request without a key,
    /// and in an extractor.
    ///
    /// The record exists in the transaction before the handler's first statement. It is removed
    /// some time after its ttl, so a row that refers to it needs `ON DELETE CASCADE` or
    /// `ON DELETE SET NULL`.
    #[must_use]
    pub fn record_id(&self) -> Option<&RecordId> {
        Some(run_of(&self.operation)?.id())
    }
}

/// The operation of a request, if it has a key and is claimed.
fn run_of(operation: &RequestOperation) -> Option<&Run> {
    operation.context()?.operation()
}

impl<D: Database> HandlerTransaction for Tx<D> {
    type Connection = D::Connection;
    type Error = TxError;

    async fn transaction(&mut self) -> Result<&mut Box<dyn Transaction>, TxError> {
        Tx::transaction(self).await
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
    prepare::<D>(idempotency, request).map_err(|reason| misconfigured(request, reason))
}

/// Creates the `Tx` of a request, or returns the reason why the request cannot have one.
fn prepare<D: Database>(
    idempotency: &Idempotency,
    request: &HttpRequest,
) -> Result<Tx<D>, Cow<'static, str>> {
    let Some(operation) = RequestOperation::of(request) else {
        return Err(
            "a handler without `#[idempotent]` takes a `Tx`; annotate the handler, or take a \
                    transaction of your pool"
                .into(),
        );
    };
    match idempotency.runtime().transactions().map(|transactions| transactions.database()) {
        Some(database) if database == TypeId::of::<D>() => {}
        Some(_) => {
            let (database, origin) = (D::NAME, idempotency.origin());
            return Err(format!(
                "a handler takes a `Tx` of {database}, a different database than the store's \
                 ({origin}); use the store's"
            )
            .into());
        }
        None => {
            let (database, origin) = (D::NAME, idempotency.origin());
            return Err(format!(
                "a handler takes a `Tx` of {database}, and the store has no transactions \
                 ({origin}); use `SqliteStore`, `PostgresStore` or `MySqlStore`"
            )
            .into());
        }
    }
    let slot = Arc::<TransactionSlot>::default();
    if request.extensions_mut().insert(slot.clone()).is_some() {
        return Err(
            "a handler takes two `Tx`, but its response is recorded in one transaction".into()
        );
    }
    let (handle, idempotency) = (TransactionHandle::new(slot), idempotency.clone());
    Ok(Tx { handle, operation, idempotency, database: PhantomData })
}

/// The error of [`Tx::connection`]. A handler can return it with `?`.
///
/// The response is rendered like the guard's own problems, by the function that the application has
/// set with [`problems`](crate::IdempotencyBuilder::problems).
///
/// | [`cause`](Self::cause) | response |
/// |---|---|
/// | `Begin` | 503 `store_unavailable`, or 500 `handler_failed` if the error is permanent |
/// | any other | 500 `handler_failed`; the cause is logged |
#[derive(Debug)]
pub struct TxError {
    cause: TransactionError,
}

impl TxError {
    /// Returns the cause.
    #[must_use]
    pub fn cause(&self) -> &TransactionError {
        &self.cause
    }

    fn problem(&self) -> HandlerProblem {
        if let TransactionError::Begin { source, .. } = &self.cause {
            HandlerProblem::of_store(source)
        } else {
            HandlerProblem::new(ProblemKind::HandlerFailed)
        }
    }
}

impl From<TransactionError> for TxError {
    fn from(cause: TransactionError) -> Self {
        Self { cause }
    }
}

impl fmt::Display for TxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause.fmt(f)
    }
}

impl StdError for TxError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.cause.source()
    }
}

impl ResponseError for TxError {
    fn status_code(&self) -> StatusCode {
        problem::status_code(self.problem().kind.status())
    }

    fn error_response(&self) -> HttpResponse {
        tracing::error!(error = %self, cause = self.source(), "a handler's transaction failed");
        problem::of_handler(self.problem())
    }
}
