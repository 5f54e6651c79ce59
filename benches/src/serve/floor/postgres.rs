//! An `INSERT` and an `UPDATE`, each committed; one `SELECT`; or a transaction with one effect.

use std::{str::FromStr, time::Duration};

use actix_web::{HttpRequest, HttpResponse, post, web};
use bytes::Bytes;
use sqlx::{
    ConnectOptions, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};

use super::{
    super::{Size, answer, created},
    id,
};

const INSERT: &str = "INSERT INTO floor (id, fingerprint, owner, attempt, lease, lease_until, first_seen, expires_at, state, abandoned) \
                      VALUES ($1, $2, $3, 1, 1, $4, $5, $6, 1, 0) ON CONFLICT (id) DO NOTHING";
const UPDATE: &str = "UPDATE floor SET state = 2, recording = $2 WHERE id = $1";
const SELECT: &str = "SELECT recording FROM floor WHERE id = $1";
pub(in crate::serve) const EFFECT: &str = "INSERT INTO effects (key, answer) VALUES ($1, $2)";

pub(super) fn open(url: &str) -> PgPool {
    let options = PgConnectOptions::from_str(url).unwrap().disable_statement_logging();
    let pool = PgPoolOptions::new().max_connections(10).acquire_timeout(Duration::from_secs(5));
    // Opened by whoever asks first, which is the worker: no other thread drives the connections.
    pool.test_before_acquire(false).connect_lazy_with(options)
}

#[post("/work")]
pub(super) async fn claim(
    request: HttpRequest,
    body: Bytes,
    size: web::Data<Size>,
    pool: web::Data<PgPool>,
) -> HttpResponse {
    let id = id(&request);
    let new = sqlx::query(INSERT)
        .bind(&id[..])
        .bind(&[7_u8; 36][..])
        .bind(&[8_u8; 16][..])
        .bind(1_i64)
        .bind(1_i64)
        .bind(i64::MAX);
    let claimed = new.execute(&**pool).await.unwrap().rows_affected();
    assert_eq!(claimed, 1, "the key is new");
    let answer = answer(&body, &size);
    sqlx::query(UPDATE).bind(&id[..]).bind(&answer[..]).execute(&**pool).await.unwrap();
    created(answer)
}

/// Reads; what is not there is done and kept.
#[post("/work")]
pub(super) async fn read(
    request: HttpRequest,
    body: Bytes,
    size: web::Data<Size>,
    pool: web::Data<PgPool>,
) -> HttpResponse {
    let id = id(&request);
    let kept: Option<Vec<u8>> = sqlx::query_scalar(SELECT).bind(&id[..]).fetch_optional(&**pool).await.unwrap();
    if let Some(kept) = kept {
        return created(kept.into());
    }
    let answer = answer(&body, &size);
    let keep = sqlx::query(INSERT)
        .bind(&id[..])
        .bind(&[7_u8; 36][..])
        .bind(&[8_u8; 16][..])
        .bind(1_i64)
        .bind(1_i64)
        .bind(i64::MAX);
    keep.execute(&**pool).await.unwrap();
    sqlx::query(UPDATE).bind(&id[..]).bind(&answer[..]).execute(&**pool).await.unwrap();
    created(answer)
}

#[post("/work")]
pub(super) async fn effect(
    request: HttpRequest,
    body: Bytes,
    size: web::Data<Size>,
    pool: web::Data<PgPool>,
) -> HttpResponse {
    let mut transaction = pool.begin().await.unwrap();
    let answer = answer(&body, &size);
    sqlx::query(EFFECT).bind(id(&request)).bind(&answer[..]).execute(&mut *transaction).await.unwrap();
    transaction.commit().await.unwrap();
    created(answer)
}
