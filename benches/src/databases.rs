//! Private servers of databases. The files belong to the tests of idempotent-core.
#![allow(dead_code, unreachable_pub, reason = "the tests use the rest")]

#[path = "../../idempotent-core/tests/servers/postgres.rs"]
pub(crate) mod postgres;
#[path = "../../idempotent-core/tests/servers/redis.rs"]
pub(crate) mod redis;
