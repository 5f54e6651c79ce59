//! The events of a visit, as a stream of server-sent events that a browser can continue after an
//! interruption.

use std::{
    collections::VecDeque,
    convert::Infallible,
    fmt::Write as _,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use actix_web::web::Bytes;
use futures_util::stream::{Stream, unfold};
use serde_json::Value;
use tokio::{sync::watch, time::timeout};

use crate::ledger::new_id;

/// How many events are kept for streams that continue. A run has fewer.
const MAX_EVENTS: usize = 1_000;
/// How many streams may be open for one visit: each is a tab.
pub(crate) const MAX_STREAMS: usize = 4;
/// How often an idle stream shows that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// The events of a visit. The first one that is kept is the start of the run.
pub(crate) struct Log {
    /// Part of each event id, so that the ids of an earlier process are not continued.
    epoch: String,
    kept: Mutex<Kept>,
    changes: watch::Sender<()>,
    streams: AtomicUsize,
}

#[derive(Default)]
struct Kept {
    events: VecDeque<(u64, String)>,
    last: u64,
    closed: bool,
}

impl Log {
    pub(crate) fn new() -> Self {
        Self {
            epoch: new_id("log"),
            kept: Mutex::default(),
            changes: watch::Sender::new(()),
            streams: AtomicUsize::new(0),
        }
    }

    /// Appends an event.
    pub(crate) fn push(&self, event: &Value) {
        let mut kept = self.kept();
        kept.last += 1;
        let id = kept.last;
        kept.events.push_back((id, event.to_string()));
        if kept.events.len() > MAX_EVENTS {
            kept.events.pop_front();
        }
        drop(kept);
        self.changes.send_replace(());
    }

    /// Forgets the events of the last run.
    pub(crate) fn clear(&self) {
        self.kept().events.clear();
    }

    /// Ends all streams.
    pub(crate) fn close(&self) {
        self.kept().closed = true;
        self.changes.send_replace(());
    }

    /// How many streams are open.
    pub(crate) fn streams(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
    }

    /// The events after the one with the id `last`, and all further ones. An id of another log
    /// counts as none.
    pub(crate) fn stream(
        self: Arc<Self>,
        last: Option<&str>,
    ) -> impl Stream<Item = Result<Bytes, Infallible>> + use<> {
        let last = last.and_then(|id| id.strip_prefix(self.epoch.as_str())?.strip_prefix('-'));
        let last = last.and_then(|id| id.parse().ok()).unwrap_or(0);
        self.streams.fetch_add(1, Ordering::Relaxed);
        let changes = self.changes.subscribe();
        let reader = Reader { log: self, last, changes, greeted: false };
        unfold(reader, async |mut reader| Some((Ok(reader.next().await?), reader)))
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream's place in the log.
struct Reader {
    log: Arc<Log>,
    last: u64,
    changes: watch::Receiver<()>,
    greeted: bool,
}

impl Reader {
    /// Waits for something to send.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            self.changes.mark_unchanged();
            let mut text = String::new();
            if !std::mem::replace(&mut self.greeted, true) {
                // A browser comes back after half a second.
                text.push_str("retry: 500\n\n");
            }
            {
                let kept = self.log.kept();
                if kept.closed {
                    return None;
                }
                for (id, event) in kept.events.iter().filter(|(id, _)| *id > self.last) {
                    let _ = write!(text, "id: {}-{id}\ndata: {event}\n\n", self.log.epoch);
                }
                self.last = kept.last.max(self.last);
            }
            if !text.is_empty() {
                return Some(text.into());
            }
            if timeout(KEEP_ALIVE, self.changes.changed()).await.is_err() {
                return Some(Bytes::from_static(b": keep-alive\n\n"));
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.log.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;
    use serde_json::json;

    use super::*;

    async fn next(stream: &mut (impl Stream<Item = Result<Bytes, Infallible>> + Unpin)) -> String {
        let Ok(bytes) = stream.next().await.unwrap();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    /// The ids and the data of the events in a text.
    fn events(text: &str) -> Vec<(&str, &str)> {
        let events = text.split("\n\n").filter_map(|event| event.strip_prefix("id: "));
        events.filter_map(|event| event.split_once("\ndata: ")).collect()
    }

    #[actix_web::test]
    async fn a_stream_continues_after_the_last_event_that_was_read() {
        let log = Arc::new(Log::new());
        log.push(&json!(1));
        log.push(&json!(2));
        let mut stream = Box::pin(log.clone().stream(None));
        let first = next(&mut stream).await;
        let first = events(&first);
        assert_eq!(first.iter().map(|(_, data)| *data).collect::<Vec<_>>(), ["1", "2"]);
        drop(stream);
        assert_eq!(log.streams(), 0);
        log.push(&json!(3));
        let mut stream = Box::pin(log.clone().stream(Some(first[0].0)));
        let rest = next(&mut stream).await;
        assert_eq!(events(&rest).iter().map(|(_, data)| *data).collect::<Vec<_>>(), ["2", "3"]);
        log.push(&json!(4));
        assert_eq!(events(&next(&mut stream).await)[0].1, "4");
    }

    #[actix_web::test]
    async fn an_id_of_another_log_counts_as_none() {
        let log = Arc::new(Log::new());
        log.push(&json!("run"));
        let mut stream = Box::pin(log.clone().stream(Some("log_0-7")));
        assert_eq!(events(&next(&mut stream).await)[0].1, "\"run\"");
    }

    #[actix_web::test]
    async fn closing_ends_the_streams_and_old_events_are_dropped() {
        let log = Arc::new(Log::new());
        for number in 0..MAX_EVENTS + 5 {
            log.push(&json!(number));
        }
        let mut stream = Box::pin(log.clone().stream(None));
        assert_eq!(events(&next(&mut stream).await)[0].1, "5");
        log.close();
        assert!(stream.next().await.is_none());
    }
}
