//! Without JavaScript, the page says what to do.

use crate::browser::{Window, with_browser};

#[tokio::test]
async fn without_javascript_the_page_says_what_to_do() {
    with_browser(Window { script: false, ..Window::DESKTOP }, async |page| {
        page.driver.goto(&page.front.url).await;
        let body = page.driver.visible_text("body").await;
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
