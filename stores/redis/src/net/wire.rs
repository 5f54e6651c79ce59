//! A connection to a server, and when bytes arrived on it.

use std::{sync::Arc, time::Duration};

use redis::{
    AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, ErrorKind, PushInfo,
    RedisConnectionInfo, RedisError, aio::MultiplexedConnection,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc::UnboundedSender,
    task::AbortHandle,
    time::timeout,
};

use self::{stream::WatchedStream, traffic::Traffic};
use crate::error::CallFailure;

mod stream;
#[cfg(feature = "tls")]
mod tls;
mod traffic;

/// How many commands can be queued on a connection before a caller waits.
const PIPELINE_BUFFER: usize = 1024;

/// A connection that the runtime drives on which it was opened. It is closed when this is dropped.
pub(crate) struct Wire {
    pub(crate) commands: MultiplexedConnection,
    pub(crate) traffic: Arc<Traffic>,
    driver: AbortHandle,
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
