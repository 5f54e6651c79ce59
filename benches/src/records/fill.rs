//! Inserts many records, as copies of one that the layer has written, so that the layer can replay
//! them.

use std::ops::Range;

use idempotent_core::{RecordId, ScopeId};
use idempotent_http::key::parse_key;
use sqlx::{AssertSqlSafe, PgPool};

use crate::{
    environment::Environment,
    load::{KeyPattern, Plan, key},
    server::{self, Program, Server},
};

/// The seed of the keys of the inserted records.
pub(crate) const SEED: u64 = u64::MAX;
/// The bytes of a response.
pub(crate) const RESPONSE: &str = "100";
/// The seeds of the template's key, and of the keys of expired and of held records.
const TEMPLATE: u64 = SEED - 1;
const EXPIRED: u64 = SEED - 2;
const HELD: u64 = SEED - 3;
/// Records per statement.
const BATCH: u64 = 200_000;

/// Inserts copies of the template with other ids, and moves their expiry.
const INSERT: &str = "INSERT INTO idempotency_records \
    (id, fingerprint, owner, attempt, lease, lease_until, first_seen, expires_at, state, \
    abandoned, recording, kept, operation, principal, completed_at, status, history) \
    SELECT new.id, fingerprint, owner, attempt, lease, lease_until - $2, first_seen - $2, \
    expires_at - $2 + new.number % 1000, state, abandoned, recording, kept, operation, principal, \
    completed_at - $2, status, history \
    FROM template, unnest($1::bytea[]) WITH ORDINALITY AS new (id, number)";

/// Makes completed records held.
const HOLD: &str = "UPDATE idempotency_records \
    SET state = 3, watch = first_seen, recording = NULL, completed_at = NULL, status = NULL \
    WHERE id = ANY ($1)";

/// The template, in a table beside the records.
pub(crate) struct Fill {
    /// The ttl of the records, in milliseconds.
    ttl: i64,
}

impl Fill {
    /// Sends a request through the layer and keeps its record as the template. `pool` is of the
    /// database at `url`.
    pub(crate) fn new(environment: &Environment, url: &str, pool: &PgPool) -> Self {
        let words = ["--kind", "layer", "--response", RESPONSE].map(String::from).to_vec();
        let server = Server::start(&Program::BuiltIn(None, words), url);
        let plan = Plan::new(server.at, KeyPattern::Fresh);
        server::load(&Plan { connections: 1, requests: Some(1), seed: TEMPLATE, ..plan });
        environment.wait(async {
            let create = "DROP TABLE IF EXISTS template; \
                 CREATE TABLE template AS SELECT * FROM idempotency_records WHERE id = '\\x{id}'";
            let create = create.replace("{id}", &format!("{:x}", id(TEMPLATE, 0)));
            sqlx::raw_sql(AssertSqlSafe(create)).execute(pool).await.unwrap();
            let ttl = "SELECT expires_at - first_seen FROM template WHERE state = 2";
            let ttl = sqlx::query_scalar(ttl).fetch_optional(pool).await.unwrap();
            Self { ttl: ttl.expect("the request's record has the expected id") }
        })
    }

    /// Inserts completed records with the keys of these numbers.
    pub(crate) fn live(&self, environment: &Environment, pool: &PgPool, numbers: Range<u64>) {
        self.insert(environment, pool, SEED, numbers, 0);
    }

    /// Inserts completed records that have just expired.
    pub(crate) fn expired(&self, environment: &Environment, pool: &PgPool, count: u64) {
        self.insert(environment, pool, EXPIRED, 0..count, self.ttl + 1000);
    }

    /// Inserts held records.
    pub(crate) fn held(&self, environment: &Environment, pool: &PgPool, count: u64) {
        self.insert(environment, pool, HELD, 0..count, 0);
        let ids = ids(HELD, 0..count);
        environment.wait(sqlx::query(HOLD).bind(ids).execute(pool)).unwrap();
    }

    fn insert(
        &self,
        environment: &Environment,
        pool: &PgPool,
        seed: u64,
        numbers: Range<u64>,
        earlier: i64,
    ) {
        for start in numbers.clone().step_by(BATCH as usize) {
            let end = numbers.end.min(start + BATCH);
            let mut ids = ids(seed, start..end);
            // In the order of the index, so that a batch writes each of its pages once.
            ids.sort_unstable();
            environment.wait(sqlx::query(INSERT).bind(ids).bind(earlier).execute(pool)).unwrap();
        }
    }
}

fn ids(seed: u64, numbers: Range<u64>) -> Vec<Vec<u8>> {
    numbers.map(|number| id(seed, number).as_bytes().to_vec()).collect()
}

/// The record of a key of the load, in the layer under test.
fn id(seed: u64, number: u64) -> RecordId {
    let key = parse_key(&key(seed, number)).unwrap();
    RecordId::new(env!("CARGO_PKG_NAME"), &ScopeId::of("bearer", b"alice"), "POST /work", &key)
}
