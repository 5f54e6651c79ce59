//! Middleware that modifies the body before the guard reads it, over HTTP/1.1 and HTTP/2.
//!
//! A guard that fingerprinted only the rest of the body would give different requests the same
//! fingerprint, and replay the response to the first one.

use actix_web::{
    App, Error, HttpMessage, HttpRequest, HttpResponse, HttpServer,
    body::MessageBody,
    dev::{Payload, ServiceRequest, ServiceResponse},
    http::header::CONTENT_LENGTH,
    middleware::{Next, from_fn},
    post,
    rt::System,
    web::{Bytes, Data},
};
use futures_util::{StreamExt, stream};
use idempotent_actix::{Idempotency, idempotent, scope, store::MemoryStore};
use test_support::{Pending, Probe, Request, WAIT_LIMIT};
use tokio::net::TcpStream;

fn whole_body(_: &HttpRequest, body: &[u8]) -> Vec<u8> {
    body.to_vec()
}

macro_rules! handlers {
    ($($name:ident $path:literal $fingerprint:literal;)*) => { $(
        #[idempotent(scope = "scope::global", fingerprint = $fingerprint)]
        #[post($path)]
        async fn $name(probe: Data<Probe>) -> HttpResponse {
            probe.run().await
        }
    )* };
}

handlers! {
    bytes "/body" "body";
    json "/json" "json";
    custom "/custom" "whole_body";
    ignored "/none" "none";
}

/// Modifies the body as the header `x-middleware` directs.
async fn modify_body(
    mut request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let action = request
        .headers()
        .get("x-middleware")
        .and_then(|action| action.to_str().ok())
        .unwrap_or_default()
        .to_owned();
    match &*action {
        "take" => drop(request.take_payload()),
        "extract" => drop(request.extract::<Bytes>().await?),
        "read in place" => while request.parts_mut().1.next().await.is_some() {},
        "read one chunk in place" => drop(request.parts_mut().1.next().await),
        "read and put back" => {
            let body = request.extract::<Bytes>().await?;
            request.set_payload(Payload::from(body));
        }
        "put an ended stream back" => {
            request.set_payload(Payload::Stream { payload: Box::pin(stream::empty()) });
        }
        "replace by a shorter body" | "replace by a shorter body and correct its length" => {
            let body = request.extract::<Bytes>().await?;
            let body = body.slice(..body.len() - 1);
            if action.ends_with("length") {
                request.headers_mut().insert(CONTENT_LENGTH, body.len().into());
            }
            request.set_payload(Payload::from(body));
        }
        "replace by a shorter body and remove its length" => {
            let body = request.extract::<Bytes>().await?;
            request.headers_mut().remove(CONTENT_LENGTH);
            request.set_payload(Payload::from(body.slice(..body.len() - 1)));
        }
        "replace by a longer body" => {
            let body = request.extract::<Bytes>().await?;
            request.set_payload(Payload::from([&body[..], b" and more"].concat()));
        }
        _ => {}
    }
    next.call(request).await
}

fn serve(probe: &Probe) -> std::net::SocketAddr {
    let (started, up) = std::sync::mpsc::channel();
    let (idempotency, probe) = (Idempotency::new(MemoryStore::new()), Data::new(probe.clone()));
    std::thread::spawn(move || {
        System::new().block_on(async move {
            let app = move || {
                let app = App::new().app_data(idempotency.clone()).app_data(probe.clone());
                app.service(bytes)
                    .service(json)
                    .service(custom)
                    .service(ignored)
                    .wrap(from_fn(modify_body))
            };
            let server = HttpServer::new(app).workers(1).disable_signals();
            let server = server.bind_auto_h2c(("127.0.0.1", 0)).unwrap();
            started.send(*server.addrs().first().unwrap()).unwrap();
            server.run().await.unwrap();
        });
    });
    up.recv().unwrap()
}

/// How a request is sent: the protocol, and whether the body's length is declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Http1,
    Chunked,
    Http2,
    Http2WithLength,
}

const TRANSPORTS: [Transport; 4] =
    [Transport::Http1, Transport::Chunked, Transport::Http2, Transport::Http2WithLength];

impl Transport {
    fn declares_length(self) -> bool {
        matches!(self, Self::Http1 | Self::Http2WithLength)
    }

    /// Sends a request; returns the status, whether the response is a replay, and the body.
    fn send(
        self,
        to: std::net::SocketAddr,
        path: &str,
        key: &str,
        action: &str,
        body: &str,
    ) -> (u16, bool, String) {
        self.send_as(None, to, path, key, action, body)
    }

