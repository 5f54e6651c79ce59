//! "Try it yourself": the switches do what the stories do.

use crate::{
    browser::{Page, with_page},
    stories::compare_with_the_bank,
};

async fn await_number(page: &Page, id: &str, number: u64) {
    page.until(&format!("document.getElementById('{id}').textContent === '{number}'")).await;
}

async fn await_responses(page: &Page, side: &str, number: u64) {
    let outcomes = format!("Array.from(document.querySelectorAll('#{side}-list .outcome'))");
    page.until(&format!(
        "{outcomes}.filter((one) => !one.textContent.startsWith('waits')).length === {number}"
    ))
    .await;
}

#[tokio::test]
async fn two_payments_by_hand_are_charged_as_the_page_says() {
    with_page(async |page| {
        page.driver.click("#bare .pay").await;
        await_responses(page, "bare", 1).await;
        await_responses(page, "guarded", 1).await;
        page.driver.click("#guarded .pay").await;
        await_responses(page, "bare", 2).await;
        await_responses(page, "guarded", 2).await;
        compare_with_the_bank(page, [2, 2, 2], [2, 1, 1]).await;
    })
    .await;
}

#[tokio::test]
async fn one_side_can_pay_alone_and_a_new_checkout_begins_with_empty_books() {
    with_page(async |page| {
        page.driver.click("#try summary").await;
        page.driver.click("#both").await;
        page.driver.click("#guarded .pay").await;
        await_responses(page, "guarded", 1).await;
        compare_with_the_bank(page, [0, 0, 0], [1, 1, 1]).await;
        page.driver.click("#new-key").await;
        await_number(page, "guarded-requests", 0).await;
        page.driver.click("#guarded .pay").await;
        await_responses(page, "guarded", 1).await;
        compare_with_the_bank(page, [0, 0, 0], [1, 1, 1]).await;
    })
    .await;
}

#[tokio::test]
async fn a_server_is_killed_and_restarted_and_its_key_is_resolved_by_hand() {
    with_page(async |page| {
        page.driver.click("#try summary").await;
        page.driver.click("#bank option[value=slow]").await;
        page.until("document.documentElement.dataset.run === '1'").await;
        page.driver.click("#guarded .pay").await;
        await_number(page, "guarded-charges", 1).await;
        page.until("document.querySelector('#machine .current').dataset.state === 'in_flight'")
            .await;
        page.driver.click("#kill").await;
        await_responses(page, "guarded", 1).await;
        page.until("!document.getElementById('restart').disabled").await;
        page.driver.click("#guarded .pay").await;
        await_responses(page, "guarded", 2).await;
        assert!(page.text("guarded-list").await.contains("connection refused"));
        page.driver.click("#restart").await;
        page.until("document.querySelector('#machine .current').dataset.state === 'held'").await;
        crate::console::complete_the_key(page).await;
        page.driver.click("#bank option[value=fast]").await;
        page.driver.click("#guarded .pay").await;
        await_responses(page, "bare", 3).await;
        await_responses(page, "guarded", 3).await;
        compare_with_the_bank(page, [3, 2, 2], [3, 1, 1]).await;
    })
    .await;
}

#[tokio::test]
async fn double_clicks_two_tabs_and_impatience_by_hand() {
    with_page(async |page| {
        page.driver.click("#try summary").await;
        page.driver.click("#double").await;
        page.driver.click("#guarded .pay").await;
        await_responses(page, "bare", 2).await;
        await_responses(page, "guarded", 2).await;
        compare_with_the_bank(page, [2, 2, 2], [2, 1, 1]).await;

        page.driver.click("#new-key").await;
        await_number(page, "bare-requests", 0).await;
        page.driver.click("#tabs").await;
        page.driver.click("#guarded .pay").await;
        await_responses(page, "bare", 2).await;
        await_responses(page, "guarded", 2).await;
        assert!(page.text("guarded-list").await.contains("tab A"));
        compare_with_the_bank(page, [2, 2, 2], [2, 1, 1]).await;

        for switch in ["#tabs", "#double", "#impatient"] {
            page.driver.click(switch).await;
        }
        page.driver.click("#bank option[value=slow]").await;
        page.driver.click("#new-key").await;
        await_number(page, "bare-requests", 0).await;
        page.driver.click("#guarded .pay").await;
        await_responses(page, "bare", 2).await;
        await_responses(page, "guarded", 2).await;
        page.until("document.querySelector('#machine .current').dataset.state === 'completed'")
            .await;
        compare_with_the_bank(page, [2, 2, 2], [2, 1, 1]).await;
    })
    .await;
}
