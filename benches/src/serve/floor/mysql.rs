//! An `INSERT` and an `UPDATE`, each committed, or with an `UPDATE` for a step between them; one
//! `SELECT`; or a transaction with one effect.

use std::{str::FromStr, time::Duration};

use actix_web::{HttpRequest, HttpResponse, post, web};
use bytes::Bytes;
use sqlx::{
    ConnectOptions, MySqlPool,
    mysql::{MySqlConnectOptions, MySqlPoolOptions},
};

use super::{
    super::{STEP_RESULT, Size, created, response},
    id,
};

const INSERT: &str = "INSERT IGNORE INTO floor (id, fingerprint, owner, attempt, lease, \
    lease_until, first_seen, expires_at, state, abandoned) \
    VALUES (?, ?, ?, 1, 1, ?, ?, ?, 1, 0)";
const UPDATE: &str = "UPDATE floor SET state = 2, recording = ? WHERE id = ?";
const STEP: &str = "UPDATE floor SET steps = ? WHERE id = ?";
const SELECT: &str = "SELECT recording FROM floor WHERE id = ?";
pub(in crate::serve) const EFFECT: &str = "INSERT INTO effects (`key`, response) VALUES (?, ?)";

pub(super) fn open(url: &str) -> MySqlPool {
    let options = MySqlConnectOptions::from_str(url).unwrap().disable_statement_logging();
    let pool = MySqlPoolOptions::new().max_connections(10).acquire_timeout(Duration::from_secs(5));
    // Opened lazily, on the worker's runtime, so that no other thread drives the connections.
    pool.test_before_acquire(false).connect_lazy_with(options)
}

async fn insert(id: &[u8], pool: &MySqlPool) {
    let new = sqlx::query(INSERT)
        .bind(id)
        .bind(&[7_u8; 36][..])
        .bind(&[8_u8; 16][..])
        .bind(1_i64)
        .bind(1_i64)
        .bind(i64::MAX);
    let claimed = new.execute(pool).await.unwrap().rows_affected();
    assert_eq!(claimed, 1, "the key is new");
}

async fn complete(id: &[u8], response: &Bytes, pool: &MySqlPool) {
    sqlx::query(UPDATE).bind(&response[..]).bind(id).execute(pool).await.unwrap();
}

#[post("/work")]
pub(super) async fn claim(
    request: HttpRequest,
    body: Bytes,
    size: web::Data<Size>,
    pool: web::Data<MySqlPool>,
) -> HttpResponse {
    let id = id(&request);
    insert(&id, &pool).await;
    let response = response(&body, &size);
    complete(&id, &response, &pool).await;
    created(response)
}

/// Claims, does one step and records it, and completes.
#[post("/work")]
pub(super) async fn step(
    request: HttpRequest,
    body: Bytes,
    size: web::Data<Size>,
    pool: web::Data<MySqlPool>,
) -> HttpResponse {
    let id = id(&request);
    insert(&id, &pool).await;
    sqlx::query(STEP).bind(STEP_RESULT).bind(&id[..]).execute(&**pool).await.unwrap();
    let response = response(&body, &size);
    complete(&id, &response, &pool).await;
    created(response)
}

/// Reads the response; if there is none, does the work and records it.
#[post("/work")]
pub(super) async fn read(
    request: HttpRequest,
    body: Bytes,
    size: web::Data<Size>,
    pool: web::Data<MySqlPool>,
) -> HttpResponse {
    let id = id(&request);
    let recorded: Option<Vec<u8>> =
        sqlx::query_scalar(SELECT).bind(&id[..]).fetch_optional(&**pool).await.unwrap();
    if let Some(recorded) = recorded {
        return created(recorded.into());
    }
    let response = response(&body, &size);
    insert(&id, &pool).await;
    complete(&id, &response, &pool).await;
    created(response)
}

#[post("/work")]
pub(super) async fn effect(
    request: HttpRequest,
    body: Bytes,
    size: web::Data<Size>,
    pool: web::Data<MySqlPool>,
) -> HttpResponse {
    let mut transaction = pool.begin().await.unwrap();
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
