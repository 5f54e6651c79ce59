//! Servers that are killed under load, repeatedly. For a longer run:
//! `TRANSFER_KILLS=10000 cargo test -p tests --test survival -- killed_under_load --nocapture`

use std::{
    env, thread,
    time::{Duration, Instant},
};

use super::{Load, complete_and_check};
use crate::payments::{
    records::Records,
    server::{Files, Payments, await_that},
};

const CLIENTS: usize = 8;
/// The number of kills, unless `TRANSFER_KILLS` is set.
const KILLS: u64 = 40;
const KILLS_WITH_TWO_SERVERS: u64 = 12;
/// How long a server runs at most before it is killed.
const MAX_LIFETIME_MILLIS: u64 = 60;

/// One server runs at a time; interrupted clients wait for the next one.
pub(super) fn servers_that_are_killed_under_load_make_each_transfer_once(
    records: Records,
    path: &'static str,
) {
    let files = Files::with(records);
    kill_under_load(&files, path, KILLS, |load| {
        let server = Payments::start(&files);
        load.set_servers(&[server.address]);
        let_server_work(load);
        server.kill();
        load.set_servers(&[]);
        // So that the test need not wait until they expire by themselves.
        files.expire_leases();
    });
}

/// Two servers run. One is killed and restarted later; the other gets the retries at once.
pub(super) fn a_server_that_is_killed_leaves_its_transfers_to_the_other_one(
    records: Records,
    path: &'static str,
) {
    let files = Files::with(records);
    let mut servers = Payments::start_all(2, &files);
    kill_under_load(&files, path, KILLS_WITH_TWO_SERVERS, |load| {
        load.set_servers(&[servers[0].address, servers[1].address]);
        let_server_work(load);
        let killed = servers.remove(0);
        load.set_servers(&[servers[0].address]);
        killed.kill();
        // This includes the leases of the other server, which renews them or loses them to a retry.
        files.expire_leases();
        servers.push(Payments::start(&files));
    });
}

/// Lets a server work for some milliseconds, in half of the cases after it has sent a response.
fn let_server_work(load: &Load) {
    if fastrand::bool() {
        let before = load.tally().completed();
        await_that(|| load.tally().completed() > before, "a response");
    }
    thread::sleep(Duration::from_millis(fastrand::u64(..MAX_LIFETIME_MILLIS)));
}

fn kill_under_load(files: &Files, path: &'static str, kills: u64, mut kill: impl FnMut(&Load)) {
    let kills = env::var("TRANSFER_KILLS")
        .map_or(kills, |kills| kills.parse().expect("TRANSFER_KILLS is a number"));
    let (load, started) = (Load::new(path), Instant::now());
    thread::scope(|scope| {
        let stop = load.stop();
        for _ in 0..CLIENTS {
            scope.spawn(|| load.run());
        }
        for number in 1..=kills {
            kill(&load);
            let tally = load.tally();
            if number % 250 == 0 || number == kills {
                eprintln!("{path}: {number} kills in {:?}: {tally}", started.elapsed());
            }
        }
        drop(stop);
    });
    files.expire_leases();
    complete_and_check(files, &load);
    let tally = load.tally();
    assert!(tally.lost >= kills / 2, "too few requests were interrupted: {tally}");
    assert!(tally.ran >= kills / 2 && tally.replays >= kills / 10, "{tally}");
    eprintln!("{path}: {:?} keys completed, and made: {tally}", load.completed());
}
