//! Payments whose clients do not come back: after the kill the completer finishes them, and the
//! request that is sent later gets the recorded response.

use test_support::taps::When;

use super::{MAX_MESSAGES, STRIDE, Setup, is_unavailable};
use crate::{
    payments::{
        pay,
        records::Records,
        server::{Files, await_that},
    },
    results::is_long_run,
};

/// A payment whose server is killed has a stored input after its first message to the bank at the
/// latest, and until the response.
const MIN_FINISHED: u32 = 2;

#[test]
fn on_sqlite_the_completer_finishes_what_a_kill_interrupted() {
    finish_after_each_kill(Records::Ledger);
}

#[test]
fn on_postgres_the_completer_finishes_what_a_kill_interrupted() {
    finish_after_each_kill(Records::postgres());
}

#[cfg(feature = "mysql")]
#[test]
fn on_mysql_the_completer_finishes_what_a_kill_interrupted() {
    finish_after_each_kill(Records::mysql());
}

fn finish_after_each_kill(records: Records) {
    let mut setup = Setup::start(Files::with(records));
    setup.arguments = &["--complete-every", "1"];
    let stride = if is_long_run() || setup.files.is_file() { 1 } else { STRIDE };
    let (mut finished, mut early) = (0, 0);
    for number in (1..MAX_MESSAGES).step_by(stride as usize) {
        match setup.completes(number) {
            Some(true) => finished += 1,
            Some(false) => early += 1,
            None => break,
        }
    }
    println!("{finished} finished by the completer, {early} killed before their input was stored");
    assert!(finished >= MIN_FINISHED, "only {finished} payments were finished by the completer");
    assert!(early >= 1, "no payment was killed before its input was stored");
}

impl Setup {
    /// Makes a payment whose server is killed at a message, and returns whether the completer
    /// finished it. If its input was not stored yet, only a retry can. Returns `None` if the
    /// payment has fewer messages.
    fn completes(&mut self, number: u32) -> Option<bool> {
        let request = pay(&format!("completed-{number}-{}", self.payments), "pm_card_visa");
        self.payments += 1;
        let (first, reached) = self.send_and_kill(&request, "", number, When::Before);
        let Some(at) = reached else {
            let first = first.expect("nothing was killed");
            if is_unavailable(&first) {
                // Another payment gets further.
                self.retry(&request, "without a kill");
                return self.completes(number);
            }
            self.check(&first, "without a kill");
            return None;
        };
        let resumable = "SELECT count(*) FROM idempotency_records WHERE input IS NOT NULL";
        let is_resumable = self.files.count_in_store(resumable) == 1;
        self.restart();
        if is_resumable {
            let is_completed = || {
                self.files.expire_leases();
                self.files.count_in_store(resumable) == 0
            };
            await_that(is_completed, &format!("{at}: the completer finishes the payment"));
            let replay = self.send(&request);
            assert!(replay.is_replay(), "{at}: {replay:?}");
        }
        let response = self.retry(&request, &at);
        self.check(&response, &at);
        Some(is_resumable)
    }
}
