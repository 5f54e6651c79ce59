//! A browser with the page, and what it reports.

use std::{
    io::{BufRead, BufReader},
    panic::{AssertUnwindSafe, resume_unwind},
    process::{Child, Command, Stdio},
    thread,
};

use futures_util::FutureExt as _;
use serde_json::{Value, json};
use thirtyfour::{ChromiumLikeCapabilities, DesiredCapabilities, LoggingPrefsLogLevel, WebDriver};

use crate::{LIMIT, await_that, front::Front};

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
    pub(crate) driver: WebDriver,
    pub(crate) front: Front,
    pub(crate) visit: String,
}

/// Opens a browser and works with it. It is closed also if the work panics.
pub(crate) async fn with_browser(window: Window, work: impl AsyncFnOnce(&Page)) {
    let (driver_process, port) = start_driver();
    let driver = WebDriver::new(format!("http://127.0.0.1:{port}"), capabilities(window));
    let driver = driver.await.expect("the browser starts");
    driver.set_script_timeout(LIMIT).await.unwrap();
    let visit = uuid::Uuid::new_v4().simple().to_string();
    let page = Page { driver, front: Front::start(), visit };
    page.resize(window).await;
    let worked = AssertUnwindSafe(work(&page)).catch_unwind().await;
    let _ = page.driver.clone().quit().await;
    drop(driver_process);
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

fn capabilities(window: Window) -> thirtyfour::ChromeCapabilities {
    let mut capabilities = DesiredCapabilities::chrome();
    // Containers often have neither user namespaces nor a large /dev/shm.
    for argument in
        ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"]
    {
        capabilities.add_arg(argument).unwrap();
    }
    for log in ["browser", "performance"] {
        capabilities.set_logging_prefs(log, LoggingPrefsLogLevel::All).unwrap();
    }
    if !window.script {
        let blocked = json!({ "profile.managed_default_content_settings.javascript": 2 });
        capabilities.add_experimental_option("prefs", blocked).unwrap();
    }
    capabilities
}

/// A process that is killed when it is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts chromedriver on a free port.
fn start_driver() -> (Killed, u16) {
    let mut command = Command::new("chromedriver");
    let child = command.arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child =
        Killed(child.expect("chromedriver is installed: `tests/run browser` does that"));
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    let port = lines.find_map(|line| {
        let port = line.split_once("started successfully on port ")?.1;
        port.trim_end_matches('.').parse().ok()
    });
    thread::spawn(move || lines.for_each(drop));
    (child, port.expect("chromedriver prints its port"))
}

impl Page {
    /// The address of the page, with short pauses.
    pub(crate) fn url(&self) -> String {
        format!("{}?pace=fast&visit={}", self.front.url, self.visit)
    }

    /// Opens the page and waits until it is connected.
    pub(crate) async fn open(&self) {
        self.driver.goto(self.url()).await.unwrap();
        self.until("document.documentElement.dataset.connected === 'true'").await;
    }

    /// Sets the width of the window, and the colour scheme.
    pub(crate) async fn resize(&self, Window { width, dark, .. }: Window) {
        let metrics = json!({
            "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600,
        });
        self.devtools("Emulation.setDeviceMetricsOverride", metrics).await;
        let scheme = if dark { "dark" } else { "light" };
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.devtools("Emulation.setEmulatedMedia", json!({ "features": [feature] })).await;
    }

    pub(crate) async fn devtools(&self, method: &str, parameters: Value) -> Value {
        self.driver.cdp().send_raw(method, parameters).await.unwrap()
    }

    /// The value of an expression in the page.
    pub(crate) async fn get(&self, expression: &str) -> Value {
        let script = format!("return {expression};");
        self.driver.execute(script, vec![]).await.unwrap().json().clone()
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

    /// Clicks an element as a visitor does.
    pub(crate) async fn click(&self, selector: &str) {
        let element = self.driver.find(thirtyfour::By::Css(selector)).await.unwrap();
        element.scroll_into_view().await.unwrap();
        element.click().await.unwrap();
    }

    /// Plays a story to its end.
    pub(crate) async fn play(&self, story: &str) {
        self.click(&format!("[data-story={story}]")).await;
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
        let console = self.driver.get_log("browser").await.unwrap();
        assert!(console.is_empty(), "the console has messages: {console:#?}");
        let mut finished = 0;
        for entry in self.driver.get_log("performance").await.unwrap() {
            let event: Value = serde_json::from_str(&entry.message).unwrap();
            let (method, parameters) = (&event["message"]["method"], &event["message"]["params"]);
            assert_ne!(method, "Network.loadingFailed", "a request has failed: {parameters}");
            if method == "Network.responseReceived" {
                let response = &parameters["response"];
                let ok = response["status"].as_u64().is_some_and(|status| status < 400);
                assert!(ok, "a request has failed: {response}");
                finished += 1;
            }
        }
        assert!(finished > 5, "only {finished} responses were logged");
    }
}
