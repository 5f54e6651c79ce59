//! The watch lists of Redis: which steps add a record and which remove it, and which entries are
//! corrected.

use std::time::Duration;

use bytes::Bytes;
use idempotent_core::{
    Abandoned, Lease, RecordId,
    protocol::{
        ClaimOutcome, Fence, Note, Rejection, Removal, Renewal, Resolution, ResolveOutcome,
    },
    store::{Administration as _, Store as _},
};
use idempotent_redis::{
    RedisStore,
    internals::{watch_list_of, with_large_recordings_from},
};
use redis::{Connection, Value, cmd};

use super::{
    Variant,
    backends::{Backend, redis_store},
    read,
};
use crate::{
    fixtures::{Redis, unique},
    hammer::request,
};
use test_support::decision;

const HOUR: u64 = 60 * 60 * 1000;
const MINUTE: u64 = 60 * 1000;

/// What is wrong with the list of a variant.
pub(super) async fn difference(backend: &Backend, variant: Variant) -> Option<String> {
    let Backend::Redis(server) = backend else { return None };
    let raw = redis::Client::open(server.url.as_str()).unwrap().get_connection().unwrap();
    let mut list = List { raw, store: redis_store(server.open(&unique()).await, variant) };
    if let Some(wrong) = after_steps(&mut list).await {
        return Some(wrong);
    }
    without_list(server, variant).or_else(|| after_correction(server, variant))
}

struct List {
    raw: Connection,
    store: RedisStore,
}

impl List {
    /// The time of a record's entry.
    fn time(&mut self, id: &RecordId) -> Option<u64> {
        let key = watch_list_of(&self.store, id);
        let time: Option<f64> =
            cmd("ZSCORE").arg(key).arg(id.as_bytes()).query(&mut self.raw).unwrap();
        time.map(|time| format!("{time:.0}").parse().unwrap())
    }

    async fn claimed(&self, lease: Duration, policy: Abandoned) -> Lease {
        let mut id = [0; 32];
        fastrand::fill(&mut id);
        let (id, claim) = (RecordId::from_bytes(id), request(lease).with_abandoned(policy));
        self.store.claim(&id, &claim).await.unwrap();
        Lease { id, owner: claim.owner }
    }

    async fn first_seen(&self, id: &RecordId) -> u64 {
        self.store.look_up(id).await.unwrap().unwrap().record.first_seen.as_millis()
    }
}

/// How a record gets into the list.
const BEGINNINGS: [&str; 5] = ["claim", "renewal", "note", "abandonment", "meeting"];
/// How it leaves the list: whether a step ends a held record, and one that is in flight.
const ENDS: [(&str, bool, bool); 6] = [
    ("completion", true, true),
    ("large recording", true, true),
    ("removal", true, true),
    ("resolution", true, false),
    ("resolution by a release", true, false),
    ("release", false, true),
];

async fn after_steps(list: &mut List) -> Option<String> {
    for beginning in BEGINNINGS {
        let is_held = ["abandonment", "meeting"].contains(&beginning);
        for (end, ..) in
            ENDS.iter().filter(|(_, held, flying)| if is_held { *held } else { *flying })
        {
            let lease = begun(list, beginning).await;
            let time = list.time(&lease.id);
            if time != Some(list.first_seen(&lease.id).await) {
                return Some(format!("the entry after the {beginning} has the time {time:?}"));
            }
            ended(&list.store, &lease, end).await;
            if list.time(&lease.id).is_some() {
                return Some(format!("an entry stays after the {end}"));
            }
        }
    }
    None
}

async fn begun(list: &List, step: &str) -> Lease {
    const LONG: Duration = Duration::from_secs(60);
    let policy = if step == "claim" { Abandoned::Hold } else { Abandoned::Retry };
    let met = step == "meeting";
    let lease = list.claimed(if met { Duration::ZERO } else { LONG }, policy).await;
    let store = &list.store;
    match step {
        "renewal" => {
            store.renew(&[Renewal::new(lease, LONG)]).await.unwrap();
        }
        "note" => assert_eq!(store.note(&lease, &Note::hold()).await.unwrap(), Fence::Passed),
        "abandonment" => {
            assert_eq!(store.abandon(&lease, Abandoned::Hold).await.unwrap(), Fence::Passed);
        }
        "meeting" => {
            let other = request(LONG).with_abandoned(Abandoned::Hold);
            let met = store.claim(&lease.id, &other).await.unwrap();
            assert!(matches!(met, ClaimOutcome::Rejected(Rejection::Held { newly: true, .. })));
        }
        _ => {}
    }
    lease
}

async fn ended(store: &RedisStore, lease: &Lease, step: &str) {
    let (recording, audit) = (Bytes::from_static(b"recording"), decision(&lease.id));
    let resolve = async |resolution| {
        let resolved = store.resolve(&lease.id, &lease.owner, &resolution, &audit).await.unwrap();
        assert_eq!(resolved, ResolveOutcome::Resolved);
    };
    match step {
        "completion" => {
            assert_eq!(store.complete(lease, &recording).await.unwrap(), Fence::Passed);
        }
        "large recording" => {
            let store = with_large_recordings_from(store.clone(), 0);
            assert_eq!(store.complete(lease, &recording).await.unwrap(), Fence::Passed);
        }
        "resolution" => resolve(Resolution::Complete(recording)).await,
        "resolution by a release" => resolve(Resolution::Release).await,
        "removal" => {
            let removal = Removal::of_any(lease.owner);
            assert!(store.remove(&lease.id, &removal, &audit).await.unwrap());
        }
        _ => assert_eq!(store.release(lease).await.unwrap(), Fence::Passed),
    }
}

