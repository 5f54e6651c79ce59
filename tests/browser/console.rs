//! The console of operators in a real browser: with and without JavaScript, by keyboard, in both
//! colour schemes, and with axe-core.

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use fantoccini::key::Key;
use serde_json::{Value, json};
use sqlx::{Connection as _, SqliteConnection};

use crate::{
    accessibility::assert_no_violation,
    await_that,
    browser::{Page, Window, with_browser_at},
    front::Front,
    keyboard::tab_to,
};

const REASON: &str = "the bank has this refund";

/// The lease of the refund's handler.
const LEASE: Duration = Duration::from_secs(5);

/// Resolves the key of a story, whose link has what the bank's books say: in another tab, which is
/// closed at the end.
pub(crate) async fn complete_the_key(page: &Page) {
    page.until("!document.getElementById('operator').hidden").await;
    page.driver.click("#console").await;
    page.driver.switch_to_last_tab().await;
    page.until("document.querySelector('.story')").await;
    let body = page.get("document.querySelector('textarea[name=body]').value").await;
    assert!(body.as_str().unwrap().contains("\"charge\":\"ch_"), "{body}");
    page.driver.click("form[action$=preview] button").await;
    page.until("document.querySelector('form[action$=complete]')").await;
    page.driver.fill("input[name=reason]", "the bank has the charge").await;
    page.driver.click("form[action$=complete] button").await;
    page.until("document.querySelector('.done')").await;
    page.driver.close_tab().await;
    page.until("document.querySelector('#machine .current').dataset.state === 'completed'").await;
}

/// Runs `curl`, and returns the response with its headers.
fn curl(front: &Front, key: &str, path: &str, fields: &[&str]) -> Command {
    let mut curl = Command::new("curl");
    curl.args(["-si", "-H", "Authorization: Bearer sk_test_alice", "-H"])
        .arg(format!("Idempotency-Key: {key}"))
        .arg(format!("{}{path}", front.url));
    for field in fields {
        curl.args(["-d", field]);
    }
    curl
}

fn text_of(mut curl: Command) -> String {
    String::from_utf8(curl.output().expect("curl runs").stdout).unwrap()
}

/// A refund whose server is killed after the bank has made it. Its lease has expired.
struct KilledRefund {
    payment: String,
}

impl KilledRefund {
    async fn make(front: &mut Front) -> Self {
        let fields =
            ["amount=2000", "currency=usd", "payment_method=pm_card_slow_2000", "confirm=true"];
        let paid = text_of(curl(front, "order-1", "v1/payment_intents", &fields));
        let body = paid.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{paid}")).1;
        let paid: Value = serde_json::from_str(body).unwrap();
        let refund = Self { payment: format!("payment_intent={}", paid["id"].as_str().unwrap()) };
        let mut lost = refund.curl(front).stdout(Stdio::null()).spawn().unwrap();
        let bank = format!("sqlite:{}", front.file("bank.db").display());
        await_that("the bank makes the refund", async || {
            let mut bank = SqliteConnection::connect(&bank).await.unwrap();
            let refunds = "SELECT count(*) FROM bank_transfers WHERE kind = 'refund'";
            sqlx::query_scalar::<_, i64>(refunds).fetch_one(&mut bank).await.unwrap_or(0) == 1
        })
        .await;
        front.restart();
        lost.wait().unwrap();
        tokio::time::sleep(LEASE).await;
        refund
    }

    fn curl(&self, front: &Front) -> Command {
        curl(front, "refund-1", "v1/refunds", &[&self.payment])
    }
}

#[tokio::test]
async fn a_held_refund_is_resolved_without_javascript_and_its_retry_gets_the_response() {
    with_browser_and_refund(Window { script: false, ..Window::DESKTOP }, async |page, refund| {
        page.driver.goto(&format!("{}console", page.front.url)).await;
        let overview = page.driver.visible_text("main").await;
        assert!(overview.contains("1 held") || overview.contains("1\nheld"), "{overview}");
        assert!(overview.contains("POST /v1/refunds"), "{overview}");
        page.driver.click("tbody a").await;
        let story = page.driver.visible_text("main").await;
        assert!(story.contains("The key is held: it is not known"), "{story}");
        let held = text_of(refund.curl(&page.front));
        assert!(held.starts_with("HTTP/1.1 409") && held.contains("outcome_unknown"), "{held}");

        page.driver.click(".decide summary").await;
        page.driver.fill("textarea[name=body]", "{\"object\":\"refund\"}").await;
        page.driver.click("form[action$=preview] button").await;
        let preview = page.driver.visible_text("main").await;
        assert!(preview.contains("{\"object\":\"refund\"}"), "{preview}");
        page.driver.fill("input[name=reason]", REASON).await;
        page.driver.click("form[action$=complete] button").await;
        let done = page.driver.visible_text("main").await;
        assert!(done.contains("requests with the key get this response"), "{done}");
        assert!(done.contains(REASON), "{done}");

        let replay = text_of(refund.curl(&page.front));
        assert!(replay.starts_with("HTTP/1.1 200"), "{replay}");
        assert!(replay.contains("idempotency-replayed: true\r\n"), "{replay}");
        assert!(replay.ends_with("\r\n\r\n{\"object\":\"refund\"}"), "{replay}");
    })
    .await;
}

