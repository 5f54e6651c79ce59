//! All stores under stress: owners that die and owners that come back late, while others are at the same keys.
//!
//! The servers are private ones, started here; `DATABASE_URL` and `REDIS_URL` name others.
#![expect(unreachable_pub, reason = "the servers are for the tests of other crates too")]

mod careless;
mod effects;
mod grounds;
mod hammer;
mod linearizable;
mod mutants;
mod within;

#[path = "../../tests/redis/subject.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod moved_redis;
#[path = "../../tests/servers/postgres.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod postgres_server;
#[path = "../../tests/servers/redis.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod redis_server;
