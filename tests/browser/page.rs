//! What holds for the page as a whole: its headers, its code, its layout.

use serde_json::json;

use crate::browser::{Window, with_browser, with_page};

#[tokio::test]
async fn the_policy_is_strict_and_no_code_is_inline() {
    with_page(async |page| {
        let response = reqwest::get(page.url()).await.unwrap();
        let policy = response.headers()["content-security-policy"].to_str().unwrap().to_owned();
        assert_eq!(
            policy,
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
             img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        );
        let inline = "document.querySelectorAll('script:not([src]), style, [style]:not(.bar i)')";
        assert_eq!(page.get(&format!("{inline}.length")).await, json!(0));
        let handlers = "Array.from(document.querySelectorAll('*')).filter((one) => \
                        one.getAttributeNames().some((name) => name.startsWith('on'))).length";
        assert_eq!(page.get(handlers).await, json!(0));
        let foreign = "performance.getEntriesByType('resource').map((one) => one.name)\
                       .filter((name) => !name.startsWith(location.origin))";
        assert_eq!(page.get(foreign).await, json!([]));
    })
    .await;
}

#[tokio::test]
async fn the_code_that_is_shown_differs_by_the_attribute_alone() {
    with_page(async |page| {
        let (bare, guarded) = (page.text("code-bare").await, page.text("code-guarded").await);
        let (attribute, rest) = guarded.split_once('\n').unwrap();
        assert!(attribute.starts_with("#[idempotent(scope = "), "{attribute}");
        assert_eq!(rest, bare);
        let marked = page.get("document.querySelector('mark').textContent.trim()").await;
        assert_eq!(marked, json!(attribute));
        let source = include_str!("../../examples/payments/src/demo/checkout/guarded.rs");
        assert!(source.contains(&guarded), "{guarded}");
    })
    .await;
}

#[tokio::test]
async fn nothing_is_wider_than_a_narrow_phone() {
    with_browser(Window { width: 360, ..Window::DESKTOP }, async |page| {
        page.open().await;
        let overflow = "document.documentElement.scrollWidth > innerWidth || Array.from(\
                        document.querySelectorAll('body *:not(pre *)')).some((one) => \
                        one.getBoundingClientRect().right > innerWidth + 0.5)";
        assert_eq!(page.get(overflow).await, json!(false), "before a story");
        page.play("killed").await;
        page.get("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
            .await;
        assert_eq!(page.get(overflow).await, json!(false), "after a story");
    })
    .await;
}

#[tokio::test]
async fn reduced_motion_is_respected() {
    with_page(async |page| {
        let feature = json!({ "name": "prefers-reduced-motion", "value": "reduce" });
        page.driver.devtools("Emulation.setEmulatedMedia", json!({ "features": [feature] })).await;
        page.play("lost").await;
        assert_eq!(page.get("document.getAnimations().length").await, json!(0));
    })
    .await;
}

#[tokio::test]
async fn each_step_is_announced_and_waits_for_the_visitor_if_they_want() {
    with_page(async |page| {
        page.driver.click("#pace option[value=step]").await;
        page.driver.click("[data-story=lost]").await;
        let told = "document.getElementById('told')";
        assert_eq!(page.get(&format!("{told}.getAttribute('aria-live')")).await, json!("polite"));
        page.until("!document.getElementById('next').hidden").await;
        assert_eq!(page.text("step").await, "Step 1 of 2");
        assert_eq!(page.numbers("bare").await, [1, 1, 1]);
        page.driver.click("#next").await;
        page.until("document.getElementById('step').textContent === 'Step 2 of 2'").await;
        page.until("!document.getElementById('next').hidden").await;
        assert_eq!(page.numbers("bare").await, [2, 2, 2]);
        page.driver.click("#next").await;
        page.await_end("lost").await;
    })
    .await;
}

#[tokio::test]
async fn a_story_that_is_stopped_gives_the_buttons_back() {
    with_page(async |page| {
        page.driver.click("#pace option[value=step]").await;
        page.driver.click("[data-story=double]").await;
        page.until("!document.getElementById('next').hidden").await;
        page.driver.click("#stop").await;
        page.until("document.getElementById('told').textContent === 'Stopped.'").await;
        assert_eq!(page.get("document.querySelector('#bare .pay').disabled").await, json!(false));
        page.driver.click("#pace option[value='0.4']").await;
        page.play("lost").await;
        crate::stories::compare_with_the_bank(page, [2, 2, 2], [2, 1, 1]).await;
    })
    .await;
}
