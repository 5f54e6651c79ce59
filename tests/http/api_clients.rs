//! `idempotent-client`: against a server that follows a script, and against guarded handlers.

mod errors;
mod guarded;
mod in_front;
mod labels;
mod pending;
mod redirects;
mod retries;
mod scripted;
mod stores;
mod table;

use std::time::Duration;

use idempotent_client::{ClientIdempotency, Error, redirect_policy};
use reqwest::{Response, Url, redirect::Policy};
use reqwest_middleware::ClientWithMiddleware;
use tokio::net::TcpSocket;

/// Short pauses, and a deadline that no test reaches by itself.
fn idempotency() -> ClientIdempotency {
    ClientIdempotency::new().pauses(Duration::from_millis(1), Duration::from_millis(20))
}

fn client(idempotency: &ClientIdempotency) -> ClientWithMiddleware {
    idempotency.client(builder()).unwrap()
}

/// For clients without connections that are kept open: a script has one connection per request.
fn builder() -> reqwest::ClientBuilder {
    reqwest::Client::builder().pool_max_idle_per_host(0).no_proxy()
}

/// For clients with further middleware.
fn http() -> reqwest::Client {
    builder().redirect(redirect_policy(Policy::default())).build().unwrap()
}

/// A URL at which nothing listens. No other test gets its port as long as the socket lives.
fn closed() -> (TcpSocket, Url) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}/orders", socket.local_addr().unwrap()).parse().unwrap();
    (socket, url)
}

/// Runs a future to its end, on a runtime with timers and sockets.
fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// The status and the body of a response.
async fn received(response: Result<Response, Error>) -> (u16, String) {
    let response = response.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}
