//! Refunds, whose keys are held after the point of no return, and only then.

use std::time::Instant;

use test_support::{ClientResponse, Request, WAIT_LIMIT, taps::When};

use super::{MAX_MESSAGES, Setup, is_unavailable};
use crate::payments::{pay, post, records::Records, server::Files};

#[test]
fn on_sqlite_a_refund_is_held_only_after_its_point_of_no_return() {
    kill_at_each_message(Records::Ledger);
}

#[test]
fn on_postgres_a_refund_is_held_only_after_its_point_of_no_return() {
    kill_at_each_message(Records::postgres());
}

#[cfg(feature = "mysql")]
#[test]
fn on_mysql_a_refund_is_held_only_after_its_point_of_no_return() {
    kill_at_each_message(Records::mysql());
}

/// Kills before the point of no return, and after the completion, do not hold the key.
fn kill_at_each_message(records: Records) {
    let mut setup = Setup::start(Files::with(records));
    for when in [When::Before, When::After] {
        let numbers = 1..MAX_MESSAGES;
        let held: Vec<_> = numbers.map_while(|number| setup.refunds(number, when)).collect();
        let first = held.iter().position(|held| *held).expect("no refund was held");
        let last = held.iter().rposition(|held| *held).unwrap_or(first);
        let count = held.iter().filter(|held| **held).count();
        println!("{when:?}: {first} not held, {count} held, of {}", held.len());
        assert!(last + 1 < held.len(), "{when:?}, after the completion: {held:?}");
        assert!(when == When::After || first > 0, "before the request: {held:?}");
        // The claim, the payment that is refunded, and the point of no return.
        assert!(setup.files.is_file() || first >= 3, "{when:?}: {held:?}");
    }
}

impl Setup {
    /// Makes a refund whose server is killed at a message, and returns whether its key is held.
    /// Returns `None` if the refund has fewer messages.
    fn refunds(&mut self, number: u32, when: When) -> Option<bool> {
        let key = format!("{when:?}-{number}-{}", self.payments);
        self.payments += 1;
        let paid = self.send(&pay(&format!("paid-{key}"), "pm_card_visa")).json();
        let order = format!("payment_intent={}", paid["id"].as_str().expect("an id"));
        let request = post("/v1/refunds", &key, &order);
        let before = self.refunds_at_bank();
        let (first, reached) = self.send_and_kill(&request, "", number, when);
        let Some(at) = reached else {
            let first = first.expect("nothing was killed");
            if is_unavailable(&first) {
                // Another refund gets further.
                return self.refunds(number, when);
            }
            assert_eq!(first.status, 200);
            return None;
        };
        let made_before = self.refunds_at_bank() - before;
        self.restart();
        let response = self.retry_refund(&request, &at);
        let again = self.send(&request);
        assert_eq!((again.status, &again.body), (response.status, &response.body), "{at}");
        let (held, made) = (response.status == 409, self.refunds_at_bank() - before);
        assert!(made == 1 || held && made == 0, "{at}: {made} refunds, {response:?}");
        assert_eq!(again.is_replay(), !held, "{at}");
        // What has asked the bank is held, unless its response was recorded.
        assert!(made_before == 0 || held || response.is_replay(), "{at}: run again, {response:?}");
        if let Ok(first) = first
            && !is_unavailable(&first)
        {
            assert_eq!((first.status, &first.body), (response.status, &response.body), "{at}");
        }
        Some(held)
    }

    fn refunds_at_bank(&self) -> i64 {
        self.files.count_at_bank("SELECT count(*) FROM bank_transfers WHERE kind = 'refund'")
    }

    fn retry_refund(&self, request: &Request, at: &str) -> ClientResponse {
        let until = Instant::now() + WAIT_LIMIT;
        loop {
            self.files.expire_leases();
            let response = self.send(request);
            if response.status == 200 || response.problem().1 == "outcome_unknown" {
                return response;
            }
            assert_eq!(response.problem().1, "in_flight", "{at}: {response:?}");
            assert!(Instant::now() < until, "{at}: the lease does not end");
        }
    }
}
