//! Servers that are killed under load, again and again. For more of it than the other tests have the time for:
//! `TRANSFER_KILLS=10000 cargo test -p payments --test survival -- killed_under_load --nocapture`

use std::{
    env, thread,
    time::{Duration, Instant},
};

use super::{Load, settle};
use crate::{
    payments::{Files, Payments, await_that},
    records::Records,
};

const CLIENTS: usize = 8;
/// How often a server is killed; `TRANSFER_KILLS` says another number.
const KILLS: u64 = 40;
const KILLS_OF_TWO: u64 = 12;
/// The longest life of a server, in milliseconds.
const LIFE: u64 = 60;

/// One server at a time: whoever was cut off waits for the next one.
pub(super) fn servers_that_are_killed_under_load_make_each_transfer_once(records: Records, path: &'static str) {
    let files = Files::with(records);
    under_load(&files, path, KILLS, |load| {
        let server = Payments::start(&files);
        load.turn_to(&[server.address]);
        live(load);
        server.kill();
        load.turn_to(&[]);
        // In place of the wait for the end of their leases.
        files.lapse();
    });
}

/// Two servers, one of which is killed and answers again later, while the other gets the retries at once.
pub(super) fn a_server_that_is_killed_leaves_its_transfers_to_the_other_one(records: Records, path: &'static str) {
    let files = Files::with(records);
    let mut servers = Payments::start_all(2, &files);
    under_load(&files, path, KILLS_OF_TWO, |load| {
        load.turn_to(&[servers[0].address, servers[1].address]);
        live(load);
        let killed = servers.remove(0);
        load.turn_to(&[servers[0].address]);
        killed.kill();
        // The other one renews what is its own, or loses it to a retry, which is as well.
        files.lapse();
        servers.push(Payments::start(&files));
    });
}

/// The life of a server: some milliseconds, for every other one counted from the next answer that a client gets.
fn live(load: &Load) {
    if fastrand::bool() {
        let before = load.heard().answered();
        await_that(|| load.heard().answered() > before, "an answer");
    }
    thread::sleep(Duration::from_millis(fastrand::u64(..LIFE)));
}

fn under_load(files: &Files, path: &'static str, kills: u64, mut kill: impl FnMut(&Load)) {
    let kills = env::var("TRANSFER_KILLS").map_or(kills, |kills| kills.parse().expect("TRANSFER_KILLS is a number"));
    let (load, started) = (Load::new(path), Instant::now());
    thread::scope(|scope| {
        let stop = load.stop();
        for _ in 0..CLIENTS {
            scope.spawn(|| load.run());
        }
        for number in 1..=kills {
            kill(&load);
            let heard = load.heard();
            if number % 250 == 0 || number == kills {
                eprintln!("{path}: {number} kills in {:?}: {heard}", started.elapsed());
            }
        }
        drop(stop);
    });
    files.lapse();
    settle(files, &load);
    let heard = load.heard();
    assert!(heard.lost >= kills / 2, "too few were cut off in mid-work: {heard}");
    assert!(heard.ran >= kills / 2 && heard.replays >= kills / 10, "{heard}");
    eprintln!("{path}: {:?} keys answered, and made: {heard}", load.answered());
}
