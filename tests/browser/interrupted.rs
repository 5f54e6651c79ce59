//! The stream of events continues after an interruption, without loss or repetition.

use serde_json::{Value, json};
use test_support::proxy::{Cut, Direction, Plan, Proxy};

use crate::browser::{Page, Window, with_browser};

/// After how many bytes the connection is cut: before an event, within events, and after several.
const CUTS: [u64; 5] = [0, 1, 60, 400, 900];

#[tokio::test]
async fn a_stream_that_is_cut_continues_without_loss_or_repetition() {
    with_browser(Window::DESKTOP, async |page| {
        let proxy = Proxy::in_front_of("127.0.0.1", page.front.port()).await;
        let url = page.url().replace(&page.front.port().to_string(), &proxy.port.to_string());
        page.driver.goto(&url).await;
        page.until("document.documentElement.dataset.connected === 'true'").await;
        let run = page.front.call("start", json!({ "visit": page.visit })).await["run"].clone();
        page.until("document.documentElement.dataset.run === '1'").await;
        for (already, after) in CUTS.into_iter().enumerate() {
            let plan =
                Plan { direction: Direction::ToClient, after, cut: Cut::Reset, outage: true };
            proxy.count(Some(plan));
            pay(page, &run).await;
            pay(page, &run).await;
            page.until("!document.getElementById('connection').hidden").await;
            assert!(page.text("connection").await.contains("reconnects by itself"));
            pay(page, &run).await; // While the page is not connected.
            assert_eq!(proxy.cuts(), 1);
            proxy.end_outage();
            let requests = 3 * (already as u64 + 1);
            page.until(&format!(
                "document.getElementById('connection').hidden
                 && document.querySelectorAll('#guarded-list li').length === {requests}
                 && !document.getElementById('guarded-list').textContent.includes('waits')"
            ))
            .await;
            assert_eq!(page.numbers("guarded").await, [requests, 1, 1]);
            let books = page.front.books(&page.visit, 1).await;
            assert_eq!(books["guarded"]["requests"], json!(requests));
        }
        for what in ["missed", "repeated"] {
            let events = page.get(&format!("document.documentElement.dataset.{what}")).await;
            assert_eq!(events, Value::Null, "{what} events");
        }
    })
    .await;
}

/// Pays on the right side, past the proxy.
async fn pay(page: &Page, run: &Value) {
    let payment = json!({
        "visit": page.visit, "run": run, "side": "guarded", "amount": 4900, "label": "Pay",
    });
    page.front.call("pay", payment).await;
}

#[tokio::test]
async fn a_second_tab_with_the_same_visit_shows_the_same_run() {
    with_browser(Window::DESKTOP, async |page| {
        page.open().await;
        page.play("lost").await;
        page.driver.click("#try summary").await;
        page.driver.click("#second-tab").await;
        page.driver.switch_to_last_tab().await;
        page.until("document.getElementById('guarded-requests').textContent === '2'").await;
        crate::stories::compare_with_the_bank(page, [2, 2, 2], [2, 1, 1]).await;
    })
    .await;
}
