//! Transfers between accounts in the database of the idempotency records: the money moves in the
//! transaction that completes the record, so it moves exactly once, whatever fails. Transfers need
//! `--store sqlite:FILE` or, with the features of their names, `postgres://…` or `mysql://…`.
//!
//! ```text
//! $ curl -s 127.0.0.1:8080/v1/transfers -H 'Authorization: Bearer sk_test_alice' \
//!        -H 'Idempotency-Key: rent-1' \
//!        -d from=alice -d to=bob -d amount=2500
//! {"amount":2500,"balance":97500,"from":"alice","id":"tr_5f0a62ce9c1c4bd3a2ad0ee4b3c63b9f", …}
//! ```
//! The same request again gets the same response, and no money moves.
//! `curl -s 127.0.0.1:8080/v1/accounts -H 'Authorization: Bearer sk_test_alice'` shows all
//! balances.
//!
//! The two routes differ in when the claim is committed. `/v1/transfers` claims in the transaction
//! of the transfer: there is one commit, and a server that is killed leaves no record.
//! `/v1/transfers/leased` claims before the transaction: there are two commits, and a duplicate
//! gets 409 at once. After a kill, the retry runs when the lease has expired.

use actix_web::{
    HttpResponse,
    web::{Data, ServiceConfig, get, post},
};
use idempotent_actix::{Tx, idempotent};
use serde_json::json;
use sqlx::Pool;

use crate::{
    accounts::{Accounts, Booking, TransferDatabase},
    error::ApiError,
    ledger::new_id,
    params::{Fields, FromFields, Params},
    user::User,
};

/// The routes, if there are accounts.
pub(crate) fn routes(config: &mut ServiceConfig, accounts: &Accounts) {
    match accounts {
        Accounts::Sqlite(pool) => routes_on(config, pool),
        #[cfg(feature = "postgres")]
        Accounts::Postgres(pool) => routes_on(config, pool),
        #[cfg(feature = "mysql")]
        Accounts::MySql(pool) => routes_on(config, pool),
        Accounts::Unsupported => {}
    }
}

fn routes_on<D: TransferDatabase>(config: &mut ServiceConfig, pool: &Pool<D>) {
    config
        .app_data(Data::new(pool.clone()))
        .route("/v1/transfers", post().to(transfer::<D>))
        .route("/v1/transfers/leased", post().to(transfer_with_lease::<D>))
        .route("/v1/accounts", get().to(list_accounts::<D>));
}

/// Moves money. The claim, both balances, the row of the transfer, and the response are one commit.
///
/// A duplicate waits up to a second for the response.
#[idempotent(scope = "user", ttl = "24h", claim = "transaction", wait = "1s", method = "POST")]
async fn transfer<D: TransferDatabase>(
    user: User,
    Params(order): Params<TransferOrder>,
    mut tx: Tx<D>,
) -> Result<HttpResponse, ApiError> {
    move_money(&user, &order, &mut tx).await
}

/// Moves money. The claim is committed first. The rest is a second commit, which fails if another
/// attempt has taken over meanwhile.
#[idempotent(scope = "user", ttl = "24h", lease = "5s", method = "POST")]
async fn transfer_with_lease<D: TransferDatabase>(
    user: User,
    Params(order): Params<TransferOrder>,
    mut tx: Tx<D>,
) -> Result<HttpResponse, ApiError> {
    move_money(&user, &order, &mut tx).await
}

/// Moves the money. An error response rolls everything back, because its status is 400 or above.
async fn move_money<D: TransferDatabase>(
    user: &User,
    order: &TransferOrder,
    tx: &mut Tx<D>,
) -> Result<HttpResponse, ApiError> {
    let (mut changes, id) =
        ([(&order.from, -order.amount), (&order.to, order.amount)], new_id("tr"));
    // Always in the order of the accounts, because opposite transfers could deadlock otherwise.
    changes.sort();
    let mut left = 0;
    for (account, amount) in changes {
        let Some(balance) = D::add(tx.connection().await?, account, amount).await? else {
            return Err(transfer_refusal::<D>(order, tx.connection().await?).await?);
        };
        if amount < 0 {
            left = balance;
        }
    }
    let record = tx.record_id().copied();
    let TransferOrder { from, to, amount } = order;
    let booking =
        Booking { id: &id, owner: user.name(), from, to, amount: *amount, record: record.as_ref() };
    D::insert(tx.connection().await?, &booking).await?;
    let transfer = json!({
        "id": id,
        "object": "transfer",
        "from": from,
        "to": to,
        "amount": amount,
        "balance": left,
    });
    Ok(HttpResponse::Ok().json(transfer))
}

/// The error for a transfer that is not possible.
async fn transfer_refusal<D: TransferDatabase>(
    order: &TransferOrder,
    connection: &mut D::Connection,
) -> Result<ApiError, ApiError> {
    for (account, param) in [(&order.from, "from"), (&order.to, "to")] {
        if D::balance(connection, account).await?.is_none() {
            return Ok(ApiError::missing("account", account, param));
        }
    }
    Ok(ApiError::balance_insufficient(&order.from))
}

/// Lists all accounts. Any user may list them and transfer money between them. A real server would
/// check who owns an account.
async fn list_accounts<D: TransferDatabase>(
    _: User,
    pool: Data<Pool<D>>,
) -> Result<HttpResponse, ApiError> {
    let object = |(id, balance)| json!({ "id": id, "object": "account", "balance": balance });
    let data: Vec<_> = D::accounts(&pool).await?.into_iter().map(object).collect();
    Ok(HttpResponse::Ok()
        .json(json!({ "object": "list", "url": "/v1/accounts", "has_more": false, "data": data })))
}

/// The parameters of a transfer.
struct TransferOrder {
    from: String,
    to: String,
    amount: i64,
}

impl FromFields for TransferOrder {
    fn from_fields(fields: &Fields) -> Result<Self, ApiError> {
        let (from, to) = (fields.required("from")?.to_owned(), fields.required("to")?.to_owned());
        if from == to {
            return Err(ApiError::invalid(
                "parameter_invalid",
                "Invalid to: it must be another account.",
            )
            .with_param("to"));
        }
        fields.required("amount")?;
        let amount = fields.integer("amount", 1, 99_999_999)?.unwrap_or_default();
        Ok(Self { from, to, amount })
    }
}
