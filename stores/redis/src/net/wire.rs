//! A connection to a server, and when bytes arrived on it.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::{
    AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, ErrorKind, PushInfo,
    RedisConnectionInfo, RedisError, aio::MultiplexedConnection,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc::UnboundedSender,
    task::AbortHandle,
    time::{Instant, timeout, timeout_at},
};

use self::stream::WatchedStream;
use crate::error::CallFailure;

mod stream;
#[cfg(feature = "tls")]
mod tls;

/// How many commands can be queued on a connection before a caller waits.
const PIPELINE_BUFFER: usize = 1024;

/// A connection that the runtime drives on which it was opened. It is closed when this is dropped.
pub(crate) struct Wire {
    pub(crate) commands: MultiplexedConnection,
    pub(crate) traffic: Arc<Traffic>,
    driver: AbortHandle,
}

/// What a connection has carried.
pub(crate) struct Traffic {
    opened: Instant,
    /// When bytes last arrived, or left after the peer had not accepted any: in nanoseconds after
    /// `opened`.
    progress: AtomicU64,
    /// How many bytes have been written.
    written: AtomicU64,
}

impl Wire {
    /// Opens a connection. Responses have no time limit here; callers set their own.
    pub(crate) async fn open(
        info: &ConnectionInfo,
        published: Option<UnboundedSender<PushInfo>>,
        within: Duration,
    ) -> Result<Self, CallFailure> {
        let opened = timeout(within, open(info, published));
        opened.await.unwrap_or(Err(CallFailure::ConnectTimeout))
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Traffic {
    fn new() -> Arc<Self> {
        let (progress, written) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { opened: Instant::now(), progress, written })
    }

    fn mark_progress(&self) {
        let nanos = u64::try_from(self.opened.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.progress.store(nanos, Ordering::Relaxed);
    }

    fn mark_written(&self, bytes: usize) {
        self.written.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Release);
    }

    /// When bytes last arrived, or left after the peer had not accepted any.
    pub(crate) fn last_progress(&self) -> Instant {
        self.opened + Duration::from_nanos(self.progress.load(Ordering::Relaxed))
    }

    /// How many bytes have been written.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Waits for a response, which may take longer than `limit` while bytes arrive.
    pub(crate) async fn wait_for<T>(
        &self,
        response: impl Future<Output = Result<T, CallFailure>>,
        limit: Duration,
    ) -> Result<T, CallFailure> {
        let mut response = pin!(response);
        let mut end = Instant::now() + limit;
        loop {
            if let Ok(response) = timeout_at(end, response.as_mut()).await {
                return response;
            }
            let extended = self.last_progress() + limit;
            if extended <= Instant::now() {
                return Err(CallFailure::ConnectTimeout);
            }
            end = extended;
        }
    }
}

async fn open(
    info: &ConnectionInfo,
    published: Option<UnboundedSender<PushInfo>>,
) -> Result<Wire, CallFailure> {
    let traffic = Traffic::new();
    let redis = info.redis_settings();
    if let ConnectionAddr::Tcp(host, port) = info.addr() {
        let stream = WatchedStream::connect(host, *port, info.tcp_settings(), &traffic).await?;
        return multiplex(redis, stream, traffic, published).await;
    }
    #[cfg(feature = "tls")]
    if let ConnectionAddr::TcpTls { host, port, insecure: false, .. } = info.addr() {
        let stream = WatchedStream::connect(host, *port, info.tcp_settings(), &traffic).await?;
        let stream = tls::encrypt(host, stream).await?;
        return multiplex(redis, stream, traffic, published).await;
    }
    let why = "the URL asks for a kind of connection that the store does not open";
    Err(RedisError::from((ErrorKind::InvalidClientConfig, why)).into())
}

/// Starts the task that drives a connection.
async fn multiplex<S>(
    info: &RedisConnectionInfo,
    stream: S,
    traffic: Arc<Traffic>,
    published: Option<UnboundedSender<PushInfo>>,
) -> Result<Wire, CallFailure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let config = AsyncConnectionConfig::new()
        .set_response_timeout(None)
        .set_pipeline_buffer_size(PIPELINE_BUFFER);
    let config = match published {
        Some(published) => config.set_push_sender(published),
        None => config,
    };
    let opened = MultiplexedConnection::new_with_config(info, stream, config).await;
    let (commands, driver) = opened.map_err(CallFailure::from_connect)?;
    let driver = tokio::spawn(driver).abort_handle();
    Ok(Wire { commands, traffic, driver })
}
