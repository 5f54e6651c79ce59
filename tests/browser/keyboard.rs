//! The page works by keyboard alone.

use fantoccini::key::Key;
use serde_json::json;

use crate::{
    browser::{Page, with_page},
    stories::compare_with_the_bank,
};

/// How often Tab is pressed at most to reach an element.
const MAX_TABS: usize = 40;

#[tokio::test]
async fn a_story_is_played_and_its_responses_are_opened_by_keyboard() {
    with_page(async |page| {
        tab_to(page, "[data-story=lost]").await;
        page.driver.press(Key::Enter).await;
        page.await_end("lost").await;
        compare_with_the_bank(page, [2, 2, 2], [2, 1, 1]).await;

        tab_to(page, "#guarded-list li:nth-child(2) summary").await;
        page.driver.press(Key::Enter).await;
        page.until("document.querySelector('#guarded-list li:nth-child(2) details').open").await;
        let response =
            "document.querySelector('#guarded-list li:nth-child(2) pre[id]').textContent";
        let response = page.get(response).await;
        let response = response.as_str().unwrap();
        assert!(response.starts_with("HTTP/1.1 201 Created\r\n"), "{response}");
        assert!(response.contains("idempotency-replayed: true\r\n"), "{response}");
    })
    .await;
}

#[tokio::test]
async fn the_checkout_and_its_switches_work_by_keyboard() {
    with_page(async |page| {
        tab_to(page, "#try summary").await;
        page.driver.press(Key::Enter).await;
        tab_to(page, "#lose").await;
        page.driver.press(' ').await;
        tab_to(page, "#guarded .pay").await;
        page.driver.press(Key::Enter).await;
        page.until(
            "document.querySelector('#guarded-list .outcome')?.textContent.includes('broke')",
        )
        .await;
        page.until("document.getElementById('guarded-charges').textContent === '1'").await;
    })
    .await;
}

/// Presses Tab until an element has the focus. The focus is visible on each element on the way.
pub(crate) async fn tab_to(page: &Page, selector: &str) {
    for _ in 0..MAX_TABS {
        page.driver.press(Key::Tab).await;
        let style = "getComputedStyle(document.activeElement)";
        let outline = page.get(&format!("{style}.outlineStyle + {style}.outlineWidth")).await;
        if page.get("document.activeElement !== document.body").await == json!(true) {
            let element = page.get("document.activeElement.outerHTML.slice(0, 80)").await;
            assert_eq!(outline, json!("solid3px"), "the focus is not visible on {element}");
        }
        if page.get(&format!("document.activeElement.matches('{selector}')")).await == json!(true) {
            return;
        }
    }
    panic!("{MAX_TABS} presses of Tab do not reach {selector}");
}
