//! The work that every contestant does, and its command line.

use std::{
    env,
    net::SocketAddr,
    process::exit,
    sync::atomic::{AtomicU64, Ordering},
};

/// The options of a contestant.
pub struct Arguments {
    /// `memory`, `redis://…` or `postgres://…`.
    pub store: String,
    /// The port to listen on; 0 selects a free port.
    pub port: u16,
}

impl Arguments {
    /// Reads `--store URL` and `--port N`. Exits the process on any other argument.
    pub fn read() -> Self {
        let mut read = Self { store: "memory".to_owned(), port: 0 };
        let mut words = env::args().skip(1);
        while let Some(word) = words.next() {
            match (word.as_str(), words.next()) {
                ("--store", Some(url)) => read.store = url,
                ("--port", Some(port)) => {
                    read.port = port.parse().unwrap_or_else(|_| refuse("the port is not a number"))
                }
                _ => refuse("usage: --store memory|redis://…|postgres://… [--port N]"),
            }
        }
        read
    }

    pub fn is_memory(&self) -> bool {
        self.store == "memory" || self.store == "memory:"
    }

    pub fn is_redis(&self) -> bool {
        self.store.starts_with("redis://")
    }

    pub fn is_postgres(&self) -> bool {
        self.store.starts_with("postgres://")
    }

    /// Exits the process, because the contestant does not support the store.
    pub fn refuse_store(&self) -> ! {
        refuse(&format!("this contestant has no store for {}", self.store))
    }
}

fn refuse(what: &str) -> ! {
    eprintln!("{what}");
    exit(2)
}

/// Prints the address. The benchmark waits for this line.
pub fn print_address(address: SocketAddr) {
    println!("listening on {address}");
}

static RUNS: AtomicU64 = AtomicU64::new(0);

/// Counts a run of the handler. Returns the run's number, which is the response's `X-Run`.
pub fn run() -> u64 {
    RUNS.fetch_add(1, Ordering::Relaxed) + 1
}

/// The number of runs of the handler: the response to `GET /runs`.
pub fn runs() -> String {
    RUNS.load(Ordering::Relaxed).to_string()
}

/// The response body for a request body of `received` bytes: exactly 1 KiB of JSON.
pub fn response_body(received: usize) -> String {
    const SIZE: usize = 1024;
    const END: &str = "\"}";
    let mut body = format!(r#"{{"status":"succeeded","received":{received},"receipt":""#);
    body.reserve_exact(SIZE - body.len());
    body.extend(std::iter::repeat_n('x', SIZE - END.len() - body.len()));
    body.push_str(END);
    body
}

/// The schema that the contestants use.
pub const SCHEMA: &str = "idempotent_peers";

/// Recreates the schema, with only the table that the work in Postgres writes to.
pub const RESET_SCHEMA: &str = "DROP SCHEMA IF EXISTS idempotent_peers CASCADE; \
     CREATE SCHEMA idempotent_peers; \
    CREATE TABLE idempotent_peers.effects (key text NOT NULL, body text NOT NULL)";

/// The work in Postgres.
pub const EFFECT: &str = "INSERT INTO effects (key, body) VALUES ($1, $2)";

#[cfg(test)]
mod tests {
    #[test]
    fn a_response_body_is_one_kib() {
        assert!(
            [0, 200, 99_999]
                .into_iter()
                .all(|received| super::response_body(received).len() == 1024)
        );
    }
}
