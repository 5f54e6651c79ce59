//! The cost of parsing: it grows with the length of an input, and no faster.

use std::{cell::RefCell, collections::BTreeMap, fs, mem::ManuallyDrop, rc::Rc, time::Duration};

use actix_web::{
    App, HttpResponse,
    dev::{Service as _, ServiceResponse},
    http::header::{HeaderName, HeaderValue},
    post, rt, test,
};
use bytes::Bytes;
use futures_util::{FutureExt as _, future::LocalBoxFuture};
use idempotent_actix::{Idempotency, fingerprint, idempotent, recording, scope, store::connect};
use idempotent_core::{
    EncodedRecording, canonical_json, clock::Timestamp, store::memory::MemoryStore,
};
use idempotent_http::{key::parse_key, recording::Recording};
use idempotent_redis::internals::decode_redis_record;

use crate::Target;

/// The lengths that are compared, and how much more the longer one may cost: for a parser that
/// reads the rest again for each part, it is 64 times as much. They are short enough that such a
/// parser ends.
const SHORT: usize = 4 << 10;
const LONG: usize = 8 * SHORT;
const MOST: u32 = 24;
/// What costs less is not compared.
const LEAST: Duration = Duration::from_micros(200);

type Parser = (&'static str, fn(&[u8]));

const PARSERS: [Parser; 9] = [
    ("key", |value| drop(parse_key(value))),
    ("canonical form of JSON", |body| drop(canonical_json(body))),
    ("request with a key in JSON", |body| send("/json", "application/json", body)),
    ("request with a key in a form", |body| {
        send("/form", "application/x-www-form-urlencoded", body);
    }),
    ("fingerprint of a form of several parts", multipart),
    ("recording", decode_recording),
    ("record in Redis", |value| {
        drop(decode_redis_record(Bytes::copy_from_slice(value), Timestamp::from_millis(1)));
    }),
    ("URL of a store", |url| drop(std::str::from_utf8(url).map(|url| connect(url).now_or_never()))),
    ("header lines of a response", record),
];

/// Input: a letter for the parser, and five parts with a zero between them. The second and the
/// fourth part are repeated, so that they make up most of the text.
pub(crate) fn run(input: &[u8]) {
    let Some(((_, parse), parts)) = split(input) else { return };
    let (short, long) = (text(parts, SHORT), text(parts, LONG));
    let limit = MOST * least((0..3).map(|_| time(parse, &short))).max(LEAST);
    // Only what is slow each time is slow.
    let slow = (0..5).map(|_| time(parse, &long)).all(|time| time > limit);
    assert!(!slow, "8 times the length costs more than {MOST} times as much");
}

fn split(input: &[u8]) -> Option<(Parser, [&[u8]; 5])> {
    let (parser, parts) = input.split_first()?;
    let mut parts = parts.splitn(5, |byte| *byte == 0);
    let parts = std::array::from_fn(|_| parts.next().unwrap_or_default());
    Some((PARSERS[usize::from(parser.wrapping_sub(b'a')) % PARSERS.len()], parts))
}

/// The longest time that the inputs of the seeds and the corpus take, at this length, by parser.
#[must_use]
pub fn costs(length: usize) -> BTreeMap<&'static str, Duration> {
    let cost = Target::named("cost").expect("this is a target");
    let mut costs = BTreeMap::new();
    for input in ["seeds", "corpora"].into_iter().flat_map(|folder| cost.inputs(folder)) {
        let Some(((name, parse), parts)) = split(&input) else { continue };
        let took = time(parse, &text(parts, length));
        let most = costs.entry(name).or_default();
        *most = took.max(*most);
    }
    costs
}

fn text([first, one, middle, other, last]: [&[u8]; 5], length: usize) -> Vec<u8> {
    let repeated = |part: &[u8]| part.repeat(length / 2 / part.len().max(1));
    [first, &repeated(one), middle, &repeated(other), last].concat()
}

fn least(times: impl Iterator<Item = Duration>) -> Duration {
    times.min().unwrap_or_default()
}

/// The processor time of this thread for one call: other threads and processes do not count.
fn time(parse: fn(&[u8]), text: &[u8]) -> Duration {
    let before = processor_time();
    parse(text);
    processor_time().saturating_sub(before)
}

fn processor_time() -> Duration {
    // The kernel brings the time of a thread up to date when the thread yields.
    std::thread::yield_now();
    let statistics = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(statistics.split(' ').next().unwrap().parse().unwrap())
}

fn multipart(body: &[u8]) {
    let content_type = ("content-type", "multipart/form-data; boundary=b");
    let request = test::TestRequest::post().insert_header(content_type).to_http_request();
    let _ = fingerprint::multipart(&request, body);
}

fn decode_recording(content: &[u8]) {
    let checksum = crc32fast::hash(content).to_be_bytes();
    let verified = EncodedRecording::verify([content, &checksum].concat().into());
    drop(verified.map(|recording| Recording::decode(&recording)));
}

/// Records a response whose header lines are those of the text.
fn record(text: &[u8]) {
    let mut response = HttpResponse::Ok();
    for line in text.split(|byte| *byte == b'\n') {
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let (name, value) = line.split_at(colon);
        let value = HeaderValue::from_bytes(value.get(1..).unwrap_or_default());
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), value) {
            response.append_header((name, value));
        }
    }
    drop(recording::from_response(response.finish()).now_or_never());
}

#[idempotent(scope = "scope::global", key_from = "json:/a/a", fingerprint = "json")]
#[post("/json")]
async fn json() -> HttpResponse {
    HttpResponse::Ok().finish()
}

#[idempotent(scope = "scope::global", key_from = "form:a")]
#[post("/form")]
async fn form() -> HttpResponse {
    HttpResponse::Ok().finish()
}

type Call = Box<dyn Fn(test::TestRequest) -> LocalBoxFuture<'static, ServiceResponse>>;

/// A server in memory.
struct Server {
    system: rt::SystemRunner,
    call: Call,
}

impl Server {
    fn new() -> Self {
        let system = rt::System::new();
        let call = system.block_on(async {
            // Above every length that is measured.
            let idempotency = Idempotency::builder(MemoryStore::new()).body_limit(8 << 20).build();
            let app = App::new().app_data(idempotency).service(json).service(form);
            let service = Rc::new(test::init_service(app).await);
            let call = move |request: test::TestRequest| {
                let service = service.clone();
                async move { service.call(request.to_request()).await.unwrap() }.boxed_local()
            };
            Box::new(call) as Call
        });
        Self { system, call }
    }
}

thread_local! {
    /// Never dropped: the end of a thread is too late for its parts.
    static SERVER: RefCell<ManuallyDrop<Server>> = RefCell::new(ManuallyDrop::new(Server::new()));
}

fn send(path: &str, content_type: &str, body: &[u8]) {
    SERVER.with_borrow(|server| {
        let request = test::TestRequest::post().uri(path);
        let request = request.insert_header(("content-type", content_type));
        server.system.block_on((server.call)(request.set_payload(body.to_vec())));
    });
}
