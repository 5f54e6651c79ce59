//! The application of each process: three guarded handlers, whose behavior is random.

use std::{
    future::{Ready, ready},
    panic::resume_unwind,
    sync::Arc,
    time::Duration,
};

use actix_web::{
    Error, FromRequest, HttpRequest, HttpResponse,
    dev::Payload,
    error::ErrorUnauthorized,
    http::header::LOCATION,
    post,
    web::{Data, Json, ServiceConfig},
};
use bytes::Bytes;
use futures_util::stream;
use idempotent_actix::{
    Operation, Tx, TxError, idempotent, internals,
    scope::{ScopeId, ScopeKey},
};
use serde::{Deserialize, Serialize};
use sqlx::Sqlite;
use tokio::time::sleep;

use crate::{
    operation::{Handler, Key, Receipt, Run},
    store::SimulatedConnection,
    world::{World, chance, millis},
};

pub(crate) fn routes(config: &mut ServiceConfig) {
    config.service(lease).service(tx_lease).service(tx_claim);
}

/// Where a handler runs.
pub(crate) struct Site {
    pub(crate) world: Arc<World>,
    pub(crate) process: usize,
}

pub(crate) struct User(u8);

impl FromRequest for User {
    type Error = Error;
    type Future = Ready<Result<Self, Error>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let user = request.headers().get("user").and_then(|user| user.to_str().ok()?.parse().ok());
        ready(user.map(Self).ok_or_else(|| ErrorUnauthorized("no user")))
    }
}

impl ScopeKey for User {
    fn scope_key(&self) -> Option<ScopeId> {
        Some(ScopeId::of("user", self.0.to_string()))
    }
}

#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Body {
    pub(crate) payload: u8,
}

#[idempotent(scope = "user")]
#[post("/lease")]
async fn lease(
    user: User,
    body: Json<Body>,
    operation: Operation,
    site: Data<Site>,
) -> HttpResponse {
    let run = begin(&site, Handler::Lease, &user, &body, &operation);
    respond(&site.world, run).await
}

#[idempotent(scope = "user")]
#[post("/tx-lease")]
async fn tx_lease(
    user: User,
    body: Json<Body>,
    operation: Operation,
    site: Data<Site>,
    tx: Tx<Sqlite>,
) -> Result<HttpResponse, TxError> {
    let run = begin(&site, Handler::TxLease, &user, &body, &operation);
    write(&site.world, run, tx).await
}

#[idempotent(scope = "user", claim = "transaction")]
#[post("/tx-claim")]
async fn tx_claim(
    user: User,
    body: Json<Body>,
    operation: Operation,
    site: Data<Site>,
    tx: Tx<Sqlite>,
) -> Result<HttpResponse, TxError> {
    let run = begin(&site, Handler::TxClaim, &user, &body, &operation);
    write(&site.world, run, tx).await
}

fn begin(
    Site { world, process }: &Site,
    handler: Handler,
    user: &User,
    body: &Body,
    operation: &Operation,
) -> Run {
    let key = operation.key().and_then(|key| key.as_str().parse().ok()).unwrap_or(0);
    let key = Key { handler, user: user.0, key };
    let run = Run { id: world.next_id(), key, payload: body.payload, process: *process };
    let (id, attempt) = (operation.id().unwrap(), operation.attempt().unwrap());
    world.trace(|| format!("handler: {run:?} starts, attempt {attempt}"));
    world.oracle(|oracle| oracle.started(run, id, attempt));
    run
}

/// Writes an effect in the transaction, before or after other work.
async fn write(world: &World, run: Run, mut tx: Tx<Sqlite>) -> Result<HttpResponse, TxError> {
    if world.is_chaotic() && chance(30) {
        sleep(millis(0, 2_000)).await;
    }
    let transaction = internals::transaction(&mut tx).await?;
    let connection = transaction.connection().downcast_ref::<SimulatedConnection>();
    let connection = connection.expect("the connection of the simulated store");
    if connection.insert(run).await.is_err() {
        return Ok(Receipt::of(run, false).send(&mut HttpResponse::ServiceUnavailable()));
    }
    Ok(respond(world, run).await)
}

async fn respond(world: &World, run: Run) -> HttpResponse {
    let chaotic = world.is_chaotic();
    let behavior = if chaotic { fastrand::u32(0..100) } else { 0 };
    let work = if behavior >= 90 { millis(0, 40_000) } else { millis(0, 200) };
    sleep(work).await;
    world.trace(|| format!("handler: run {} ends with behavior {behavior}", run.id));
    match behavior {
        0..60 => Receipt::of(run, true).send(&mut HttpResponse::Created()),
        60..66 => Receipt::of(run, false).send(&mut HttpResponse::PaymentRequired()),
        66..72 => Receipt::of(run, false).send(&mut HttpResponse::ServiceUnavailable()),
        72..78 => resume_unwind(Box::new("a panic that the simulation ordered")),
        78..86 => streamed(run),
        _ => Receipt::of(run, true).send(&mut HttpResponse::Created()),
    }
}

/// A response whose body arrives in two parts, perhaps after the limit for recording it.
fn streamed(run: Run) -> HttpResponse {
    let location = Receipt::of(run, true).text();
    let body = Bytes::from(location.clone());
    let (first, second) = (body.slice(..body.len() / 2), body.slice(body.len() / 2..));
    let pauses = [millis(0, 3_000), Duration::ZERO];
    let parts = [first, second].into_iter().zip(pauses);
    let parts = stream::unfold(parts, |mut parts| async move {
        let (part, pause) = parts.next()?;
        sleep(pause).await;
        Some((Ok::<_, Error>(part), parts))
    });
    HttpResponse::Created().insert_header((LOCATION, location)).streaming(Box::pin(parts))
}
