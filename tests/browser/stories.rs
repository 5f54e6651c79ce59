//! Each story is played; what the page says at its end is compared with the bank's books and with
//! the store.

use serde_json::{Value, json};

use crate::{
    browser::{Page, with_page},
    front::state_of,
};

/// What a story must lead to.
struct Expected {
    /// Requests, runs of the handler, and charges.
    bare: [u64; 3],
    guarded: [u64; 3],
    /// What the requests of each side got, in the order in which they were sent.
    bare_outcomes: &'static [&'static str],
    guarded_outcomes: &'static [&'static str],
    result: &'static str,
}

const NO_RESPONSE: &str = "the connection broke, no response";
const CLOSED: &str = "the server closed the connection, no response";
const GAVE_UP: &str = "no response yet, the client gave up";
const CREATED: &str = "201 Created";
const REPLAYED: &str = "201 Created, replayed";
const IN_FLIGHT: &str = "409 Conflict, in_flight";

#[tokio::test]
async fn a_lost_response() {
    check(
        "lost",
        Expected {
            bare: [2, 2, 2],
            guarded: [2, 1, 1],
            bare_outcomes: &[NO_RESPONSE, CREATED],
            guarded_outcomes: &[NO_RESPONSE, REPLAYED],
            result: "Without the attribute: charged twice. \
                 With it: charged once; the retry got the first response.",
        },
    )
    .await;
}

#[tokio::test]
async fn a_double_click() {
    check(
        "double",
        Expected {
            bare: [2, 2, 2],
            guarded: [3, 1, 1],
            bare_outcomes: &[CREATED, CREATED],
            guarded_outcomes: &[CREATED, IN_FLIGHT, REPLAYED],
            result: "Without the attribute: charged twice. \
                 With it: charged once; both clicks got the same response.",
        },
    )
    .await;
}

#[tokio::test]
async fn an_impatient_client() {
    check(
        "slow",
        Expected {
            bare: [2, 2, 2],
            guarded: [3, 1, 1],
            bare_outcomes: &[GAVE_UP, CREATED],
            guarded_outcomes: &[GAVE_UP, IN_FLIGHT, REPLAYED],
            result: "Without the attribute: charged twice. With it: charged once; \
                 the client got the response of the request that it had given up.",
        },
    )
    .await;
}

#[tokio::test]
async fn a_killed_server_whose_key_is_resolved_in_the_console() {
    with_page(async |page| {
        page.play("killed").await;
        let result = "Without the attribute: charged twice. \
                      With it: charged once; the key is held until somebody knows its outcome.";
        assert_eq!(page.text("result").await, result);
        assert_eq!(outcomes(page, "bare").await, [CLOSED, CREATED]);
        assert_eq!(outcomes(page, "guarded").await, [CLOSED, "409 Conflict, outcome_unknown"]);
        crate::console::complete_the_key(page).await;
        page.driver.click("#try summary").await;
        page.driver.click("#both").await;
        page.driver.click("#guarded .pay").await;
        page.until("document.querySelectorAll('#guarded-list .outcome').length === 3").await;
        page.until("!document.getElementById('guarded-list').textContent.includes('waits')").await;
        let expected = [CLOSED, "409 Conflict, outcome_unknown", REPLAYED];
        assert_eq!(outcomes(page, "guarded").await, expected);
        compare_with_the_bank(page, [2, 2, 2], [3, 1, 1]).await;
    })
    .await;
}

#[tokio::test]
async fn another_amount() {
    check(
        "amount",
        Expected {
            bare: [2, 2, 2],
            guarded: [2, 1, 1],
            bare_outcomes: &[CREATED, CREATED],
            guarded_outcomes: &[CREATED, "422 Unprocessable Entity, key_reused"],
            result: "Without the attribute: charged twice. With it: charged once; \
                 the other request was refused, and did not see the first response.",
        },
    )
    .await;
}

