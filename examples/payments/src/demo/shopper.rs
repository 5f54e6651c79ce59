//! The shopper's HTTP client, and the network between the shopper and the worker. It sends a
//! request over a new connection and reports every byte, which a browser would not do.

use std::{net::SocketAddr, time::Duration};

use actix_web::rt::net::TcpStream;
use futures_util::future::{Either, select};
use serde::Serialize;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::oneshot,
    time::timeout,
};

use crate::demo::Side;

/// The longest response that is read.
const MAX_RESPONSE: u64 = 64 * 1024;
/// How long a shopper waits who does not give up earlier.
const PATIENCE: Duration = Duration::from_secs(90);

/// A request to a checkout.
pub(crate) struct CheckoutRequest<'a> {
    pub(crate) side: Side,
    pub(crate) user: &'a str,
    pub(crate) key: &'a str,
    pub(crate) amount: u32,
}

impl CheckoutRequest<'_> {
    /// The bytes of the request.
    pub(crate) fn to_text(&self, host: Option<SocketAddr>) -> String {
        let Self { side, user, key, amount } = self;
        let body = format!(r#"{{"amount":{amount}}}"#);
        let host = host.map_or_else(|| "127.0.0.1".to_owned(), |host| host.to_string());
        format!(
            "POST /{side}{path} HTTP/1.1\r\n\
             Host: {host}\r\n\
             Authorization: Bearer sk_test_{user}\r\n\
             Idempotency-Key: {key}\r\n\
             Content-Type: application/json\r\n\
             Content-Length: {length}\r\n\
             Connection: close\r\n\r\n{body}",
            path = super::checkout::PATH,
            length = body.len(),
        )
    }
}

/// What a shopper sees.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub(crate) enum Seen {
    /// A response.
    Response { status: u16, text: String },
    /// The server has responded, and the connection broke before the response arrived.
    Lost,
    /// The server closed the connection without a response.
    Closed,
    /// Nothing listens at the server's address.
    Refused,
    /// The shopper closed the connection before there was a response.
    GaveUp,
}

/// Sends a request and waits for its outcome. If `loses_response` is set, the connection breaks
/// when the response is on its way.
pub(crate) async fn send(
    to: Option<SocketAddr>,
    request: &str,
    loses_response: bool,
    gives_up: oneshot::Receiver<()>,
) -> Seen {
    let Some(to) = to else { return Seen::Refused };
    let exchange = timeout(PATIENCE, exchange(to, request, loses_response));
    match select(Box::pin(exchange), gives_up).await {
        Either::Left((seen, _)) => seen.unwrap_or(Seen::GaveUp),
        Either::Right(_) => Seen::GaveUp,
    }
}

async fn exchange(to: SocketAddr, request: &str, loses_response: bool) -> Seen {
    let Ok(mut connection) = TcpStream::connect(to).await else { return Seen::Refused };
    if connection.write_all(request.as_bytes()).await.is_err() {
        return Seen::Closed;
    }
    let mut bytes = Vec::new();
    if loses_response {
        // Its first byte shows that the server has done its work and has sent the response.
        return match connection.read_u8().await {
            Ok(_) => Seen::Lost,
            Err(_) => Seen::Closed,
        };
    }
    let _ = connection.take(MAX_RESPONSE).read_to_end(&mut bytes).await;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    match status(&text) {
        Some(status) => Seen::Response { status, text },
        None => Seen::Closed,
    }
}

/// The status of a response whose head has arrived.
fn status(text: &str) -> Option<u16> {
    let (head, _) = text.split_once("\r\n\r\n")?;
    head.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::{io::Write, net::TcpListener, thread};

    use super::*;

    /// A server that writes this and closes the connection, after it has read something.
    fn server(response: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut connection, _) = listener.accept().unwrap();
            std::io::Read::read(&mut connection, &mut [0; 512]).unwrap();
            connection.write_all(response.as_bytes()).unwrap();
        });
        address
    }

    async fn see(to: Option<SocketAddr>, loses_response: bool) -> Seen {
        let (_patient, gives_up) = oneshot::channel();
        send(to, "GET", loses_response, gives_up).await
    }

    #[actix_web::test]
    async fn a_shopper_sees_the_response_or_why_there_is_none() {
        let created = "HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\n{}";
        let seen = see(Some(server(created)), false).await;
        assert_eq!(seen, Seen::Response { status: 201, text: created.to_owned() });
        assert_eq!(see(Some(server(created)), true).await, Seen::Lost);
        assert_eq!(see(Some(server("")), true).await, Seen::Closed);
        assert_eq!(see(Some(server("")), false).await, Seen::Closed);
        assert_eq!(see(None, false).await, Seen::Refused);
    }

    #[actix_web::test]
    async fn an_impatient_shopper_gives_up() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let (give_up, gives_up) = oneshot::channel();
        give_up.send(()).unwrap();
        let seen = send(Some(silent.local_addr().unwrap()), "GET", false, gives_up).await;
        assert_eq!(seen, Seen::GaveUp);
    }
}
