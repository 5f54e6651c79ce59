//! A simulated bank. Like a real one it makes one transfer per key, and a charge can be looked up
//! by its key:
//!
//! ```text
//! $ cargo run -p payments -- bank --listen 127.0.0.1:8081
//!
//! $ curl -s 127.0.0.1:8081/charges -H 'Idempotency-Key: k-1' \
//!        --json '{"payment_method":"pm_card_visa","amount":2000,"currency":"usd"}'
//! {"status":"succeeded","id":"ch_b0c73c5c6bd54cf1a5c9a2e1c4b0a1d3"}
//!
//! $ curl -s 127.0.0.1:8081/charges/k-1
//! {"status":"found","id":"ch_b0c73c5c6bd54cf1a5c9a2e1c4b0a1d3"}
//! $ curl -s 127.0.0.1:8081/charges/k-2
//! {"status":"absent"}
//! ```

use std::{
    collections::HashSet,
    env,
    error::Error,
    net::SocketAddr,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use actix_web::{
    App, HttpRequest, HttpServer,
    dev::Server,
    error::{ErrorBadRequest, ErrorInternalServerError, ErrorServiceUnavailable},
    get, post,
    rt::{spawn, time::sleep},
    web::{self, Data, Json},
};
use sqlx::SqlitePool;

use super::{Card, Known, Outcome, Transfer};
use crate::{ledger::new_id, sqlite};

/// How long an idle connection stays open. A client must close its connections before that, because
/// a request on a connection that is being closed is lost; `awc` does after 15 s.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// The bank's database, and the keys of the transfers that are in progress.
struct Vault {
    pool: SqlitePool,
    in_progress: Mutex<HashSet<String>>,
}

/// The URL of the bank: `BANK_URL`, or that of a new bank in this process, with a file beside the
/// ledger's.
pub(crate) async fn url(ledger: &Path) -> Result<String, Box<dyn Error>> {
    if let Ok(url) = env::var("BANK_URL") {
        return Ok(url);
    }
    let (server, address) = create("127.0.0.1:0", &ledger.with_file_name("bank.db"), false).await?;
    spawn(server);
    Ok(format!("http://{address}"))
}

/// Creates the bank's server, with its own file, and returns its address.
pub(crate) async fn create(
    listen: &str,
    file: &Path,
    signals: bool,
) -> Result<(Server, SocketAddr), Box<dyn Error>> {
    let pool = sqlite::open(file, include_str!("schema.sql")).await?;
    let vault = Data::new(Vault { pool, in_progress: Mutex::default() });
    let app = move || {
        App::new().app_data(vault.clone()).service(charge).service(refund).service(find_charge)
    };
    let mut server = HttpServer::new(app).workers(1).keep_alive(KEEP_ALIVE);
    if !signals {
        server = server.disable_signals();
    }
    let server = server.bind(listen)?;
    let address = *server.addrs().first().ok_or("the bank has no address")?;
    Ok((server.run(), address))
}

#[post("/charges")]
async fn charge(
    request: HttpRequest,
    order: Json<Transfer>,
    vault: Data<Vault>,
) -> actix_web::Result<Json<Outcome>> {
    transfer("ch", &request, order.into_inner(), vault).await
}

#[post("/refunds")]
async fn refund(
    request: HttpRequest,
    order: Json<Transfer>,
    vault: Data<Vault>,
) -> actix_web::Result<Json<Outcome>> {
    transfer("re", &request, order.into_inner(), vault).await
}

/// Looks a charge up: it was found, or it is absent, or it is in progress, so that its outcome is
/// unknown.
#[get("/charges/{key}")]
async fn find_charge(key: web::Path<String>, vault: Data<Vault>) -> actix_web::Result<Json<Known>> {
    // Read before the database: a transfer that ends meanwhile is then found there.
    let in_progress = vault.in_progress().contains(key.as_str());
    let id = sqlx::query_scalar("SELECT id FROM bank_transfers WHERE key = ?1 AND kind = 'charge'")
        .bind(key.as_str());
    let id = id.fetch_optional(&vault.pool).await.map_err(ErrorInternalServerError)?;
    Ok(Json(match id {
        Some(id) => Known::Found { id },
        None if in_progress => Known::Unknown,
        None => Known::Absent,
    }))
}

/// Moves the money, and then responds. A caller that is interrupted in between does not know the
/// outcome.
async fn transfer(
    kind: &'static str,
    request: &HttpRequest,
    order: Transfer,
    vault: Data<Vault>,
) -> actix_web::Result<Json<Outcome>> {
    let key = request.headers().get("Idempotency-Key").and_then(|key| key.to_str().ok());
    let key = key.ok_or_else(|| ErrorBadRequest("the header Idempotency-Key is missing"))?;
    let card = Card::parse(&order.payment_method).map_err(ErrorBadRequest)?;
    match card {
        Card::ChargeDeclined => return Ok(Json(Outcome::Declined)),
        Card::ProcessorDown => return Err(ErrorServiceUnavailable("the processor is down")),
        Card::Visa | Card::Slow(_) | Card::Crash => {}
    }
    // A separate task, because actix-web drops this function if the caller disconnects.
    let key = key.to_owned();
    let moved = spawn(async move { vault.transfer(kind, &key, &order).await });
    let id = moved.await.map_err(ErrorInternalServerError)?.map_err(ErrorInternalServerError)?;
    if let Card::Slow(time) = card {
        sleep(time).await;
    }
    Ok(Json(Outcome::Succeeded { id }))
}

impl Vault {
    async fn transfer(
        &self,
        kind: &'static str,
        key: &str,
        order: &Transfer,
    ) -> Result<String, sqlx::Error> {
        self.in_progress().insert(key.to_owned());
        let rows = sqlx::query_scalar(
            "INSERT INTO bank_transfers (key, id, kind, amount, currency)
             VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (key) DO UPDATE SET requests = requests + 1 RETURNING id",
        )
        .bind(key)
        .bind(new_id(kind))
        .bind(if kind == "ch" { "charge" } else { "refund" })
        .bind(order.amount)
        .bind(&order.currency)
        .fetch_all(&self.pool)
        .await;
        self.in_progress().remove(key);
        rows?.into_iter().next().ok_or(sqlx::Error::RowNotFound)
    }

    fn in_progress(&self) -> MutexGuard<'_, HashSet<String>> {
        self.in_progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
