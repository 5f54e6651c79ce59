//! Middleware that modifies the body before the guard reads it, over HTTP/1.1 and HTTP/2.
//!
//! A guard that fingerprints only the remaining body gives two requests the same fingerprint, and
//! replays the first one's response to the second.

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

fn all_of_it(_: &HttpRequest, body: &[u8]) -> Vec<u8> {
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
    custom "/custom" "all_of_it";
    ignored "/none" "none";
}

/// Modifies the body as the header `x-middleware` directs.
async fn meddle(
    mut request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let way = request
        .headers()
        .get("x-middleware")
        .and_then(|way| way.to_str().ok())
        .unwrap_or_default()
        .to_owned();
    match &*way {
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
            if way.ends_with("length") {
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
                    .wrap(from_fn(meddle))
            };
            let server = HttpServer::new(app).workers(1).disable_signals();
            let server = server.bind_auto_h2c(("127.0.0.1", 0)).unwrap();
            started.send(*server.addrs().first().unwrap()).unwrap();
            server.run().await.unwrap();
        });
    });
    up.recv().unwrap()
}

/// The protocol and connection that a request is sent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wire {
    Http1,
    Chunked,
    Http2,
    Http2WithLength,
}

const WIRES: [Wire; 4] = [Wire::Http1, Wire::Chunked, Wire::Http2, Wire::Http2WithLength];

impl Wire {
    fn says_its_length(self) -> bool {
        matches!(self, Self::Http1 | Self::Http2WithLength)
    }

    /// Sends a request; returns the status, whether the response is a replay, and the body.
    fn send(
        self,
        to: std::net::SocketAddr,
        path: &str,
        key: &str,
        way: &str,
        body: &str,
    ) -> (u16, bool, String) {
        self.send_as(None, to, path, key, way, body)
    }

    /// The same with a `Content-Type`.
    fn send_typed(
        self,
        to: std::net::SocketAddr,
        path: &str,
        key: &str,
        way: &str,
        body: &str,
    ) -> (u16, bool, String) {
        self.send_as(Some("text/plain"), to, path, key, way, body)
    }

