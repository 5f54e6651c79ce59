//! Private database servers, on free ports and in temporary directories.

pub mod pgbouncer;
pub mod postgres;
pub mod redis;

use std::time::Duration;

const ADVANCE: &str = include_str!("subjects/redis/advance.lua");

impl redis::Server {
    /// Lets time pass for all records of the server.
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
