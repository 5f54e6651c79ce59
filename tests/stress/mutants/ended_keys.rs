//! Claims of every kind of record that is completed or held.

use redis::{Client, ErrorKind, Value, cmd, pipe};

use super::{Variant, backends::Backend, read};

/// A time that has passed, and one that has not, in milliseconds since the Unix epoch.
const TIMES: [u64; 2] = [1_000_000_000_000, 9_000_000_000_000];

/// The values that a record in these states may have, without their recording and with one text.
/// Times of 0 occur in records that were completed before anything but their first owner has
/// written them.
fn heads() -> impl Iterator<Item = Vec<u8>> {
    let heads = [2, 3].into_iter().flat_map(|state| [0, 1].map(|abandoned| (state, abandoned)));
    let heads = heads.flat_map(|head| [7, 8].map(|owner| (head, owner)));
    let heads = heads.flat_map(|head| [7, 8].map(|fingerprint| (head, fingerprint)));
    heads.flat_map(|(((state, abandoned), owner), fingerprint)| {
        let times = [0, TIMES[0], TIMES[1]];
        let times = times.into_iter().flat_map(move |lease| times.map(|seen| (lease, seen)));
        let times = times.flat_map(|(lease, seen)| TIMES.map(|expires| [lease, seen, expires]));
        times.map(move |times| {
            let mut head = vec![1, state, abandoned, 0, 0, 0, 1];
            head.extend([owner; 16]);
            head.extend([fingerprint; 36]);
            head.extend(times.into_iter().chain([30_000, TIMES[0]]).flat_map(u64::to_be_bytes));
            // The status, and the lengths of the texts: only a reference.
            head.extend([0, 200, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            head.extend(b"pi_1");
            head
        })
    })
}

/// The difference that a variant of the script makes to its reply, to the record or to its expiry.
pub(super) async fn difference(backend: &Backend, variant: Variant) -> Option<String> {
    let Backend::Redis(server) = backend else { return None };
    let mut connection = Client::open(server.url.as_str()).unwrap().get_connection().unwrap();
    let script = |variant: Variant| {
        ["record.lua", "claim.lua"]
            .map(|file| variant.alter(file, &read("stores/redis/src/lua", file)))
            .concat()
    };
    let (shipped, altered, key) =
        (script(Variant::Shipped), script(variant), crate::fixtures::unique());
    let mut claims = 0;
    for head in heads() {
        for (policy, expires_at) in [(0, None), (1, None), (0, Some(TIMES[1])), (1, Some(TIMES[1]))]
        {
            let mut claim = |script: &str| -> Result<Vec<Value>, (ErrorKind, String)> {
                let mut set = cmd("SET");
                let recording: &[u8] = if head[1] == 2 { b"recording" } else { b"" };
                set.arg(&key).arg([head.as_slice(), recording].concat());
                if let Some(at) = expires_at {
                    set.arg("PXAT").arg(at);
                }
                let mut eval = cmd("EVAL");
                let (fingerprint, owner) = ([7_u8; 36], [7_u8; 16]);
                eval.arg(script).arg(1).arg(&key).arg(fingerprint.as_slice()).arg(owner.as_slice());
                eval.arg(&[30_000, 86_400_000, policy]).arg("operation").arg("");
                let mut commands = pipe();
                commands.add_command(set).add_command(eval).get(&key).pexpire_time(&key);
                commands.query(&mut connection).map_err(|error| (error.kind(), error.to_string()))
            };
            let (expected, reply) = (claim(&shipped), claim(&altered));
            assert!(expected.is_ok(), "{expected:?}");
            if reply != expected {
                return Some(format!("{reply:?} in place of {expected:?} for {head:?}"));
            }
            claims += 1;
        }
    }
    assert_eq!(claims, 2 * 2 * 2 * 2 * 3 * 3 * 2 * 4);
    None
}
