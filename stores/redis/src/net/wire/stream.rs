//! The bytes of a connection.

use std::{
    io, mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::future::select_ok;
use redis::io::tcp::{TcpSettings, socket2::SockRef};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, lookup_host},
};

use super::traffic::Traffic;
use crate::error::CallFailure;

/// A stream that records its [`Traffic`].
pub(crate) struct WatchedStream {
    stream: TcpStream,
    traffic: Arc<Traffic>,
    /// Whether the last write had to wait.
    blocked: bool,
}

impl WatchedStream {
    /// Connects to the first address of a host that responds.
    pub(crate) async fn connect(
        host: &str,
        port: u16,
        settings: &TcpSettings,
        traffic: &Arc<Traffic>,
    ) -> Result<Self, CallFailure> {
        let connected = async {
            let addresses = lookup_host((host, port)).await?;
            let streams: Vec<_> =
                addresses.map(|address| Box::pin(TcpStream::connect(address))).collect();
            if streams.is_empty() {
                return Err(io::Error::from(io::ErrorKind::NotFound));
            }
            let (stream, _) = select_ok(streams).await?;
            apply(settings, &stream)?;
            Ok(stream)
        };
        match connected.await {
            Ok(stream) => Ok(Self { stream, traffic: traffic.clone(), blocked: false }),
            Err(error) => Err(CallFailure::from_connect(error.into())),
        }
    }
}

fn apply(settings: &TcpSettings, stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(settings.nodelay())?;
    let socket = SockRef::from(stream);
    if let Some(keepalive) = settings.keepalive() {
        socket.set_tcp_keepalive(keepalive)?;
    }
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(settings.user_timeout())?;
    Ok(())
}

impl AsyncRead for WatchedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.traffic.mark_progress();
        }
        read
    }
}

impl AsyncWrite for WatchedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        match written {
            Poll::Pending => self.blocked = true,
            Poll::Ready(Ok(bytes)) => {
                self.traffic.mark_written(bytes);
                // The kernel accepts some bytes even if the peer does not. That it accepts more
                // after it had not is due to the peer.
                if mem::take(&mut self.blocked) {
                    self.traffic.mark_progress();
                }
            }
            Poll::Ready(Err(_)) => {}
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
