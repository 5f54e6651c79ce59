//! A client of chromedriver: the commands of WebDriver that these tests need.
//!
//! Written here, because `thirtyfour` enables `preserve_order` of `serde_json` for every crate of
//! the workspace, which would test other servers than users run, and `fantoccini` has 22
//! dependencies that nothing else in the workspace has.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    thread,
};

use reqwest::{Client, Method};
use serde_json::{Value, json};

use crate::LIMIT;

/// The member of an object that refers to an element (WebDriver §12).
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// The code points of keys (WebDriver §17.4.2).
pub(crate) const TAB: char = '\u{E004}';
pub(crate) const ENTER: char = '\u{E007}';

/// A browser. Its chromedriver is killed when it is dropped; call [`quit`](Self::quit) before.
pub(crate) struct Driver {
    process: Child,
    client: Client,
    session: String,
}

impl Driver {
    /// Starts chromedriver on a free port, and a browser.
    pub(crate) async fn start(javascript: bool) -> Self {
        let mut command = Command::new("chromedriver");
        command.arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process =
            command.spawn().expect("chromedriver is installed: `tests/run browser` does that");
        let output = BufReader::new(process.stdout.take().unwrap());
        let mut lines = output.lines().map_while(Result::ok);
        let port = lines.find_map(|line| {
            let port = line.split_once("started successfully on port ")?.1;
            port.trim_end_matches('.').parse::<u16>().ok()
        });
        thread::spawn(move || lines.for_each(drop));
        let session = format!("http://127.0.0.1:{}/session", port.expect("chromedriver's port"));
        let client = Client::builder().no_proxy().timeout(2 * LIMIT).build().unwrap();
        let mut driver = Self { process, client, session };
        let created = driver.send(Method::POST, "", &capabilities(javascript)).await;
        let id = created["sessionId"].as_str().expect("the id of the session");
        driver.session = format!("{}/{id}", driver.session);
        let timeouts = json!({ "script": LIMIT.as_millis(), "pageLoad": LIMIT.as_millis() });
        driver.post("timeouts", timeouts).await;
        driver
    }

    /// Ends the browser.
    pub(crate) async fn quit(&self) {
        let _ = self.client.delete(&self.session).send().await;
    }

    /// Sends a command. Panics with the driver's message if it fails.
    async fn send(&self, method: Method, path: &str, body: &Value) -> Value {
        let request = self.client.request(method.clone(), format!("{}{path}", self.session));
        let request = if method == Method::POST { request.json(body) } else { request };
        let response = request.send().await.expect("chromedriver responds");
        let status = response.status();
        let value = response.json::<Value>().await.unwrap()["value"].take();
        assert!(status.is_success(), "{method} {path}: {}", value["message"]);
        value
    }

    async fn post(&self, command: &str, body: Value) -> Value {
        self.send(Method::POST, &format!("/{command}"), &body).await
    }

    pub(crate) async fn goto(&self, url: &str) {
        self.post("url", json!({ "url": url })).await;
    }

    /// Runs the body of a function and returns its result.
    pub(crate) async fn execute(&self, script: &str) -> Value {
        self.post("execute/sync", json!({ "script": script, "args": [] })).await
    }

    /// Runs the body of a function, and waits until it calls its argument with the result.
    pub(crate) async fn execute_async(&self, script: &str) -> Value {
        self.post("execute/async", json!({ "script": script, "args": [] })).await
    }

    async fn find(&self, selector: &str) -> String {
        let query = json!({ "using": "css selector", "value": selector });
        let found = self.post("element", query).await;
        format!("element/{}", found[ELEMENT].as_str().unwrap())
    }

    /// Clicks an element, which is scrolled into view.
    pub(crate) async fn click(&self, selector: &str) {
        let element = self.find(selector).await;
        self.post(&format!("{element}/click"), json!({})).await;
    }

    /// The text of an element as a visitor sees it, which does not need JavaScript in the page.
    pub(crate) async fn visible_text(&self, selector: &str) -> String {
        let element = self.find(selector).await;
        let text = self.send(Method::GET, &format!("/{element}/text"), &Value::Null).await;
        text.as_str().unwrap().to_owned()
    }

    /// Presses a key.
    pub(crate) async fn press(&self, key: char) {
        let steps = ["keyDown", "keyUp"].map(|step| json!({ "type": step, "value": key }));
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": steps });
        self.post("actions", json!({ "actions": [keyboard] })).await;
    }

    /// Switches to the tab that was opened last.
    pub(crate) async fn switch_to_last_tab(&self) {
        let tabs = self.send(Method::GET, "/window/handles", &Value::Null).await;
        let last = tabs.as_array().unwrap().last().unwrap();
        self.post("window", json!({ "handle": last })).await;
    }

    /// The messages of a log since the last call: `browser` is the console.
    pub(crate) async fn log(&self, kind: &str) -> Vec<String> {
        let entries = self.post("se/log", json!({ "type": kind })).await;
        let message = |entry: &Value| entry["message"].as_str().unwrap().to_owned();
        entries.as_array().unwrap().iter().map(message).collect()
    }

    /// Sends a command of the Chrome DevTools Protocol.
    pub(crate) async fn devtools(&self, command: &str, parameters: Value) -> Value {
        self.post("goog/cdp/execute", json!({ "cmd": command, "params": parameters })).await
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn capabilities(javascript: bool) -> Value {
    // Containers often have neither user namespaces nor a large /dev/shm.
    let arguments =
        ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"];
    let setting = if javascript { 1 } else { 2 };
    json!({ "capabilities": { "alwaysMatch": {
        "browserName": "chrome",
        "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
        "goog:chromeOptions": {
            "args": arguments,
            "prefs": { "profile.managed_default_content_settings.javascript": setting },
        },
    } } })
}
