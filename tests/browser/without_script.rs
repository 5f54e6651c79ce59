//! Without JavaScript, the page says what to do.

use thirtyfour::By;

use crate::browser::{Window, with_browser};

#[tokio::test]
async fn without_javascript_the_page_says_what_to_do() {
    with_browser(Window { script: false, ..Window::DESKTOP }, async |page| {
        page.driver.goto(page.front.url.clone()).await.unwrap();
        let body = page.driver.find(By::Tag("body")).await.unwrap().text().await.unwrap();
        for expected in [
            "This page needs JavaScript",
            "curl -i localhost:8080/v1/payment_intents",
            "#[idempotent(scope = \"user\"",
        ] {
            assert!(body.contains(expected), "{body}");
        }
    })
    .await;
}
