//! The receiver of `examples/webhooks` against a sender that behaves as providers do: it delivers
//! events again, in any order and two at once, and gives up in the middle.

use std::{
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use actix_web::{App, web::Data};
use idempotent_actix::{Idempotency, store::SqliteStore};
use serde_json::{Value, json};
use tempfile::TempDir;
use test_support::{ClientResponse, Pending, Request, Server, WAIT_LIMIT, wait_for};
use webhooks::{
    Ledger, Secrets, configure,
    signature::{now, sign_standard, sign_stripe},
};

const STRIPE: &str = "whsec_stripe";
const STANDARD: &str = "whsec_c3RhbmRhcmQ=";

const SENDERS: usize = 4;
const PAYMENTS: usize = 60;

struct Receiver {
    server: Server,
    ledger: Ledger,
    idempotency: Idempotency,
    file: String,
    _folder: TempDir,
}

impl Receiver {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("webhooks.db").display().to_string();
        let (store, ledger) = wait_for("the store", async {
            let store = SqliteStore::connect(&format!("sqlite:{file}")).await.unwrap();
            store.migrate().await.unwrap();
            (store, Ledger::open(&file).await.unwrap())
        });
        let idempotency = Idempotency::new(store);
        let secrets = Secrets { stripe: STRIPE.into(), standard: STANDARD.into() };
        let (secrets, app, lines) =
            (Data::new(secrets), idempotency.clone(), Data::new(ledger.clone()));
        let server = Server::with_workers(2, move || {
            App::new()
                .app_data(app.clone())
                .app_data(secrets.clone())
                .app_data(lines.clone())
                .configure(configure)
        });
        Self { server, ledger, idempotency, file, _folder: folder }
    }

    fn deliver(&self, event: &Event) -> ClientResponse {
        self.server.send(&event.delivery(now()))
    }

    /// The lines of the ledger once no request is in progress.
    fn lines(&self) -> Vec<(String, String, i64)> {
        let drained = self.idempotency.drain(WAIT_LIMIT);
        assert!(wait_for("the end of all operations", drained));
        wait_for("the ledger", self.ledger.lines()).unwrap()
    }

    /// The number of records.
    fn records(&self) -> i64 {
        wait_for("the records", async {
            let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&self.file);
            let pool = sqlx::SqlitePool::connect_with(options).await.unwrap();
            let count = "SELECT count(*) FROM idempotency_records";
            sqlx::query_scalar(count).fetch_one(&pool).await.unwrap()
        })
    }
}

/// An event of a payment.
#[derive(Clone, Debug)]
struct Event {
    is_stripe: bool,
    id: String,
    payment: String,
    /// Negative: a refund.
    amount: i64,
}

impl Event {
    /// The payment with this number and its refund, of either provider.
    fn pair(number: usize) -> [Self; 2] {
        let payment = format!("pay_{number}");
        [("paid", 1_000), ("refunded", -400)].map(|(kind, amount)| Self {
            is_stripe: number.is_multiple_of(2),
            id: format!("evt_{number}_{kind}"),
            payment: payment.clone(),
            amount,
        })
    }

    /// The body. Stripe's has a member that differs between deliveries.
    fn body(&self) -> Value {
        let (payment, amount) = (&self.payment, self.amount.abs());
        match (self.is_stripe, self.amount > 0) {
            (true, true) => json!({
                "id": self.id, "type": "payment_intent.succeeded",
                "pending_webhooks": fastrand::u32(..9),
                "data": { "object": { "id": payment, "amount": amount } },
            }),
            (true, false) => json!({
                "id": self.id, "type": "charge.refunded",
                "pending_webhooks": fastrand::u32(..9),
                "data": { "object": { "payment_intent": payment, "amount_refunded": amount } },
            }),
            (false, paid) => json!({
                "type": if paid { "invoice.paid" } else { "invoice.refunded" },
                "data": { "invoice": payment, "amount": amount },
            }),
        }
    }

    /// A delivery that is signed at this time.
    fn delivery(&self, at: u64) -> Request {
        let body = self.body().to_string();
        if self.is_stripe {
            let signature = sign_stripe(STRIPE, at, body.as_bytes());
            return Request::post("/stripe").header("Stripe-Signature", signature).json(body);
        }
        let signature = sign_standard(STANDARD, &self.id, at, body.as_bytes()).unwrap();
        let request = Request::post("/standard").header("webhook-id", &self.id);
        let request = request.header("webhook-timestamp", at.to_string());
        request.header("webhook-signature", signature).json(body)
    }
}

