//! Which header lines of a response are recorded and replayed.

use std::{cell::RefCell, collections::BTreeMap, mem::ManuallyDrop, rc::Rc};

use actix_web::{
    App, HttpResponse,
    body::to_bytes,
    dev::{Service as _, ServiceResponse},
    http::{
        StatusCode,
        header::{self, HeaderMap, HeaderName, HeaderValue},
    },
    post, rt, test,
    web::Bytes,
};
use futures_util::{FutureExt as _, future::LocalBoxFuture};
use idempotent_actix::{Idempotency, idempotent, recording, scope};
use idempotent_core::store::memory::MemoryStore;
use idempotent_http::recording::Recording;

const STATUSES: [u16; 8] = [200, 201, 204, 302, 404, 409, 422, 500];

/// The headers that the documentation excludes, and the beginnings of their names.
const EXCLUDED: [&str; 24] = [
    "alt-svc",
    "authentication-info",
    "clear-site-data",
    "connection",
    "content-length",
    "date",
    "idempotency-replay",
    "idempotency-replayed",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-connection",
    "server",
    "server-timing",
    "set-cookie",
    "set-cookie2",
    "strict-transport-security",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "www-authenticate",
];
const EXCLUDED_FAMILIES: [&str; 3] = ["access-control-", "ratelimit", "x-ratelimit"];

/// Header lines by name; the lines of one name are in order.
type Lines = BTreeMap<String, Vec<Vec<u8>>>;

#[derive(Clone)]
struct Response {
    status: StatusCode,
    lines: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
}

impl Response {
    /// A byte for the status, lines of `name:value`, an empty line, and the body. A bit of the
    /// first byte adds a `Connection` that names the first of the headers.
    fn parse(input: &[u8]) -> Self {
        let (first, mut rest) = input.split_first().unwrap_or((&0, b""));
        let status = STATUSES[usize::from(first % 8)];
        let mut lines = Vec::new();
        while !rest.is_empty() {
            let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
            let line = &rest[..end];
            rest = rest.get(end + 1..).unwrap_or_default();
            let Some(colon) = line.iter().position(|byte| *byte == b':') else { break };
            let name = HeaderName::from_bytes(&line[..colon]);
            lines.extend(name.ok().zip(HeaderValue::from_bytes(&line[colon + 1..]).ok()));
        }
        if let Some((name, _)) = lines.first().filter(|_| first & 8 != 0) {
            let named = format!("close ,\t{} ", name.as_str().to_ascii_uppercase());
            lines.push((header::CONNECTION, HeaderValue::try_from(named).unwrap()));
        }
        let status = StatusCode::from_u16(status).unwrap();
        Self { status, lines, body: Bytes::copy_from_slice(rest) }
    }

    fn build(&self) -> HttpResponse {
        let mut response = HttpResponse::build(self.status);
        for line in &self.lines {
            response.append_header(line.clone());
        }
        response.body(self.body.clone())
    }

    /// The lines that may be recorded, and must be.
    fn recorded(&self) -> Lines {
        let lines = || self.lines.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let connection = lines().filter(|(name, _)| *name == "connection");
        let named: Vec<String> = connection
            .flat_map(|(_, value)| value.split(|byte| *byte == b','))
            .map(|name| String::from_utf8_lossy(name).trim_matches([' ', '\t']).to_lowercase())
            .collect();
        let is_recorded = |name: &str| {
            !EXCLUDED.contains(&name)
                && !EXCLUDED_FAMILIES.iter().any(|family| name.starts_with(family))
                && !named.iter().any(|named| named == name)
        };
        by_name(lines().filter(|(name, _)| is_recorded(name)))
    }
}

fn by_name<'a>(lines: impl Iterator<Item = (&'a str, &'a [u8])>) -> Lines {
    let mut found = Lines::new();
    for (name, value) in lines {
        found.entry(name.to_owned()).or_default().push(value.to_vec());
    }
    found
}

#[idempotent(scope = "scope::global", record = "all")]
#[post("/")]
async fn respond() -> HttpResponse {
    RESPONSE.with_borrow(Response::build)
}

/// Input: a response.
pub(crate) fn run(input: &[u8]) {
    let response = Response::parse(input);
    record(&response);
    RESPONSE.set(response.clone());
    SERVER.with_borrow_mut(|server| server.replay(&response));
}

/// A recording has exactly the lines that may be recorded.
fn record(response: &Response) {
    let encoded = recording::from_response(response.build()).now_or_never().unwrap().unwrap();
    let recording = Recording::decode(&encoded).unwrap();
    let lines = recording.headers.iter();
    let lines = lines.map(|(name, value)| (std::str::from_utf8(name).unwrap(), &**value));
    assert_eq!(by_name(lines), response.recorded());
    assert_eq!(recording.encode(), encoded);
}

type Call = Box<dyn Fn(test::TestRequest) -> LocalBoxFuture<'static, ServiceResponse>>;

/// A server in memory, which is restarted before its store grows.
struct Server {
    system: rt::SystemRunner,
    call: Option<Call>,
    requests: u32,
}

impl Server {
    const RESTART: u32 = 1_000;

    fn new() -> Self {
        Self { system: rt::System::new(), call: None, requests: 0 }
    }

    async fn start() -> Call {
        let idempotency = Idempotency::new(MemoryStore::new());
        let app = App::new().app_data(idempotency).service(respond);
        let service = Rc::new(test::init_service(app).await);
        Box::new(move |request| {
            let service = service.clone();
            async move { service.call(request.to_request()).await.unwrap() }.boxed_local()
        })
    }

    /// A second request with the key gets the recorded lines, status and body.
    fn replay(&mut self, response: &Response) {
        if self.requests.is_multiple_of(Self::RESTART) {
            self.call = Some(self.system.block_on(Self::start()));
        }
        self.requests += 1;
        let (call, key) = (self.call.as_ref().unwrap(), self.requests.to_string());
        self.system.block_on(async {
            for is_replay in [false, true] {
                let key = ("idempotency-key", key.as_str());
                let request = test::TestRequest::post().uri("/").insert_header(key);
                let received = call(request).await;
                assert_eq!(received.status(), response.status);
                if is_replay {
                    assert_eq!(lines_of(received.headers()), replayed(response));
                } else {
                    assert!(!received.headers().contains_key("idempotency-replayed"));
                }
                let body = to_bytes(received.into_body()).await.ok();
                assert_eq!(body.as_ref(), Some(&response.body));
            }
        });
    }
}

thread_local! {
    /// What the handler responds.
    static RESPONSE: RefCell<Response> = RefCell::new(Response::parse(b""));
    /// Never dropped: the end of a thread is too late for its parts.
    static SERVER: RefCell<ManuallyDrop<Server>> = RefCell::new(ManuallyDrop::new(Server::new()));
}

fn lines_of(headers: &HeaderMap) -> Lines {
    by_name(headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())))
}

/// The recorded lines, and those that mark a replay.
fn replayed(response: &Response) -> Lines {
    let mut lines = response.recorded();
    lines.insert("idempotency-replayed".into(), vec![b"true".to_vec()]);
    lines.entry("cache-control".into()).or_insert_with(|| vec![b"no-store".to_vec()]);
    lines
}