#[tokio::test]
async fn a_bank_that_is_down() {
    const FAILED: &str = "503 Service Unavailable, processor_unavailable";
    check(
        "down",
        Expected {
            bare: [3, 3, 2],
            guarded: [3, 2, 1],
            bare_outcomes: &[FAILED, CREATED, CREATED],
            guarded_outcomes: &[FAILED, CREATED, REPLAYED],
            result: "Without the attribute: charged twice. With it: charged once; \
                 the failure did not stick to the key, and the success was replayed.",
        },
    )
    .await;
}

#[tokio::test]
async fn two_tabs() {
    with_page(async |page| {
        page.play("tabs").await;
        let mut outcomes = outcomes(page, "guarded").await;
        outcomes[..2].sort(); // Either tab may be first.
        assert_eq!(outcomes, [CREATED, IN_FLIGHT, REPLAYED]);
        let result = "Without the attribute: charged twice. \
                      With it: charged once; both tabs show the same payment.";
        assert_eq!(page.text("result").await, result);
        compare_with_the_bank(page, [2, 2, 2], [3, 1, 1]).await;
    })
    .await;
}

#[tokio::test]
async fn a_story_can_be_replayed_and_has_a_new_key_and_new_books() {
    with_page(async |page| {
        page.play("amount").await;
        let first = page.text("key-text").await;
        page.play("down").await;
        assert_ne!(page.text("key-text").await, first);
        let second = page.text("key-text").await;
        page.driver.click("#replay").await;
        page.until(&format!("document.getElementById('key-text').textContent !== '{second}'"))
            .await;
        page.await_end("down").await;
        compare_with_the_bank(page, [3, 3, 2], [3, 2, 1]).await;
    })
    .await;
}

async fn check(story: &str, expected: Expected) {
    with_page(async |page| {
        page.play(story).await;
        assert_eq!(page.text("result").await, expected.result);
        assert_eq!(outcomes(page, "bare").await, expected.bare_outcomes);
        assert_eq!(outcomes(page, "guarded").await, expected.guarded_outcomes);
        compare_with_the_bank(page, expected.bare, expected.guarded).await;
    })
    .await;
}

/// What came of the requests of a side, as the page shows it.
async fn outcomes(page: &Page, side: &str) -> Vec<String> {
    let all = format!(
        "Array.from(document.querySelectorAll('#{side}-list .outcome'), (one) => one.textContent)"
    );
    serde_json::from_value(page.get(&all).await).unwrap()
}

/// Asserts that the page, the bank and the store agree.
pub(crate) async fn compare_with_the_bank(page: &Page, bare: [u64; 3], guarded: [u64; 3]) {
    let run = page.run().await;
    let books = page.front.books(&page.visit, run).await;
    for (side, expected) in [("bare", bare), ("guarded", guarded)] {
        assert_eq!(page.numbers(side).await, expected, "the numbers of {side} on the page");
        let of = &books[side];
        let charges = of["charges"].as_array().unwrap();
        let counted = [of["requests"].as_u64(), of["runs"].as_u64(), Some(charges.len() as u64)];
        assert_eq!(counted, expected.map(Some), "the numbers of {side} at the bank");
        let amount = |charge: &Value| charge["amount"].as_u64().unwrap();
        let total = charges.iter().map(amount).sum::<u64>();
        let shown = format!("€{}.{:02}", total / 100, total % 100);
        assert_eq!(page.text(&format!("{side}-total")).await, shown);
        let ids: Vec<_> = charges.iter().map(|charge| charge["charge"].clone()).collect();
        let rows = format!(
            "Array.from(document.querySelectorAll('#{side} tbody code'), (one) => one.textContent)"
        );
        assert_eq!(page.get(&rows).await, json!(ids));
    }
    let key = page.text("key-text").await;
    assert_eq!(books["key"], json!(key));
    let record = page.front.record(&page.visit, run, &key).await;
    let current = page.get("document.querySelector('#machine .current').dataset.state").await;
    assert_eq!(current, json!(state_of(record.as_ref())), "the state of the key");
    assert_eq!(books["record"]["state"], current);
    let record = record.expect("a story ends with a record");
    assert_eq!((record.record.status, record.record.attempt), (Some(201), 1));
}
