//! The transaction in which a record completes, for the handler whose effects belong into it.

use std::{
    any::TypeId,
    cell::OnceCell,
    fmt,
    future::{Ready, ready},
    marker::PhantomData,
    ops::{Deref, DerefMut},
    rc::Rc,
};

use actix_web::{Error, FromRequest, HttpMessage, HttpRequest, dev::Payload};
use idempotent_core::{RecordId, store::Transaction};
use sqlx::Database;

use crate::{
    account::Account,
    idempotency::Idempotency,
    operation::{Slot, misconfigured},
    request::Unkeyed,
};

/// The transaction in which the handler's effects and its answer are committed together, as an extractor: `Tx<Postgres>` with a
/// `PostgresStore`, `Tx<Sqlite>` with a `SqliteStore`. What is written through it is there only if the answer is recorded; an
/// answer of 400 or above is recorded without it.
///
/// `&mut *tx` is the connection, as with sqlx's own `Transaction`: an executor for queries, and `tx.begin()` is a savepoint. It is
/// committed when the handler has answered, and rolled back if the answer's status is 400 or above, if it is not final, if the handler
/// panics, or if another attempt has taken the key over. Drop it before the response: a transaction that a handler keeps, say in a task,
/// is rolled back, and the client gets 500.
///
/// Do not end it. On SQLite, `COMMIT` and `ROLLBACK` through it roll everything back, as do errors after which SQLite itself rolls
/// back (`ON CONFLICT ROLLBACK`, a full disk), and nothing that the handler writes after them is committed. On Postgres what
/// a handler commits stays: with `claim = "transaction"` the key is then held, no response is recorded, and the client gets 500.
/// With `claim = "lease"` a response below 400 is not recorded either, and the client gets 500; a response of 400 or above is
/// recorded or released as always, although the handler's effects are committed.
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
///     insert.execute(&mut *tx).await.map_err(actix_web::error::ErrorInternalServerError)?;
///     Ok(HttpResponse::Created().finish())
/// }
/// ```
///
/// # Which claim
/// With `claim = "transaction"` claim, effects and answer are one commit: nothing is left of an attempt that crashes, and nothing has to
/// lapse. It is for short handlers that do nothing but write to the database. A duplicate in another process waits for `wait`, but
/// at least 50 ms (on SQLite 100 ms), then gets 409.
///
/// With `claim = "lease"` (the default) the claim is committed before the handler runs, the effects and the answer after it: two
/// commits, but duplicates get 409 at once, and the handler may call other services and take its time. An attempt that lost its lease
/// to another is rolled back.
///
/// On SQLite a transaction is the file's only writer from before the handler to its end, in either way: keep it short.
/// With `claim = "transaction"` requests with other keys wait for their turn, and get 409 if one transaction lasts longer than `wait`
/// (at least 100 ms, or 4 s if it runs in the same process).
///
/// # A request without a key
/// Where the key is optional, a request without one gets a transaction too; it is committed or rolled back by the same rules.
///
/// # Panics
/// When it is used in an extractor: the transaction begins after all of them.
pub struct Tx<D: Database> {
    account: Rc<Account>,
    transaction: OnceCell<Box<dyn Transaction>>,
    operation: Option<Rc<Slot>>,
    database: PhantomData<fn() -> D>,
}

impl<D: Database> Tx<D> {
    /// The record in which the answer will be: for a foreign key to the table of records, or a row's own unique key. `None` for a
    /// request without a key.
    ///
    /// The record is there from the first statement on. It is removed some time after its ttl, and so should be what refers to it
    /// (`ON DELETE CASCADE`) or the reference (`ON DELETE SET NULL`).
    #[must_use]
    pub fn record_id(&self) -> Option<&RecordId> {
        self.operation.as_ref()?.claimed.get().map(|(id, _)| id)
    }

    #[expect(clippy::expect_used, reason = "a connection outside of the transaction would write what is never undone")]
    fn transaction(&self) -> &dyn Transaction {
        let taken = || self.account.take().expect("a `Tx` is used in an extractor; use it in the handler");
        &**self.transaction.get_or_init(taken)
    }
}

impl<D: Database> Deref for Tx<D> {
    type Target = D::Connection;

    #[expect(clippy::expect_used, reason = "the extractor has compared the databases")]
    fn deref(&self) -> &D::Connection {
        self.transaction().connection().downcast_ref().expect("the store's connections are of this database")
    }
}

impl<D: Database> DerefMut for Tx<D> {
    #[expect(clippy::expect_used, reason = "the extractor has compared the databases")]
    fn deref_mut(&mut self) -> &mut D::Connection {
        self.transaction();
        let transaction = self.transaction.get_mut().expect("it was just put there");
        transaction.connection_mut().downcast_mut().expect("the store's connections are of this database")
    }
}

impl<D: Database> Drop for Tx<D> {
    fn drop(&mut self) {
        if let Some(transaction) = self.transaction.take() {
            self.account.give_back(transaction);
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
        ready(open_account::<D>(request))
    }
}

fn open_account<D: Database>(request: &HttpRequest) -> Result<Tx<D>, Error> {
    let idempotency = Idempotency::of(request)?;
    let mut extensions = request.extensions_mut();
    if extensions.get::<Rc<Slot>>().is_none() && extensions.get::<Unkeyed>().is_none() {
        drop(extensions);
        return Err(misconfigured(
            request,
            "a handler without `#[idempotent]` takes a `Tx`; annotate it, or take a pool's transaction",
        ));
    }
    let store = idempotency.runtime().transactions().map(|transactions| transactions.database());
    let why = match store {
        Some(database) if database == TypeId::of::<D>() => {
            let account = Rc::<Account>::default();
            if extensions.insert(account.clone()).is_none() {
                let operation = extensions.get::<Rc<Slot>>().cloned();
                return Ok(Tx { account, transaction: OnceCell::new(), operation, database: PhantomData });
            }
            "a handler takes two `Tx`; its answer is recorded in one"
        }
        Some(_) => "a handler takes a `Tx` of another database than the store's; name the store's",
        None => "a handler takes a `Tx`, and the store has no transactions; use `SqliteStore` or `PostgresStore`",
    };
    drop(extensions);
    tracing::error!(database = D::NAME, "the type of the `Tx`");
    Err(misconfigured(request, why))
}
