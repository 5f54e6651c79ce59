//! axe-core finds no violation, in either colour scheme, on a phone and on a desktop, before and
//! after a story.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::browser::{Page, Window, with_browser};

/// Where `tests/run browser` puts axe-core.
const AXE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/axe/node_modules/axe-core/axe.min.js");

#[tokio::test]
async fn axe_finds_no_violation_on_a_phone() {
    check(390, false).await;
}

#[tokio::test]
async fn axe_finds_no_violation_on_a_dark_phone() {
    check(390, true).await;
}

#[tokio::test]
async fn axe_finds_no_violation_on_a_desktop() {
    check(1280, false).await;
}

#[tokio::test]
async fn axe_finds_no_violation_on_a_dark_desktop() {
    check(1280, true).await;
}

async fn check(width: u32, dark: bool) {
    with_browser(Window { width, dark, script: true }, async |page| {
        page.open().await;
        assert_no_violation(page, "before a story").await;
        page.play("killed").await;
        assert_no_violation(page, "after a story").await;
        page.get("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
            .await;
        assert_no_violation(page, "with everything open").await;
        page.assert_no_errors().await;
    })
    .await;
}

pub(crate) async fn assert_no_violation(page: &Page, when: &str) {
    // Axe cannot see through a half-transparent animation.
    page.until("document.getAnimations().every((one) => one.playState === 'finished')").await;
    let axe = fs::read_to_string(Path::new(AXE));
    let axe = axe.unwrap_or_else(|error| panic!("{AXE}: {error}; run `tests/run browser`"));
    page.driver.execute(&axe).await;
    let run = "return axe.run(document, { resultTypes: ['violations'] });";
    let found = page.driver.execute(run).await;
    let checked = found["passes"].as_array().map_or(0, Vec::len);
    assert!(checked > 20, "axe has checked {checked} rules: {found}");
    let violation = |violation: &Value| {
        let nodes = violation["nodes"].as_array().unwrap().iter();
        let nodes: Vec<_> = nodes.map(|node| node["html"].clone()).collect();
        json!({ "rule": violation["id"], "help": violation["help"], "nodes": nodes })
    };
    let violations: Vec<_> =
        found["violations"].as_array().unwrap().iter().map(violation).collect();
    assert!(violations.is_empty(), "{when}: {violations:#?}");
}
