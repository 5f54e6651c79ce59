//! Chromium, driven through chromedriver. A command that fails ends the test with the driver's
//! message.

use std::{fmt::Display, process::Stdio};

use fantoccini::{
    Client, ClientBuilder, Locator,
    actions::{InputSource, KeyAction, KeyActions},
    wd::{Capabilities, WebDriverCompatibleCommand},
};
use http::Method;
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    time::timeout,
};
use url::{ParseError, Url};

use crate::LIMIT;

/// A browser, and its chromedriver, which is killed when this is dropped. Call
/// [`quit`](Self::quit) before.
pub(crate) struct Driver {
    client: Client,
    _process: Child,
}

impl Driver {
    /// Starts chromedriver and a browser.
    pub(crate) async fn start(javascript: bool) -> Self {
        let (process, url) = start_chromedriver().await;
        let mut browser = ClientBuilder::new(HttpConnector::new());
        let session = browser.capabilities(capabilities(javascript)).connect(&url);
        Self { client: run("start a browser", session).await, _process: process }
    }

    /// Ends the browser.
    pub(crate) async fn quit(&self) {
        let _ = timeout(LIMIT, self.client.clone().close()).await;
    }

    pub(crate) async fn goto(&self, url: &str) {
        run(url, self.client.goto(url)).await;
    }

    /// Runs the body of a function and returns its result. Waits for a promise.
    pub(crate) async fn execute(&self, script: &str) -> Value {
        run(script, self.client.execute(script, Vec::new())).await
    }

    /// Clicks an element, which is scrolled into view.
    pub(crate) async fn click(&self, selector: &str) {
        let found = self.client.find(Locator::Css(selector));
        run(selector, async { found.await?.click().await }).await;
    }

    /// Types a text into a field.
    pub(crate) async fn fill(&self, selector: &str, text: &str) {
        let found = self.client.find(Locator::Css(selector));
        run(selector, async { found.await?.send_keys(text).await }).await;
    }

    /// The text of an element as a visitor sees it, which does not need JavaScript in the page.
    pub(crate) async fn visible_text(&self, selector: &str) -> String {
        let found = self.client.find(Locator::Css(selector));
        run(selector, async { found.await?.text().await }).await
    }

    /// Presses a key.
    pub(crate) async fn press(&self, key: impl Into<char>) {
        let value = key.into();
        let keys = KeyActions::new("keyboard".to_owned());
        let keys = keys.then(KeyAction::Down { value }).then(KeyAction::Up { value });
        run("press a key", self.client.perform_actions(keys)).await;
    }

    /// Switches to the tab that was opened last.
    pub(crate) async fn switch_to_last_tab(&self) {
        let tabs = run("list the tabs", self.client.windows()).await;
        let last = tabs.into_iter().next_back().unwrap();
        run("switch to a tab", self.client.switch_to_window(last)).await;
    }

    /// Closes the tab, and switches to the first one.
    pub(crate) async fn close_tab(&self) {
        run("close a tab", self.client.close_window()).await;
        let tabs = run("list the tabs", self.client.windows()).await;
        let first = tabs.into_iter().next().unwrap();
        run("switch to a tab", self.client.switch_to_window(first)).await;
    }

    /// The messages of a log since the last call: `browser` is the console.
    pub(crate) async fn log(&self, kind: &str) -> Vec<String> {
        let command = Extension("se/log", json!({ "type": kind }));
        let entries = run("se/log", self.client.issue_cmd(command)).await;
        let message = |entry: &Value| entry["message"].as_str().unwrap().to_owned();
        entries.as_array().unwrap().iter().map(message).collect()
    }

    /// Sends a command of the Chrome DevTools Protocol.
    pub(crate) async fn devtools(&self, command: &str, parameters: Value) -> Value {
        let body = json!({ "cmd": command, "params": parameters });
        run(command, self.client.issue_cmd(Extension("goog/cdp/execute", body))).await
    }
}

/// Starts chromedriver on a free port, and returns its URL.
async fn start_chromedriver() -> (Child, String) {
    let mut command = Command::new("chromedriver");
    command.arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    loop {
        let mut process =
            command.spawn().expect("chromedriver is installed: `tests/run browser` does that");
        let mut lines = BufReader::new(process.stdout.as_mut().unwrap()).lines();
        let mut last = String::new();
        while let Some(line) = lines.next_line().await.unwrap() {
            if let Some((_, port)) = line.split_once("started successfully on port ") {
                return (process, format!("http://127.0.0.1:{}", port.trim_end_matches('.')));
            }
            last = line;
        }
        // Chromedriver takes a free port of IPv6, and ends if that port of IPv4 is in use. Another
        // start takes another port.
        assert!(last.contains("port not available"), "chromedriver does not start: {last}");
    }
}

/// The result of a command. Chromedriver ends a script or a navigation after `LIMIT`, with a better
/// message than this.
async fn run<T, E: Display>(what: &str, command: impl Future<Output = Result<T, E>>) -> T {
    let result = timeout(2 * LIMIT, command).await;
    let result = result.unwrap_or_else(|_| panic!("{what:.200}: chromedriver does not respond"));
    result.unwrap_or_else(|error| panic!("{what:.200}: {error}"))
}

/// A command of chromedriver that is not part of WebDriver: its path below the session, and its
/// parameters.
#[derive(Debug)]
struct Extension(&'static str, Value);

impl WebDriverCompatibleCommand for Extension {
    fn endpoint(&self, driver: &Url, session: Option<&str>) -> Result<Url, ParseError> {
        driver.join(&format!("session/{}/{}", session.unwrap_or_default(), self.0))
    }

    fn method_and_body(&self, _: &Url) -> (Method, Option<String>) {
        (Method::POST, Some(self.1.to_string()))
    }
}

fn capabilities(javascript: bool) -> Capabilities {
    // Containers often have neither user namespaces nor a large /dev/shm.
    let arguments =
        ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"];
    let setting = if javascript { 1 } else { 2 };
    let capabilities = json!({
        "browserName": "chrome",
        "timeouts": { "script": LIMIT.as_millis(), "pageLoad": LIMIT.as_millis() },
        "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
        "goog:chromeOptions": {
            "args": arguments,
            "prefs": { "profile.managed_default_content_settings.javascript": setting },
        },
    });
    serde_json::from_value(capabilities).unwrap()
}
