//! A browser with the page, and what it reports.

use std::panic::{AssertUnwindSafe, resume_unwind};

use futures_util::FutureExt as _;
use serde_json::{Value, json};

use crate::{await_that, front::Front, webdriver::Driver};

/// A window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) width: u32,
    pub(crate) dark: bool,
    pub(crate) script: bool,
}

impl Window {
    pub(crate) const DESKTOP: Self = Self { width: 1280, dark: false, script: true };
}

/// The page in a browser.
pub(crate) struct Page {
    pub(crate) driver: Driver,
    pub(crate) front: Front,
    pub(crate) visit: String,
}

/// Opens a browser and works with it. It is closed also if the work panics.
pub(crate) async fn with_browser(window: Window, work: impl AsyncFnOnce(&Page)) {
    with_browser_at(window, Front::start(), work).await;
}

/// The same, at this server.
pub(crate) async fn with_browser_at(window: Window, front: Front, work: impl AsyncFnOnce(&Page)) {
    let driver = Driver::start(window.script).await;
    let visit = uuid::Uuid::new_v4().simple().to_string();
    let mut page = Page { driver, front, visit };
    let worked = AssertUnwindSafe(async {
        page.resize(window).await;
        work(&page).await;
    });
    let worked = worked.catch_unwind().await;
    if worked.is_err() {
        // The output of a test that fails is shown.
        let reported = AssertUnwindSafe(page.problems()).catch_unwind().await;
        println!("the browser has reported: {:#?}", reported.map(|(problems, _)| problems).ok());
        println!("the server has ended: {:?}", page.front.ended());
    }
    page.driver.quit().await;
    worked.unwrap_or_else(|panic| resume_unwind(panic));
}

/// Opens the page, works with it, and checks that the browser has reported no error.
pub(crate) async fn with_page(work: impl AsyncFnOnce(&Page)) {
    with_browser(Window::DESKTOP, async |page| {
        page.open().await;
        work(page).await;
        page.assert_no_errors().await;
    })
    .await;
}

impl Page {
    /// The address of the page, with short pauses.
    pub(crate) fn url(&self) -> String {
        format!("{}?pace=fast&visit={}", self.front.url, self.visit)
    }

    /// Opens the page and waits until it is connected.
    pub(crate) async fn open(&self) {
        self.driver.goto(&self.url()).await;
        self.until("document.documentElement.dataset.connected === 'true'").await;
    }

    /// Sets the width of the window, and the colour scheme.
    pub(crate) async fn resize(&self, Window { width, dark, .. }: Window) {
        let metrics = json!({
            "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600,
        });
        self.driver.devtools("Emulation.setDeviceMetricsOverride", metrics).await;
        let scheme = if dark { "dark" } else { "light" };
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.driver.devtools("Emulation.setEmulatedMedia", json!({ "features": [feature] })).await;
    }

    /// The value of an expression in the page.
    pub(crate) async fn get(&self, expression: &str) -> Value {
        self.driver.execute(&format!("return {expression};")).await
    }

    /// The text of the element with this id.
    pub(crate) async fn text(&self, id: &str) -> String {
        let text = self.get(&format!("document.getElementById('{id}').textContent")).await;
        text.as_str().unwrap().trim().to_owned()
    }

    /// Waits until an expression is true in the page.
    pub(crate) async fn until(&self, expression: &str) {
        let holds = async || self.get(&format!("Boolean({expression})")).await == json!(true);
        await_that(expression, holds).await;
    }

    /// Plays a story to its end.
    pub(crate) async fn play(&self, story: &str) {
        self.driver.click(&format!("[data-story={story}]")).await;
        self.await_end(story).await;
    }

    /// Waits until a story has been played.
    pub(crate) async fn await_end(&self, story: &str) {
        let playing = "document.documentElement.dataset.playing";
        let ended = format!("document.documentElement.dataset.played === '{story}'");
        self.until(&format!("{ended} || !{playing}")).await;
        let told = self.text("told").await;
        assert_eq!(self.get(&ended).await, json!(true), "the story {story} failed: {told}");
    }

    /// The number of the run that is shown.
    pub(crate) async fn run(&self) -> u64 {
        let run = self.get("document.documentElement.dataset.run").await;
        run.as_str().expect("there is a run").parse().unwrap()
    }

    /// The numbers of a side as the page shows them: requests, runs, charges.
    pub(crate) async fn numbers(&self, side: &str) -> [u64; 3] {
        let mut numbers = [0; 3];
        for (place, name) in ["requests", "runs", "charges"].iter().enumerate() {
            numbers[place] = self.text(&format!("{side}-{name}")).await.parse().unwrap();
        }
        numbers
    }

    /// Asserts that there is no message on the console and that no request has failed.
    pub(crate) async fn assert_no_errors(&self) {
        let (problems, responses) = self.problems().await;
        assert!(problems.is_empty(), "the browser has reported: {problems:#?}");
        assert!(responses > 5, "only {responses} responses were logged");
    }

    /// The messages on the console, the requests that have failed, and the number of responses.
    async fn problems(&self) -> (Vec<String>, usize) {
        let (mut problems, mut responses) = (self.driver.log("browser").await, 0);
        for entry in self.driver.log("performance").await {
            let mut event: Value = serde_json::from_str(&entry).unwrap();
            let Value::Object(mut parameters) = event["message"]["params"].take() else { continue };
            let method = &event["message"]["method"];
            if method == "Network.loadingFailed" {
                // What differs if the same request fails again.
                parameters.retain(|name, _| name != "requestId" && name != "timestamp");
                problems.push(format!("a request has failed: {parameters:?}"));
            } else if method == "Network.responseReceived" {
                let response = &parameters["response"];
                let ok = response["status"].as_u64().is_some_and(|status| status < 400);
                problems.extend((!ok).then(|| format!("a request has failed: {response}")));
                responses += 1;
            }
        }
        problems.dedup();
        (problems, responses)
    }
}