#[tokio::test]
async fn all_held_keys_are_released_by_keyboard() {
    with_browser_and_refund(Window::DESKTOP, async |page, refund| {
        page.driver.goto(&format!("{}console/records?state=held", page.front.url)).await;
        tab_to(page, "a[href*=\"bulk?\"]").await;
        page.driver.press(Key::Enter).await;
        page.until("document.querySelector('form[action$=confirm]')").await;
        tab_to(page, ".decide summary").await;
        page.driver.press(Key::Enter).await;
        tab_to(page, "details[open] form[action$=confirm] button").await;
        page.driver.press(Key::Enter).await;
        page.until("document.querySelector('form[action$=run]')").await;
        tab_to(page, "input[name=reason]").await;
        for character in "gone".chars() {
            page.driver.press(character).await;
        }
        tab_to(page, "input[name=confirmed]").await;
        page.driver.press(' ').await;
        tab_to(page, "form[action$=run] button").await;
        page.driver.press(Key::Enter).await;
        page.until("document.querySelector('.done')?.textContent.includes('1 of 1')").await;
        page.until("document.readyState === 'complete'").await;
        // The next request runs the refund again, which its operator has said to be right.
        let ran = text_of(refund.curl(&page.front));
        assert!(ran.starts_with("HTTP/1.1 200"), "{ran}");
        assert!(!ran.contains("idempotency-replayed"), "{ran}");
    })
    .await;
}

#[tokio::test]
async fn axe_finds_no_violation_in_the_console() {
    with_browser_and_refund(Window::DESKTOP, async |page, _| {
        let overview = page.front.url.clone() + "console/";
        page.driver.goto(&overview).await;
        let record = page.get("document.querySelector('tbody a').href").await;
        let record = record.as_str().unwrap().to_owned();
        let pages = ["", "records?state=any", "bulk?state=held", "log", "nowhere"];
        let mut pages: Vec<_> = pages.iter().map(|path| format!("{overview}{path}")).collect();
        pages.push(record.clone());
        for (width, dark) in [(390, false), (390, true), (1280, false), (1280, true)] {
            page.resize(Window { width, dark, script: true }).await;
            for url in &pages {
                check(page, url, width).await;
            }
        }
        page.driver.goto(&record).await;
        page.driver.click(".decide summary").await;
        page.driver.fill("textarea[name=body]", "{}").await;
        page.driver.click("form[action$=preview] button").await;
        page.until("document.querySelector('form[action$=complete]')").await;
        assert_no_violation(page, "before a decision").await;
        page.driver.fill("input[name=reason]", REASON).await;
        page.driver.click("form[action$=complete] button").await;
        page.until("document.querySelector('.done')").await;
        for dark in [false, true] {
            page.resize(Window { dark, ..Window::DESKTOP }).await;
            check(page, &record, 1280).await;
            check(page, &format!("{overview}log"), 1280).await;
        }
    })
    .await;
}

/// Opens a page and everything in it, and checks it. Only tables may be wider than the window, and
/// they scroll.
async fn check(page: &Page, url: &str, width: u32) {
    page.driver.goto(url).await;
    page.until("document.readyState === 'complete'").await;
    assert_no_violation(page, url).await;
    page.get("document.querySelectorAll('details').forEach((one) => { one.open = true; })").await;
    assert_no_violation(page, &format!("{url} with everything open")).await;
    let overflow = "document.documentElement.scrollWidth > innerWidth";
    assert_eq!(page.get(overflow).await, json!(false), "{url} at {width}");
}

/// Opens a browser at a server with one held refund.
async fn with_browser_and_refund(window: Window, work: impl AsyncFnOnce(&Page, &KilledRefund)) {
    let mut front = Front::start();
    let refund = KilledRefund::make(&mut front).await;
    with_browser_at(window, front, async |page| work(page, &refund).await).await;
}

/// Opens the first page of a console with a held refund.
pub(crate) async fn with_console(window: Window, work: impl AsyncFnOnce(&Page)) {
    with_browser_and_refund(window, async |page, _| {
        page.driver.goto(&format!("{}console/", page.front.url)).await;
        work(page).await;
    })
    .await;
}