    /// Sends a request with a `Content-Type`.
    fn send_with_content_type(
        self,
        to: std::net::SocketAddr,
        path: &str,
        key: &str,
        action: &str,
        body: &str,
    ) -> (u16, bool, String) {
        self.send_as(Some("text/plain"), to, path, key, action, body)
    }

    fn send_as(
        self,
        kind: Option<&str>,
        to: std::net::SocketAddr,
        path: &str,
        key: &str,
        action: &str,
        body: &str,
    ) -> (u16, bool, String) {
        let request = Request::post(path).key(key).header("x-middleware", action);
        let request =
            if let Some(kind) = kind { request.header("content-type", kind) } else { request };
        let request = match self {
            Self::Http1 => request.body(body),
            Self::Chunked => request.chunks((!body.is_empty()).then_some(body)),
            Self::Http2 | Self::Http2WithLength => {
                return self.send_http2(kind, to, path, key, action, body);
            }
        };
        let response = Pending::send(to, &request.bytes()).response();
        (response.status, response.is_replay(), response.text().to_owned())
    }

    fn send_http2(
        self,
        kind: Option<&str>,
        to: std::net::SocketAddr,
        path: &str,
        key: &str,
        action: &str,
        body: &str,
    ) -> (u16, bool, String) {
        let request = http::Request::post(format!("http://{to}{path}"));
        let request = request.header("idempotency-key", key).header("x-middleware", action);
        let request =
            if let Some(kind) = kind { request.header("content-type", kind) } else { request };
        let request = match self {
            Self::Http2WithLength => request.header("content-length", body.len()),
            Self::Http1 | Self::Chunked | Self::Http2 => request,
        };
        let (request, body) = (request.body(()).unwrap(), Bytes::copy_from_slice(body.as_bytes()));
        let exchange = async move {
            let (client, connection) =
                h2::client::handshake(TcpStream::connect(to).await.unwrap()).await.unwrap();
            tokio::spawn(async move { drop(connection.await) });
            let (response, mut stream) =
                client.ready().await.unwrap().send_request(request, body.is_empty()).unwrap();
            if !body.is_empty() {
                stream.send_data(body, true).unwrap();
            }
            let response = response.await.unwrap();
            let (status, replayed) =
                (response.status(), response.headers().contains_key("idempotency-replayed"));
            let (mut text, mut body) = (Vec::new(), response.into_body());
            while let Some(chunk) = body.data().await {
                text.extend_from_slice(&chunk.unwrap());
            }
            (status.as_u16(), replayed, String::from_utf8(text).unwrap())
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime
            .block_on(async { tokio::time::timeout(WAIT_LIMIT, exchange).await })
            .expect("a response in time")
    }
}

fn assert_misconfigured((status, replayed, text): (u16, bool, String), case: &str) {
    let problem: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    assert_eq!(
        (status, replayed, &problem["code"]),
        (500, false, &"misconfigured".into()),
        "{case}: {text}"
    );
}

#[test]
fn over_any_transport_a_body_that_middleware_has_taken_is_not_treated_as_empty() {
    for transport in TRANSPORTS {
        let probe = Probe::new();
        let address = serve(&probe);
        for path in ["/body", "/json", "/custom"] {
            for action in ["take", "extract"] {
                for body in ["pay 1 to bob", "pay 999 to eve"] {
                    let response = transport.send(address, path, action, action, body);
                    assert_misconfigured(response, &format!("{transport:?} {path} {action}"));
                }
            }
        }
        assert_eq!(probe.runs(), 0, "{transport:?}");
        assert_eq!(
            transport.send(address, "/none", "k", "take", "pay 1 to bob").0,
            201,
            "the body is not part of this fingerprint"
        );
    }
}

#[test]
fn a_body_that_middleware_has_read_in_place_is_not_replaced_by_what_is_left() {
    // A body that is read in part must be larger than one read of the server. One that is not read
    // at all must be small, because the server would reset the stream.
    let body = |action: &str, end: &str| {
        let repeated = if action.starts_with("read") { 20_000 } else { 1 };
        format!("{}{end}", "0123456789".repeat(repeated))
    };
    for transport in TRANSPORTS.into_iter().filter(|transport| transport.declares_length()) {
        let probe = Probe::new();
        let address = serve(&probe);
        for (key, path) in ["/body", "/json", "/custom"].into_iter().enumerate() {
            for action in ["read in place", "read one chunk in place", "put an ended stream back"] {
                for body in [body(action, "1"), body(action, "2")] {
                    let response = transport.send(address, path, &format!("k{key}"), action, &body);
                    assert_misconfigured(response, &format!("{transport:?} {path} {action}"));
                }
            }
        }
        assert_eq!(probe.runs(), 0, "{transport:?}");
    }
}

#[test]
fn a_body_that_middleware_puts_back_or_replaces_is_the_body_that_counts() {
    for transport in TRANSPORTS {
        let probe = Probe::new();
        let address = serve(&probe);
        let actions = [
            "",
            "read and put back",
            "replace by a longer body",
            "replace by a shorter body and correct its length",
            "replace by a shorter body and remove its length",
        ];
        for (run, action) in actions.into_iter().enumerate() {
            let send =
                |body: &str| transport.send(address, "/body", &format!("k{run}"), action, body);
            let first = send("pay 1 to bob");
            assert_eq!((first.0, first.1), (201, false), "{transport:?} {action}: {}", first.2);
            assert_eq!(send("pay 1 to bob"), (201, true, first.2), "{transport:?} {action}");
            assert_eq!(send("pay 999 to eve").0, 422, "{transport:?} {action}");
            assert_eq!(probe.runs(), run + 1);
        }
    }
}

#[test]
fn a_shorter_body_with_the_old_content_length_is_treated_as_truncated() {
    for transport in TRANSPORTS {
        let probe = Probe::new();
        let address = serve(&probe);
        let response =
            transport.send(address, "/body", "k", "replace by a shorter body", "pay 1 to bob");
        if transport.declares_length() {
            assert_misconfigured(response, &format!("{transport:?}"));
        } else {
            assert_eq!(response.0, 201, "{transport:?}: {}", response.2);
        }
        assert_eq!(probe.runs(), usize::from(!transport.declares_length()));
    }
}

#[test]
fn a_request_without_a_body_runs_over_any_transport() {
    for transport in TRANSPORTS {
        let probe = Probe::new();
        let address = serve(&probe);
        let send = |body: &str| transport.send(address, "/body", "k", "", body);
        let first = send("");
        assert_eq!((first.0, first.1), (201, false), "{transport:?}: {}", first.2);
        assert_eq!(send(""), (201, true, first.2), "{transport:?}");
        assert_eq!(send("pay 999 to eve").0, 422, "{transport:?}");
    }
}

/// Reads up to the end of a response head.
fn read_head(stream: &mut std::net::TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        std::io::Read::read_exact(stream, &mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

#[test]
fn a_body_that_is_sent_after_100_continue_counts() {
    let probe = Probe::new();
    let address = serve(&probe);
    let send = |action: &str, body: &str| {
        let request = Request::post("/body")
            .key("k")
            .header("x-middleware", action)
            .header("Expect", "100-continue");
        let head = request.header("Content-Length", body.len().to_string()).without_length();
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
        std::io::Write::write_all(&mut stream, &head.bytes()).unwrap();
        assert!(read_head(&mut stream).starts_with("HTTP/1.1 100 "));
        std::io::Write::write_all(&mut stream, body.as_bytes()).unwrap();
        let head = read_head(&mut stream);
        (head[9..12].to_owned(), head.contains("idempotency-replayed"))
    };
    for action in ["take", "extract", "read in place"] {
        assert_eq!(send(action, "pay 1 to bob"), ("500".to_owned(), false), "{action}");
    }
    assert_eq!(send("", "pay 1 to bob"), ("201".to_owned(), false));
    assert_eq!(send("", "pay 1 to bob"), ("201".to_owned(), true));
    assert_eq!(send("", "pay 2 to bob"), ("422".to_owned(), false));
    assert_eq!(probe.runs(), 1);
}

#[test]
fn over_any_transport_a_body_with_a_content_type_that_middleware_has_read_is_not_treated_as_empty()
{
    for transport in TRANSPORTS {
        let probe = Probe::new();
        let address = serve(&probe);
        for path in ["/body", "/json", "/custom"] {
            let action = "put an ended stream back";
            for body in ["pay 1 to bob", "pay 999 to eve"] {
                let response = transport.send_with_content_type(address, path, "k", action, body);
                assert_misconfigured(response, &format!("{transport:?} {path} {action}"));
            }
        }
        assert_eq!(probe.runs(), 0, "{transport:?}");
        assert_eq!(
            transport
                .send_with_content_type(address, "/none", "k", "read in place", "pay 1 to bob")
                .0,
            201,
            "the body is not part of this fingerprint"
        );
        assert_eq!(
            transport.send_with_content_type(address, "/body", "k", "", "pay 1 to bob").0,
            201
        );
    }
}
