//! Payments whose records are in Redis or DynamoDB, where only time ends a lease: the server is
//! killed at one message after the other, each in another payment, and all requests are sent again
//! after that.

use std::{
    io, thread,
    time::{Duration, Instant},
};

use test_support::{ClientResponse, Request, WAIT_LIMIT, taps::When};

use super::{MAX_MESSAGES, Setup, is_unavailable};
use crate::payments::{pay, records::Records, server::Files};

/// Of a payment: two of the client, two of the bank at least, and a request and its response for
/// the claim, for each note, and for the completion.
const MIN_KILLS: usize = 2 * 8;

/// A payment whose server was killed.
struct Interrupted {
    request: Request,
    first: io::Result<ClientResponse>,
    at: String,
}

#[test]
fn on_redis_a_payment_survives_a_kill_at_each_message() {
    kill_at_each_message(Records::redis());
}

#[cfg(feature = "dynamodb")]
#[test]
fn on_dynamodb_a_payment_survives_a_kill_at_each_message() {
    kill_at_each_message(Records::dynamodb());
}

fn kill_at_each_message(records: Records) {
    let mut setup = Setup::start(Files::with(records));
    let mut interrupted = Vec::new();
    for when in [When::Before, When::After] {
        interrupted.extend((1..MAX_MESSAGES).map_while(|number| setup.interrupts(number, when)));
    }
    let charged = setup.charges();
    println!("{} kills, {charged} charges before the retries", interrupted.len());
    assert!(interrupted.len() >= MIN_KILLS, "a payment has only {} messages", interrupted.len());
    for payment in &interrupted {
        setup.retries(payment);
    }
    let settled = "SELECT count(*) FROM payment_intents WHERE status = 'succeeded'";
    let counts = [setup.charges(), setup.files.count(settled)];
    assert_eq!(counts, [setup.payments; 2], "charges and settled payments");
}

impl Setup {
    fn charges(&self) -> i64 {
        self.files.count_at_bank("SELECT count(*) FROM bank_transfers")
    }

    /// Makes a payment whose server is killed at a message, and starts the server again. Returns
    /// `None` if the payment has fewer messages.
    fn interrupts(&mut self, number: u32, when: When) -> Option<Interrupted> {
        let request = pay(&format!("{when:?}-{number}-{}", self.payments), "pm_card_visa");
        self.payments += 1;
        let (first, reached) = self.send_and_kill(&request, "", number, when);
        let Some(at) = reached else {
            let first = first.expect("nothing was killed");
            if is_unavailable(&first) {
                // Another payment gets further.
                self.retries(&Interrupted { request, first: Ok(first), at: "busy".to_owned() });
                return self.interrupts(number, when);
            }
            assert_eq!(first.status, 200);
            return None;
        };
        self.restart();
        Some(Interrupted { request, first, at })
    }

    /// Sends the request again until its lease has ended, and once more.
    fn retries(&self, Interrupted { request, first, at }: &Interrupted) {
        let until = Instant::now() + WAIT_LIMIT;
        let response = loop {
            let response = self.send(request);
            if response.status == 200 {
                break response;
            }
            assert_eq!(response.problem(), (409, "in_flight".to_owned()), "{at}: {response:?}");
            assert!(Instant::now() < until, "{at}: the lease does not end");
            thread::sleep(Duration::from_millis(50));
        };
        let again = self.send(request);
        assert!(again.is_replay(), "{at}: {again:?}");
        assert_eq!((again.status, &again.body), (response.status, &response.body), "{at}");
        if let Ok(first) = first
            && !is_unavailable(first)
        {
            assert!(response.is_replay(), "{at}: {response:?}");
            assert_eq!((first.status, &first.body), (response.status, &response.body), "{at}");
        }
    }
}
