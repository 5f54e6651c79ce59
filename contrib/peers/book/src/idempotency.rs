//! The book's `idempotency/persistence.rs`, with the same statements in the same order, on the same
//! pool.

use actix_web::{HttpResponse, body::to_bytes, http::StatusCode};
use anyhow::{Context, anyhow};
use sqlx::{Executor, PgPool, Postgres, Row, Transaction};
use uuid::Uuid;

pub const TABLE: &str = "
CREATE TYPE header_pair AS (name TEXT, value BYTEA);
CREATE TABLE idempotency (
    user_id uuid NOT NULL,
    idempotency_key TEXT NOT NULL,
    response_status_code SMALLINT NULL,
    response_headers header_pair[] NULL,
    response_body BYTEA NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (user_id, idempotency_key)
)";

const CLAIM: &str = "INSERT INTO idempotency (user_id, idempotency_key, created_at) \
     VALUES ($1, $2, now()) ON CONFLICT DO NOTHING";

const SAVE: &str = "UPDATE idempotency \
     SET response_status_code = $3, response_headers = $4, response_body = $5 \
                    WHERE user_id = $1 AND idempotency_key = $2";

const SAVED: &str = "SELECT response_status_code, response_headers, response_body FROM idempotency \
                     WHERE user_id = $1 AND idempotency_key = $2";

#[derive(Debug, sqlx::Type)]
#[sqlx(type_name = "header_pair")]
struct HeaderPairRecord {
    name: String,
    value: Vec<u8>,
}

pub enum NextAction {
    StartProcessing(Transaction<'static, Postgres>),
    ReturnSavedResponse(HttpResponse),
}

pub async fn try_processing(pool: &PgPool, key: &str, user: Uuid) -> anyhow::Result<NextAction> {
    let mut transaction = pool.begin().await?;
    let inserted =
        transaction.execute(sqlx::query(CLAIM).bind(user).bind(key)).await?.rows_affected();
    if inserted > 0 {
        Ok(NextAction::StartProcessing(transaction))
    } else {
        // The book reads the response on another connection, while the transaction holds the first.
        let saved = get_saved_response(pool, key, user).await?;
        let saved =
            saved.ok_or_else(|| anyhow!("We expected a saved response, we didn't find it"))?;
        Ok(NextAction::ReturnSavedResponse(saved))
    }
}

async fn get_saved_response(
    pool: &PgPool,
    key: &str,
    user: Uuid,
) -> anyhow::Result<Option<HttpResponse>> {
    let Some(saved) = pool.fetch_optional(sqlx::query(SAVED).bind(user).bind(key)).await? else {
        return Ok(None);
    };
    let status = StatusCode::from_u16(saved.try_get::<i16, _>(0)?.try_into()?)?;
    let mut response = HttpResponse::build(status);
    for HeaderPairRecord { name, value } in saved.try_get::<Vec<HeaderPairRecord>, _>(1)? {
        response.append_header((name, value));
    }
    Ok(Some(response.body(saved.try_get::<Vec<u8>, _>(2)?)))
}

pub async fn save_response(
    mut transaction: Transaction<'static, Postgres>,
    key: &str,
    user: Uuid,
    response: HttpResponse,
) -> anyhow::Result<HttpResponse> {
    let (head, body) = response.into_parts();
    let body = to_bytes(body).await.map_err(|error| anyhow!("{error}"))?;
    let status = i16::try_from(head.status().as_u16())?;
    let pair = |(name, value): (
        &actix_web::http::header::HeaderName,
        &actix_web::http::header::HeaderValue,
    )| {
        HeaderPairRecord { name: name.as_str().to_owned(), value: value.as_bytes().to_owned() }
    };
    let headers: Vec<_> = head.headers().iter().map(pair).collect();
    let save =
        sqlx::query(SAVE).bind(user).bind(key).bind(status).bind(headers).bind(body.as_ref());
    transaction.execute(save).await?;
    transaction.commit().await.context("the transaction was not committed")?;
    Ok(head.set_body(body).map_into_boxed_body())
}
