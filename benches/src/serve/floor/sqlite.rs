//! An `INSERT` and an `UPDATE`, each committed, or with an `UPDATE` for a step between them; one
//! `SELECT`; or a transaction with one effect.

use std::{str::FromStr, time::Duration};

use actix_web::{HttpRequest, HttpResponse, post, web};
use bytes::Bytes;
use sqlx::{
    SqlitePool,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

use super::{
    super::{STEP_RESULT, Size, created, response},
    id,
};

const INSERT: &str = "INSERT INTO floor \
    (id, state, fingerprint, owner, attempt, abandoned, lease, lease_until, \
    first_seen, expires_at) \
    VALUES (?1, 1, ?2, ?3, 1, 0, 1, ?4, ?5, ?6) ON CONFLICT (id) DO NOTHING";
const UPDATE: &str = "UPDATE floor SET state = 2, recording = ?2 WHERE id = ?1";
const STEP: &str = "UPDATE floor SET steps = ?2 WHERE id = ?1";
const SELECT: &str = "SELECT recording FROM floor WHERE id = ?1";
pub(in crate::serve) const EFFECT: &str = "INSERT INTO effects (key, response) VALUES (?1, ?2)";

#[derive(Clone)]
pub(in crate::serve) struct Pools {
    writer: SqlitePool,
    readers: SqlitePool,
}

pub(super) async fn open(url: &str) -> Pools {
    let options = SqliteConnectOptions::from_str(url).unwrap().busy_timeout(Duration::from_secs(5));
    let writing =
        options.clone().journal_mode(SqliteJournalMode::Wal).synchronous(SqliteSynchronous::Full);
    let pool = |connections| {
        SqlitePoolOptions::new()
            .max_connections(connections)
            .test_before_acquire(false)
            .idle_timeout(None)
            .max_lifetime(None)
    };
    let writer = pool(1).connect_with(writing).await.unwrap();
    Pools { writer, readers: pool(4).connect_lazy_with(options.pragma("query_only", "ON")) }
}

async fn insert(id: &[u8], pools: &Pools) {
    let new = sqlx::query(INSERT)
        .bind(id)
        .bind(&[7_u8; 36][..])
        .bind(&[8_u8; 16][..])
        .bind(1_i64)
        .bind(1_i64)
        .bind(i64::MAX);
    new.execute(&pools.writer).await.unwrap();
}

async fn complete(id: &[u8], response: &Bytes, pools: &Pools) {
    sqlx::query(UPDATE).bind(id).bind(&response[..]).execute(&pools.writer).await.unwrap();
}

#[post("/work")]
pub(super) async fn claim(
    request: HttpRequest,
    body: Bytes,
    size: web::Data<Size>,
    pools: web::Data<Pools>,
) -> HttpResponse {
    let id = id(&request);
    insert(&id, &pools).await;
    let response = response(&body, &size);
    complete(&id, &response, &pools).await;
    created(response)
}

/// Claims, does one step and records it, and completes.
#[post("/work")]
pub(super) async fn step(
    request: HttpRequest,
    body: Bytes,
    size: web::Data<Size>,
    pools: web::Data<Pools>,
) -> HttpResponse {
    let id = id(&request);
    insert(&id, &pools).await;
    sqlx::query(STEP).bind(&id[..]).bind(STEP_RESULT).execute(&pools.writer).await.unwrap();
    let response = response(&body, &size);
    complete(&id, &response, &pools).await;
    created(response)
}

/// Reads the response; if there is none, does the work and records it.
#[post("/work")]
pub(super) async fn read(
    request: HttpRequest,
    body: Bytes,
    size: web::Data<Size>,
    pools: web::Data<Pools>,
) -> HttpResponse {
    let id = id(&request);
    let recorded: Option<Vec<u8>> =
        sqlx::query_scalar(SELECT).bind(&id[..]).fetch_optional(&pools.readers).await.unwrap();
    if let Some(recorded) = recorded {
        return created(recorded.into());
    }
    let response = response(&body, &size);
    insert(&id, &pools).await;
    complete(&id, &response, &pools).await;
    created(response)
}

#[post("/work")]
pub(super) async fn effect(
    request: HttpRequest,
    body: Bytes,
    size: web::Data<Size>,
    pools: web::Data<Pools>,
) -> HttpResponse {
    let mut transaction = pools.writer.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let response = response(&body, &size);
    sqlx::query(EFFECT)
        .bind(id(&request))
        .bind(&response[..])
        .execute(&mut *transaction)
        .await
        .unwrap();
    transaction.commit().await.unwrap();
    created(response)
}
