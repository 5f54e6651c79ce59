//! Many clients that send each key several times at once, to several servers.

use std::thread;

use super::{LEASED, Load, settle};
use crate::{
    payments::{Files, Payments},
    records::Records,
};

/// How many keys are at work at once.
const GROUPS: usize = 4;
/// How many keys there are in all, each sent at once to each server.
const KEYS: usize = 120;
const SERVERS: usize = 3;

pub(super) fn many_clients_at_several_servers_get_one_answer_a_key(records: Records, path: &'static str) {
    let files = Files::with(records);
    let servers = Payments::start_all(SERVERS, &files);
    let load = Load::new(path);
    thread::scope(|scope| {
        for _ in 0..GROUPS {
            scope.spawn(|| (0..KEYS / GROUPS).for_each(|_| send_everywhere(&load, &servers)));
        }
    });
    let heard = load.heard();
    assert_eq!((heard.ran, heard.replays), (KEYS as u64, (KEYS * (SERVERS - 1)) as u64), "{heard}");
    assert_eq!((heard.lost, load.answered().0), (0, KEYS), "{heard}");
    // Who does not wait is told that another is at work; without that, nothing here was at once.
    assert!(path != LEASED || heard.in_flight >= 20, "{heard}");
    settle(&files, &load);
}

fn send_everywhere(load: &Load, servers: &[Payments]) {
    let number = load.begin();
    thread::scope(|scope| {
        for server in servers {
            scope.spawn(|| load.send_until_answered(server.address, number));
        }
    });
}
