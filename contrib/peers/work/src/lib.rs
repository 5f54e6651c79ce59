//! The work and the command line of every contestant.

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
    /// Where to listen; 0 takes a free port.
    pub port: u16,
}

impl Arguments {
    /// Reads `--store URL` and `--port N`, and ends the process on any other argument.
    pub fn read() -> Self {
        let mut read = Self { store: "memory".to_owned(), port: 0 };
        let mut words = env::args().skip(1);
        while let Some(word) = words.next() {
            match (word.as_str(), words.next()) {
                ("--store", Some(url)) => read.store = url,
                ("--port", Some(port)) => {
                    read.port = port.parse().unwrap_or_else(|_| refuse("a port is a number"))
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

    /// Ends the process, for a store that the contestant does not have.
    pub fn no_such_store(&self) -> ! {
        refuse(&format!("no store of this contestant is at {}", self.store))
    }
}

fn refuse(what: &str) -> ! {
    eprintln!("{what}");
    exit(2)
}

/// Prints the address; the benchmark waits for this line.
pub fn listening(address: SocketAddr) {
    println!("listening on {address}");
}

static RUNS: AtomicU64 = AtomicU64::new(0);

/// Counts a run of the handler, and returns its number: the `X-Run` of the response.
pub fn run() -> u64 {
    RUNS.fetch_add(1, Ordering::Relaxed) + 1
}

/// How often the handler ran: the response to `GET /runs`.
pub fn runs() -> String {
    RUNS.load(Ordering::Relaxed).to_string()
}

/// The response's body for a request body of this length: JSON of exactly 1 KiB.
pub fn answer(received: usize) -> String {
    const SIZE: usize = 1024;
    const END: &str = "\"}";
    let mut answer = format!(r#"{{"status":"succeeded","received":{received},"receipt":""#);
    answer.reserve_exact(SIZE - answer.len());
    answer.extend(std::iter::repeat_n('x', SIZE - END.len() - answer.len()));
    answer.push_str(END);
    answer
}

/// The schema of the servers, which is empty when they start.
pub const SCHEMA: &str = "idempotent_peers";

/// Creates the empty schema, with the table that the work in Postgres writes to.
pub const EMPTY: &str = "DROP SCHEMA IF EXISTS idempotent_peers CASCADE; \
     CREATE SCHEMA idempotent_peers; \
    CREATE TABLE idempotent_peers.effects (key text NOT NULL, body text NOT NULL)";

/// The work in Postgres.
pub const EFFECT: &str = "INSERT INTO effects (key, body) VALUES ($1, $2)";

#[cfg(test)]
mod tests {
    #[test]
    fn answer_is_one_kib() {
        assert!([0, 200, 99_999].into_iter().all(|received| super::answer(received).len() == 1024));
    }
}
