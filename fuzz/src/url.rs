//! The URLs of stores.

use std::{error::Error, fmt::Write as _, sync::Arc};

use futures_util::FutureExt as _;
use idempotent_actix::store::connect;
use idempotent_core::StoreError;

/// Stands for a password, wherever in the URL it is.
const SECRET: &str = "hunter2";

type Verify = fn(&str) -> Result<(), StoreError>;

/// Input: the URL.
pub(crate) fn run(url: &[u8]) {
    let Ok(url) = std::str::from_utf8(url) else { return };
    let (scheme, _) = url.split_once(':').unwrap_or(("", url));
    let verify: Option<Verify> = match scheme {
        "sqlite" => Some(idempotent_sqlite::internals::verify_sqlite_url),
        "postgres" | "postgresql" => Some(idempotent_postgres::internals::verify_postgres_url),
        "redis" | "redis+sentinel" | "redis+cluster" => {
            Some(idempotent_redis::internals::verify_redis_url)
        }
        "rediss" | "rediss+sentinel" | "rediss+cluster" => {
            Some(idempotent_redis::internals::verify_redis_url)
        }
        "dynamodb" => Some(idempotent_dynamodb::internals::verify_dynamodb_url),
        _ => None,
    };
    match verify.map(|verify| verify(url)) {
        Some(Ok(())) => {}
        Some(Err(error)) => {
            assert!(!error.is_transient());
            refused(scheme, url);
        }
        None if url == "memory:" => drop(open(url).unwrap()),
        None => refused(scheme, url),
    }
}

/// The URL is refused before anything is opened, by an error that shows no more than its scheme.
fn refused(scheme: &str, url: &str) {
    let error = open(url).map(drop).unwrap_err();
    let mut shown = String::new();
    let mut cause: Option<&dyn Error> = Some(&error);
    while let Some(error) = cause {
        write!(shown, "{error}\n{error:?}\n").unwrap();
        cause = error.source();
    }
    let is_scheme = |char: char| char.is_ascii_alphanumeric() || "+-.".contains(char);
    let is_public = scheme.contains(SECRET) && scheme.chars().all(is_scheme);
    assert!(is_public || !shown.contains(SECRET), "the error shows a password: {shown}");
}

fn open(
    url: &str,
) -> Result<Arc<dyn idempotent_core::Store>, idempotent_actix::store::ConnectError> {
    connect(url).now_or_never().expect("a URL that is refused needs no connection")
}
