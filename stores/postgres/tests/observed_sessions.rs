//! A count of sessions, observed while something else happens.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use sqlx::{Connection as _, PgConnection};
use tokio::time::sleep;

/// For how long a session counts that is ending: a server may take a moment to notice that its
/// client is gone.
const ENDING: Duration = Duration::from_millis(500);

/// Observes a count of sessions.
pub(super) struct ObservedSessions(
    tokio::task::JoinHandle<Infallible>,
    Arc<Mutex<Vec<(Instant, i64)>>>,
);

impl ObservedSessions {
    pub(super) fn observe(url: &str, count: &'static str) -> Self {
        let (url, counts) = (url.to_owned(), Arc::new(Mutex::new(Vec::new())));
        let observed = counts.clone();
        let observing = tokio::spawn(async move {
            let mut connection = PgConnection::connect(&url).await.unwrap();
            loop {
                let now: i64 = sqlx::query_scalar(count).fetch_one(&mut connection).await.unwrap();
                observed.lock().unwrap().push((Instant::now(), now));
                sleep(Duration::from_millis(10)).await;
            }
        });
        Self(observing, counts)
    }

    /// The most sessions at any moment, and the most that there were for longer than [`ENDING`].
    pub(super) fn most(self) -> [i64; 2] {
        self.0.abort();
        let counts = self.1.lock().unwrap();
        let lasting = counts.iter().enumerate().filter_map(|(first, (since, _))| {
            let later = &counts[first..];
            let end = later.iter().position(|(at, _)| *at > *since + ENDING)?;
            later[..=end].iter().map(|(_, sessions)| *sessions).min()
        });
        let most = counts.iter().map(|(_, sessions)| *sessions).max();
        [most.unwrap_or_default(), lasting.max().unwrap_or_default()]
    }
}