    fn send_as(
        self,
        kind: Option<&str>,
        to: std::net::SocketAddr,
        path: &str,
        key: &str,
        way: &str,
        body: &str,
    ) -> (u16, bool, String) {
        let request = Request::post(path).key(key).header("x-middleware", way);
        let request =
            if let Some(kind) = kind { request.header("content-type", kind) } else { request };
        let request = match self {
            Self::Http1 => request.body(body),
            Self::Chunked => request.chunks((!body.is_empty()).then_some(body)),
            Self::Http2 | Self::Http2WithLength => {
                return self.send_http2(kind, to, path, key, way, body);
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
        way: &str,
        body: &str,
    ) -> (u16, bool, String) {
        let request = http::Request::post(format!("http://{to}{path}"));
        let request = request.header("idempotency-key", key).header("x-middleware", way);
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
fn a_body_that_middleware_has_taken_is_not_taken_for_an_empty_one_on_any_wire() {
    for wire in WIRES {
        let probe = Probe::new();
        let address = serve(&probe);
        for path in ["/body", "/json", "/custom"] {
            for way in ["take", "extract"] {
                for body in ["pay 1 to bob", "pay 999 to eve"] {
                    let response = wire.send(address, path, way, way, body);
                    assert_misconfigured(response, &format!("{wire:?} {path} {way}"));
                }
            }
        }
        assert_eq!(probe.runs(), 0, "{wire:?}");
        assert_eq!(
            wire.send(address, "/none", "k", "take", "pay 1 to bob").0,
            201,
            "the body does not count"
        );
    }
}

#[test]
fn a_body_that_middleware_has_read_in_place_is_not_taken_for_what_is_left() {
    // Larger than one read of the server, where part of it is read; a server that reads none of it
    // resets the stream.
    let body = |way: &str, end: &str| {
        let repeated = if way.starts_with("read") { 20_000 } else { 1 };
        format!("{}{end}", "0123456789".repeat(repeated))
    };
    for wire in WIRES.into_iter().filter(|wire| wire.says_its_length()) {
        let probe = Probe::new();
        let address = serve(&probe);
        for (key, path) in ["/body", "/json", "/custom"].into_iter().enumerate() {
            for way in ["read in place", "read one chunk in place", "put an ended stream back"] {
                for body in [body(way, "1"), body(way, "2")] {
                    let response = wire.send(address, path, &format!("k{key}"), way, &body);
                    assert_misconfigured(response, &format!("{wire:?} {path} {way}"));
                }
            }
        }
        assert_eq!(probe.runs(), 0, "{wire:?}");
    }
}

#[test]
fn a_body_that_middleware_puts_back_or_replaces_is_the_body() {
    for wire in WIRES {
        let probe = Probe::new();
        let address = serve(&probe);
        let ways = [
            "",
            "read and put back",
            "replace by a longer body",
            "replace by a shorter body and correct its length",
            "replace by a shorter body and remove its length",
        ];
        for (run, way) in ways.into_iter().enumerate() {
            let send = |body: &str| wire.send(address, "/body", &format!("k{run}"), way, body);
            let first = send("pay 1 to bob");
            assert_eq!((first.0, first.1), (201, false), "{wire:?} {way}: {}", first.2);
            assert_eq!(send("pay 1 to bob"), (201, true, first.2), "{wire:?} {way}");
            assert_eq!(send("pay 999 to eve").0, 422, "{wire:?} {way}");
            assert_eq!(probe.runs(), run + 1);
        }
    }
}

#[test]
fn a_shorter_body_under_the_old_content_length_is_taken_for_a_cut_one() {
    for wire in WIRES {
        let probe = Probe::new();
        let address = serve(&probe);
        let response =
            wire.send(address, "/body", "k", "replace by a shorter body", "pay 1 to bob");
        if wire.says_its_length() {
            assert_misconfigured(response, &format!("{wire:?}"));
        } else {
            assert_eq!(response.0, 201, "{wire:?}: {}", response.2);
        }
        assert_eq!(probe.runs(), usize::from(!wire.says_its_length()));
    }
}

#[test]
fn a_request_without_a_body_runs_on_any_wire() {
    for wire in WIRES {
        let probe = Probe::new();
        let address = serve(&probe);
        let send = |body: &str| wire.send(address, "/body", "k", "", body);
        let first = send("");
        assert_eq!((first.0, first.1), (201, false), "{wire:?}: {}", first.2);
        assert_eq!(send(""), (201, true, first.2), "{wire:?}");
        assert_eq!(send("pay 999 to eve").0, 422, "{wire:?}");
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
fn a_body_that_is_sent_on_demand_is_the_body_too() {
    let probe = Probe::new();
    let address = serve(&probe);
    let send = |way: &str, body: &str| {
        let request = Request::post("/body")
            .key("k")
            .header("x-middleware", way)
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
    for way in ["take", "extract", "read in place"] {
        assert_eq!(send(way, "pay 1 to bob"), ("500".to_owned(), false), "{way}");
    }
    assert_eq!(send("", "pay 1 to bob"), ("201".to_owned(), false));
    assert_eq!(send("", "pay 1 to bob"), ("201".to_owned(), true));
    assert_eq!(send("", "pay 2 to bob"), ("422".to_owned(), false));
    assert_eq!(probe.runs(), 1);
}

#[test]
fn a_typed_body_that_middleware_has_read_in_place_is_not_taken_for_an_empty_one_on_any_wire() {
    for wire in WIRES {
        let probe = Probe::new();
        let address = serve(&probe);
        for path in ["/body", "/json", "/custom"] {
            for way in ["read in place", "put an ended stream back"] {
                for body in ["pay 1 to bob", "pay 999 to eve"] {
                    let response = wire.send_typed(address, path, "k", way, body);
                    assert_misconfigured(response, &format!("{wire:?} {path} {way}"));
                }
            }
        }
        assert_eq!(probe.runs(), 0, "{wire:?}");
        assert_eq!(
            wire.send_typed(address, "/none", "k", "read in place", "pay 1 to bob").0,
            201,
            "the body does not count"
        );
        assert_eq!(wire.send_typed(address, "/body", "k", "", "pay 1 to bob").0, 201);
    }
}
