//! Private database servers, on free ports and in temporary directories.

pub mod pgbouncer;
pub mod postgres;
pub mod redis;

use std::time::Duration;

const ADVANCE: &str = include_str!("subjects/redis/advance.lua");

impl redis::Server {
    /// Makes all records of the server older by this duration.
    ///
    /// # Panics
    /// When there are no records.
    pub fn advance(&self, by: Duration) {
        let mut connection = self.client().get_connection().unwrap();
        let keys: Vec<Vec<u8>> = redis::command(&mut connection, "KEYS *");
        // The index of inputs is no record.
        let records: Vec<_> = keys.iter().filter(|key| !key.ends_with(b":inputs")).collect();
        assert!(!records.is_empty(), "the server has no records");
        for key in records {
            let mut advance = ::redis::cmd("EVAL");
            let advance = advance.arg(ADVANCE).arg(1).arg(key).arg(by.as_millis().to_string());
            let _: u64 = advance.query(&mut connection).unwrap();
        }
    }
}
