//! Private servers of databases, for the tests whose processes share one.
//!
//! The files belong to the tests of idempotent-core, which start the same servers. They are included here and there rather than
//! depended on, since a dependency of core's tests on this crate would give core the features that this crate asks for: none of core's
//! own tests would run without them.

#[path = "../../idempotent-core/tests/servers/postgres.rs"]
pub mod postgres;
#[path = "../../idempotent-core/tests/servers/redis.rs"]
pub mod redis;

use std::time::Duration;

const ADVANCE: &str = include_str!("../../idempotent-core/tests/redis/advance.lua");

impl redis::Server {
    /// Lets time pass for all records that the server has.
    ///
    /// # Panics
    /// When there are none.
    pub fn pass(&self, time: Duration) {
        let mut connection = self.client().get_connection().unwrap();
        let keys: Vec<Vec<u8>> = redis::ask(&mut connection, "KEYS *");
        assert!(!keys.is_empty(), "nothing is there that could be older");
        for key in keys {
            let mut advance = ::redis::cmd("EVAL");
            let advance = advance.arg(ADVANCE).arg(1).arg(key).arg(time.as_millis().to_string());
            let _: u64 = advance.query(&mut connection).unwrap();
        }
    }
}