fn script(variant: Variant, file: &str) -> String {
    let read = |file| variant.alter(file, &read("stores/redis/src/lua", file));
    [read("record.lua"), read(file)].concat()
}

/// Steps that cannot change the list, because the slot of the keys is moving.
fn without_list(server: &Redis, variant: Variant) -> Option<String> {
    let mut raw = redis::Client::open(server.url.as_str()).unwrap().get_connection().unwrap();
    let (key, owner) = ([unique().as_bytes(), &[7; 32]].concat(), [2_u8; 16]);
    let mut call = |file: &str, args: &[&[u8]]| {
        let mut eval = cmd("EVAL");
        eval.arg(script(variant, file)).arg(1).arg(&key).arg(args);
        let called: Result<Value, _> = eval.query(&mut raw);
        called.err().map(|error| format!("{file} without a list: {error}"))
    };
    let claim: [&[u8]; 7] = [&[3; 36], &owner, b"60000", b"60000", b"1", b"", b""];
    call("claim.lua", &claim).or_else(|| call("release.lua", &[&owner]))
}

/// A record in the server, and the time of its first claim if it is open.
struct Stored {
    value: Option<Vec<u8>>,
    expires_at: Option<u64>,
    open_since: Option<u64>,
    is_completed: bool,
}

fn head(state: u8, abandoned: u8, times: [u64; 5]) -> Vec<u8> {
    let mut head = vec![1, state, abandoned, 0, 0, 0, 1];
    head.extend([[2; 16].as_slice(), &[3; 36]].concat());
    head.extend(times.into_iter().flat_map(u64::to_be_bytes));
    head.extend([0; 15]);
    head
}

/// A record of each kind.
fn records(now: u64) -> Vec<Stored> {
    let (first_seen, past, future) = (now - 3 * HOUR, now - MINUTE, now + 24 * HOUR);
    let absolute = |state, abandoned, lease_until, expires_at, is_open: bool| Stored {
        value: Some(head(state, abandoned, [lease_until, first_seen, expires_at, MINUTE, 0])),
        expires_at: None,
        open_since: is_open.then_some(first_seen),
        is_completed: state == 2,
    };
    // The times are relative to the creation of the key. One is in flight, one has expired with its
    // lease and its ttl, and one is completed.
    let relative = |state, created: u64, grace: u64, is_open: bool| Stored {
        value: Some(head(state, 0, [MINUTE, 0, HOUR, MINUTE, u64::from(state == 2)])),
        expires_at: Some(created + HOUR + grace),
        open_since: is_open.then_some(created),
        is_completed: state == 2,
    };
    vec![
        Stored { value: None, expires_at: None, open_since: None, is_completed: false },
        absolute(1, 0, future, future, true),
        absolute(1, 0, past, future, true),
        absolute(1, 0, future, past, true),
        absolute(1, 0, past, past, false),
        absolute(1, 1, past, past, true),
        absolute(3, 0, past, past, true),
        absolute(2, 0, past, future, false),
        absolute(2, 1, past, future, false),
        relative(1, now - MINUTE / 2, HOUR, true),
        relative(1, now - 90 * MINUTE, HOUR, false),
        relative(2, now - MINUTE / 2, 0, false),
    ]
}

/// The entry of each record after each of the two scripts that correct it.
fn after_correction(server: &Redis, variant: Variant) -> Option<String> {
    let mut raw = redis::Client::open(server.url.as_str()).unwrap().get_connection().unwrap();
    let (seconds, _): (u64, u64) = cmd("TIME").query(&mut raw).unwrap();
    let now = seconds * 1000;
    for (number, record) in records(now).into_iter().enumerate() {
        for entry in [None, Some(now - 2 * HOUR), Some(now - MINUTE)] {
            let corrected = match (entry, record.open_since) {
                (Some(_), Some(first_seen)) => Some(first_seen),
                (entry, _) => entry.filter(|time| *time > now - HOUR),
            };
            let unwatched = entry.filter(|_| !record.is_completed);
            for (file, expected) in [("mend.lua", corrected), ("unwatch.lua", unwatched)] {
                let found = corrected_by(&mut raw, &script(variant, file), &record, entry);
                if found != Ok(expected) {
                    return Some(format!(
                        "{file}, record {number}: the entry {entry:?} becomes {found:?}, not \
                         {expected:?}"
                    ));
                }
            }
        }
    }
    None
}

/// Calls a script on a record and its entry, and returns the entry.
fn corrected_by(
    raw: &mut Connection,
    script: &str,
    record: &Stored,
    entry: Option<u64>,
) -> Result<Option<u64>, String> {
    let prefix = unique();
    let (id, list) = ([7; 32].as_slice(), format!("{prefix}watched"));
    let key = [prefix.as_bytes(), id].concat();
    if let Some(value) = &record.value {
        let mut set = cmd("SET");
        set.arg(&key).arg(value);
        if let Some(at) = record.expires_at {
            set.arg("PXAT").arg(at);
        }
        set.exec(raw).unwrap();
    }
    if let Some(time) = entry {
        cmd("ZADD").arg(&list).arg(time).arg(id).exec(raw).unwrap();
    }
    let mut eval = cmd("EVAL");
    eval.arg(script).arg(2).arg(&key).arg(&list).arg(HOUR);
    let called: Result<Value, _> = eval.query(raw);
    called.map_err(|error| error.to_string())?;
    let time: Option<f64> = cmd("ZSCORE").arg(&list).arg(id).query(raw).unwrap();
    Ok(time.map(|time| format!("{time:.0}").parse().unwrap()))
}
