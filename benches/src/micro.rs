//! Times and allocations of the steps of a request, without I/O.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    hint::black_box,
    pin::pin,
    process::Command,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use bytes::Bytes;
use idempotent_core::{
    Digester, FingerprintKeys, Lease, OwnerToken, RecordId, RequestDigest, ScopeId, canonical_json,
    clock::Timestamp,
    protocol::Claim,
    store::{Store, memory::MemoryStore},
    transition,
};
use idempotent_http::key::parse_key;
use idempotent_http::recording::{RecordedBody, Recording};

use crate::{report, spread::Spread};

const KEY: &[u8] = b"8e03978e-40d5-43e8-bc93-6894a57f9324";
const BODY: &[u8] = b"{\"amount\":2000,\"currency\":\"usd\",\"payment_method\":\"pm_card_visa\",\
    \"confirm\":true,\"description\":\"Order 4711, two seats in the third row\",\
    \"metadata\":{\"order\":\"4711\",\"channel\":\"web\",\"basket\":\"b-20261121\"}}";
const SAMPLES: usize = 9;
const SAMPLE: Duration = Duration::from_millis(40);

/// The name of a step, and a function that runs the step a given number of times.
type Step = (&'static str, Box<dyn FnMut(u64)>);

/// Times every step, counts its allocations in `counted`, prints the table and writes it.
pub(crate) fn main(counted: &str) {
    let allocations = Command::new(counted).args(["micro-counts"]).output().unwrap();
    let allocations: BTreeMap<String, f64> = serde_json::from_slice(&allocations.stdout).unwrap();
    let mut text =
        "| step | ns: median (minimum–maximum of 9 samples) | allocations |\n|---|---|---|\n"
            .to_owned();
    for (name, mut step) in steps() {
        let times = time(&mut step);
        let _ = writeln!(
            text,
            "| {name} | {:.0} ({:.0}–{:.0}) | {:.1} |",
            times.median, times.min, times.max, allocations[name]
        );
    }
    println!("{text}");
    report::save("micro.md", &text);
}

/// Prints the allocations of each step.
pub(crate) fn counts(count: fn() -> (usize, usize)) {
    const TIMES: u64 = 1000;
    let mut counts = BTreeMap::new();
    for (name, mut step) in steps() {
        step(TIMES);
        let before = count().0;
        step(TIMES);
        counts.insert(name, (count().0 - before) as f64 / TIMES as f64);
    }
    println!("{}", serde_json::to_string(&counts).unwrap());
}

fn time(step: &mut dyn FnMut(u64)) -> Spread {
    let mut times = 1;
    loop {
        let started = Instant::now();
        step(times);
        if started.elapsed() > SAMPLE {
            break;
        }
        times *= 2;
    }
    let sample = |_| {
        let started = Instant::now();
        step(times);
        started.elapsed().as_nanos() as f64 / times as f64
    };
    Spread::of((0..SAMPLES).map(sample).collect::<Vec<_>>().into_iter())
}

fn repeat<T>(mut step: impl FnMut() -> T + 'static) -> Box<dyn FnMut(u64)> {
    Box::new(move |times| {
        for _ in 0..times {
            black_box(step());
        }
    })
}

fn digest(body: &[u8]) -> RequestDigest {
    let mut digester = Digester::new(["POST", "/work"]);
    digester.update(black_box(body));
    digester.finish()
}

fn claim() -> Claim {
    Claim::new(FingerprintKeys::none().sign(digest(BODY)), OwnerToken::from_bytes([7; 16]))
        .with_lease(Duration::from_secs(30))
        .with_ttl(Duration::from_secs(86_400))
}

fn recording() -> Recording {
    let headers =
        vec![(Bytes::from_static(b"content-type"), Bytes::from_static(b"application/json"))];
    Recording::new(201, headers, RecordedBody::Whole(vec![b'x'; 1024].into()))
}

fn id(number: u64) -> RecordId {
    // The ids are spread as evenly as digests.
    let mut bytes = [0; 32];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(8 * (at as u32 % 8)) >> 3)
            as u8;
    }
    RecordId::from_bytes(bytes)
}

fn steps() -> Vec<Step> {
    let (scope, key) = (ScopeId::new("alice"), parse_key(KEY).unwrap());
    let quoted = [b"\"", KEY, b"\""].concat();
    let (large, encoded) = (vec![b'x'; 16 << 10], recording().encode());
    let (new, recording) = (claim(), recording());
    vec![
        ("key, bare", repeat(|| parse_key(black_box(KEY)))),
        ("key, quoted", repeat(move || parse_key(black_box(&quoted)))),
        (
            "record id",
            repeat(move || RecordId::new("benches", black_box(&scope), "POST /work", &key)),
        ),
        ("fingerprint of 200 bytes", repeat(|| digest(BODY))),
        ("fingerprint of 16 KiB", repeat(move || digest(&large))),
        (
            "canonical form of 200 bytes of JSON",
            repeat(|| canonical_json(black_box(BODY)).map(|json| json.len())),
        ),
        ("owner token", repeat(OwnerToken::random)),
        ("transition of a first claim", {
            repeat(move || transition::claim(None, black_box(&new), Timestamp::from_millis(1)))
        }),
        ("recording of 1 KiB, encoded", repeat(move || recording.encode())),
        (
            "recording of 1 KiB, decoded",
            repeat(move || Recording::decode(black_box(&encoded)).unwrap()),
        ),
        ("memory store, claim and complete", memory_claims()),
        ("memory store, replay", memory_replays()),
    ]
}

fn memory() -> MemoryStore {
    MemoryStore::new().max_records(100_000_000).max_bytes(1 << 40)
}

fn memory_claims() -> Box<dyn FnMut(u64)> {
    let (store, claim, response, mut number) =
        (memory(), claim(), Bytes::from(recording().encode()), 0);
    repeat(move || {
        number += 1;
        let id = id(number);
        let claimed = ready(store.claim(&id, &claim)).unwrap();
        let lease = Lease { id, owner: claim.owner };
        let ended = ready(store.complete(&lease, &response)).unwrap();
        (claimed, ended)
    })
}

fn memory_replays() -> Box<dyn FnMut(u64)> {
    let (store, claim) = (memory(), claim());
    ready(store.claim(&id(1), &claim)).unwrap();
    ready(store.complete(&Lease { id: id(1), owner: claim.owner }, &recording().encode().into()))
        .unwrap();
    repeat(move || ready(store.claim(&id(1), &claim)).unwrap())
}

/// The output of a future of the memory store, which is ready at the first poll.
fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the future of the memory store is pending"),
    }
}