/// Sends one delivery, which may be given up; returns whether the provider got a 2xx.
fn attempt(receiver: &Receiver, event: &Event) -> bool {
    let request = event.delivery(now());
    match fastrand::u8(..6) {
        // The connection is lost in the middle of the request.
        0 => {
            let bytes = request.bytes();
            drop(receiver.server.begin_raw(&bytes[..fastrand::usize(1..bytes.len())]));
            false
        }
        // The provider does not wait for the response.
        1 => {
            let pending = receiver.server.begin(&request);
            thread::sleep(Duration::from_micros(fastrand::u64(..3_000)));
            drop(pending);
            false
        }
        // Two deliveries at once.
        2 => {
            let other = receiver.server.begin(&event.delivery(now()));
            let first = accepted(&receiver.server.send(&request));
            accepted(&Pending::response(other)) && first
        }
        _ => accepted(&receiver.server.send(&request)),
    }
}

/// Whether the response is a 2xx. Any other is one after which the provider delivers again.
fn accepted(response: &ClientResponse) -> bool {
    match response.status {
        200 => assert_eq!(response.text(), r#"{"booked":true}"#),
        503 => assert!(response.text().contains("refund"), "{}", response.text()),
        status => assert_eq!((status, &*response.problem().1), (409, "in_flight")),
    }
    response.status == 200
}

#[test]
fn each_event_is_booked_once_however_it_is_delivered() {
    let receiver = Receiver::start();
    let events: Vec<Event> = (0..PAYMENTS).flat_map(Event::pair).collect();
    // Each event has two entries: a provider also delivers events that were accepted.
    let queue: Mutex<Vec<_>> = Mutex::new([events.clone(), events.clone()].concat());
    let began = Instant::now();
    thread::scope(|scope| {
        for _ in 0..SENDERS {
            scope.spawn(|| {
                loop {
                    let mut waiting = queue.lock().unwrap();
                    if waiting.is_empty() {
                        break;
                    }
                    let next = fastrand::usize(..waiting.len());
                    let event = waiting.swap_remove(next);
                    drop(waiting);
                    assert!(began.elapsed() < 4 * WAIT_LIMIT, "an event is never accepted");
                    if !attempt(&receiver, &event) {
                        queue.lock().unwrap().push(event);
                    }
                }
            });
        }
    });
    let mut expected: Vec<_> =
        events.into_iter().map(|event| (event.id, event.payment, event.amount)).collect();
    expected.sort();
    assert_eq!(receiver.lines(), expected);
}

#[test]
fn a_redelivery_gets_the_recorded_response_though_its_signature_and_its_body_differ() {
    let receiver = Receiver::start();
    for number in 0..2 {
        let [paid, _] = Event::pair(number);
        let first = receiver.server.send(&paid.delivery(now() - 200));
        assert_eq!((first.status, first.text()), (200, r#"{"booked":true}"#));
        receiver.deliver(&paid).assert_replays(&first);
    }
    assert_eq!(receiver.lines().len(), 2);
}

#[test]
fn an_event_that_fails_is_booked_once_when_it_is_delivered_again() {
    let receiver = Receiver::start();
    for number in 0..2 {
        let [paid, refunded] = Event::pair(number);
        for _ in 0..2 {
            let early = receiver.deliver(&refunded);
            assert_eq!((early.status, early.is_replay()), (503, false), "{}", early.text());
        }
        assert_eq!(receiver.deliver(&paid).status, 200);
        let booked = receiver.deliver(&refunded);
        assert_eq!((booked.status, booked.is_replay()), (200, false), "{}", booked.text());
        receiver.deliver(&refunded).assert_replays(&booked);
    }
    let amounts: Vec<_> = receiver.lines().iter().map(|(_, _, amount)| *amount).collect();
    assert_eq!(amounts, [1_000, -400, 1_000, -400]);
}

#[test]
fn a_wrong_or_an_old_signature_claims_nothing_and_gets_no_replay() {
    let receiver = Receiver::start();
    let [[stripe, _], [standard, _]] = [Event::pair(0), Event::pair(1)];
    let forged = |event: &Event| {
        let body = event.body().to_string();
        if event.is_stripe {
            let signature = sign_stripe("whsec_other", now(), body.as_bytes());
            return Request::post("/stripe").header("Stripe-Signature", signature).json(body);
        }
        let other = Event { id: "evt_other".into(), ..event.clone() };
        let signature = sign_standard(STANDARD, &other.id, now(), body.as_bytes()).unwrap();
        let request = Request::post("/standard").header("webhook-id", &event.id);
        let request = request.header("webhook-timestamp", now().to_string());
        request.header("webhook-signature", signature).json(body)
    };
    let refuse_all = || {
        for event in [&stripe, &standard] {
            for (request, why) in [
                (forged(event), "the signature does not match"),
                (event.delivery(now() - 400), "more than 5 minutes"),
                (event.delivery(now() + 400), "more than 5 minutes"),
            ] {
                let response = receiver.server.send(&request);
                assert_eq!((response.status, response.is_replay()), (401, false));
                assert!(response.text().contains(why), "{}", response.text());
            }
        }
        let unsigned = Request::post("/stripe").json(stripe.body().to_string());
        assert_eq!(receiver.server.send(&unsigned).status, 401);
    };
    refuse_all();
    assert_eq!(receiver.records(), 0);
    assert_eq!(receiver.deliver(&stripe).status, 200);
    assert_eq!(receiver.deliver(&standard).status, 200);
    // Now the keys are known, and only a valid signature gets the replay.
    refuse_all();
    assert_eq!((receiver.records(), receiver.lines().len()), (2, 2));
}

/// A delivery of Stripe's with this object.
fn of_stripe(id: &str, kind: &str, object: &Value) -> Request {
    let body = json!({ "id": id, "type": kind, "data": { "object": object } }).to_string();
    let signature = sign_stripe(STRIPE, now(), body.as_bytes());
    Request::post("/stripe").header("Stripe-Signature", signature).json(body)
}

#[test]
fn the_refunds_of_stripe_are_totals_and_are_booked_in_any_order() {
    let receiver = Receiver::start();
    // 300, then 200, then 100, as Stripe counts them.
    let payments = [("pi_1", [300, 500, 600]), ("pi_2", [600, 300, 500])];
    for (payment, totals) in payments {
        let paid = json!({ "id": payment, "amount": 2_000 });
        let event = of_stripe(&format!("{payment}_paid"), "payment_intent.succeeded", &paid);
        assert_eq!(receiver.server.send(&event).status, 200);
        for total in totals {
            let refund = json!({ "payment_intent": payment, "amount_refunded": total });
            let event = of_stripe(&format!("{payment}_{total}"), "charge.refunded", &refund);
            assert_eq!(receiver.server.send(&event).status, 200, "{payment} {total}");
        }
    }
    // This drains the receiver.
    let lines = receiver.lines();
    for (payment, _) in payments {
        let of_payment = lines.iter().filter(|(_, of, _)| of == payment);
        let left: i64 = of_payment.map(|(_, _, amount)| amount).sum();
        assert_eq!(left, 1_400, "{lines:?}");
    }
}

#[test]
fn an_event_about_money_that_cannot_be_read_is_refused_and_not_recorded() {
    let receiver = Receiver::start();
    let unreadable = [json!("2000"), json!(20.5), json!(null), json!(0), json!(-5), json!([2000])];
    for amount in &unreadable {
        let paid = json!({ "id": "pi_1", "amount": amount });
        let refund = json!({ "payment_intent": "pi_1", "amount_refunded": amount });
        for (kind, object) in [("payment_intent.succeeded", paid), ("charge.refunded", refund)] {
            let response = receiver.server.send(&of_stripe("evt_1", kind, &object));
            assert_eq!(response.status, 422, "{kind} {amount}: {}", response.text());
            assert!(response.text().contains("is not a whole number"), "{}", response.text());
        }
        let body = json!({
            "type": "invoice.paid", "data": { "invoice": "in_1", "amount": amount },
        });
        let (body, at) = (body.to_string(), now());
        let signature = sign_standard(STANDARD, "evt_1", at, body.as_bytes()).unwrap();
        let request = Request::post("/standard").header("webhook-id", "evt_1");
        let request = request.header("webhook-timestamp", at.to_string());
        let response =
            receiver.server.send(&request.header("webhook-signature", signature).json(body));
        assert_eq!(response.status, 422, "{amount}: {}", response.text());
    }
    let nameless = json!({ "payment_intent": null, "amount_refunded": 5 });
    let response = receiver.server.send(&of_stripe("evt_1", "charge.refunded", &nameless));
    assert_eq!(response.status, 422, "{}", response.text());
    assert_eq!(receiver.records(), 0);
    // The provider has mended the event.
    let paid =
        of_stripe("evt_1", "payment_intent.succeeded", &json!({ "id": "pi_1", "amount": 7 }));
    let booked = receiver.server.send(&paid);
    assert_eq!((booked.status, booked.is_replay()), (200, false));
    assert_eq!(receiver.lines(), [("evt_1".to_owned(), "pi_1".to_owned(), 7)]);
}
