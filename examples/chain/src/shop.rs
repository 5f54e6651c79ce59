//! The shop: a client whose operations survive it.

use std::{error::Error, path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use futures_util::{StreamExt, stream};
use idempotent_client::{
    ClientIdempotency, IdempotentRequest, IdempotentRequestBuilder, Resumed, SqlitePending,
};
use reqwest::{Client, ClientBuilder, Url, header};
use reqwest_middleware::ClientWithMiddleware;
use sqlx::{SqlitePool, sqlite::SqliteConnectOptions};

use crate::services::Order;

const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS orders
    (id TEXT PRIMARY KEY, confirmed INTEGER NOT NULL DEFAULT 0) STRICT";

/// The options of the shop
#[derive(Args)]
pub(crate) struct Options {
    /// How many orders to make: order-1, order-2, …
    #[arg(long, default_value_t = 3)]
    orders: u32,
    /// The server
    #[arg(long, default_value = "http://127.0.0.1:8081")]
    server: Url,
    /// What kind of server it is
    #[arg(long, value_enum, default_value_t = Api::Orders)]
    api: Api,
    /// The shop's database, with the pending operations
    #[arg(long, default_value = "shop.db")]
    file: PathBuf,
    /// How many orders are sent at the same time
    #[arg(long, default_value_t = 8)]
    at_once: usize,
}

#[derive(Clone, Copy, ValueEnum)]
enum Api {
    /// The first service of the chain
    Orders,
    /// The payments server of `examples/payments`
    Payments,
}

/// Makes the orders that are not confirmed yet.
pub(crate) async fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let database = SqliteConnectOptions::new().filename(&options.file).create_if_missing(true);
    let pool = SqlitePool::connect_with(database).await?;
    sqlx::raw_sql(SCHEMA).execute(&pool).await?;
    let idempotency = ClientIdempotency::new()
        .pending(SqlitePending::open(&options.file).await?)
        .deadline(Duration::from_secs(20))
        .attempt_timeout(Duration::from_secs(3));
    let client = idempotency.client(http_client(options.api)?)?;

    // What an earlier process has begun.
    let confirm_resumed = async |resumed: Resumed| match (&resumed.operation.label, &resumed.result)
    {
        (Some(order), Ok(response)) if response.status().is_success() => {
            confirm(&pool, order).await
        }
        _ => {
            println!("{resumed:?}");
            Ok(())
        }
    };
    idempotency.resume(&client).for_each(confirm_resumed).await?;
    let ids = (1..=options.orders).map(|number| format!("order-{number}"));
    let making = stream::iter(ids).map(|id| make(&pool, &client, options, id));
    let made: Vec<_> = making.buffer_unordered(options.at_once).collect().await;
    made.into_iter().collect()
}

fn http_client(api: Api) -> Result<ClientBuilder, Box<dyn Error>> {
    let token = match api {
        Api::Orders => "shop",
        Api::Payments => "sk_test_ada",
    };
    let mut headers = header::HeaderMap::new();
    headers.insert(header::AUTHORIZATION, format!("Bearer {token}").parse()?);
    Ok(Client::builder().default_headers(headers))
}

/// Makes one order, unless it is confirmed.
async fn make(
    pool: &SqlitePool,
    client: &ClientWithMiddleware,
    options: &Options,
    id: String,
) -> Result<(), Box<dyn Error>> {
    sqlx::query("INSERT OR IGNORE INTO orders (id) VALUES ($1)").bind(&id).execute(pool).await?;
    let is_confirmed: bool = sqlx::query_scalar("SELECT confirmed FROM orders WHERE id = $1")
        .bind(&id)
        .fetch_one(pool)
        .await?;
    if is_confirmed {
        return Ok(());
    }
    // If the shop dies after the response and before the next line, the next process sends the
    // order again. Its label makes it the same operation.
    let response = request(client, options, &id)?.label(&id).send().await?;
    response.error_for_status()?;
    confirm(pool, &id).await
}

fn request(
    client: &ClientWithMiddleware,
    options: &Options,
    id: &str,
) -> Result<IdempotentRequestBuilder, Box<dyn Error>> {
    Ok(match options.api {
        Api::Orders => {
            let order = Order { id: id.to_owned(), cents: 2000 };
            client.post(options.server.join("/process")?).idempotent().json(&order)
        }
        Api::Payments => {
            client.post(options.server.join("/v1/payment_intents")?).idempotent().form(&[
                ("amount", "2000"),
                ("currency", "eur"),
                ("payment_method", "pm_card_visa"),
                ("confirm", "true"),
                ("description", id),
            ])
        }
    })
}

async fn confirm(pool: &SqlitePool, id: &str) -> Result<(), Box<dyn Error>> {
    sqlx::query("UPDATE orders SET confirmed = 1 WHERE id = $1").bind(id).execute(pool).await?;
    println!("{id} is confirmed");
    Ok(())
}
