//! All log events of this process.

use std::{
    io::Write,
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
};

use tracing::subscriber::NoSubscriber;
use tracing_subscriber::{filter::LevelFilter, fmt::MakeWriter};

static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

static ONCE: OnceLock<()> = OnceLock::new();

/// Captures all events of this process, of every level, from now on. All tests of a binary share
/// one log.
///
/// [`Server`](crate::Server) calls this before anything can log: an event that occurs for the first
/// time while the subscriber is being set can stay disabled, because `tracing` caches that there
/// was no subscriber.
pub fn capture() {
    ONCE.get_or_init(|| {
        let subscriber =
            tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE).with_ansi(false);
        tracing::subscriber::set_global_default(subscriber.with_writer(Log).finish()).unwrap();
    });
}

/// Discards all events of this process from now on, for a test that measures memory.
pub fn discard() {
    ONCE.get_or_init(|| tracing::subscriber::set_global_default(NoSubscriber::default()).unwrap());
}

/// The events since [`capture`].
#[must_use]
pub fn captured() -> String {
    String::from_utf8_lossy(&lock()).into_owned()
}

fn lock() -> MutexGuard<'static, Vec<u8>> {
    LOG.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Log;

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        Self
    }
}
