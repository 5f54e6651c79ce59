//! What a real Prometheus reads of a payments server, with the rules and the dashboard of
//! `contrib/prometheus`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, and so do its helpers"
)]

use std::{
    fs,
    io::{BufRead, BufReader},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

/// How long a number may take to arrive in Prometheus.
const LIMIT: Duration = Duration::from_secs(60);

/// A program that is killed when it is dropped, with the directory of its files.
struct Running {
    child: Child,
    _files: Option<TempDir>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn contrib() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/prometheus")
}

/// Starts a payments server on the files of a directory, and returns its address.
fn start_payments(directory: &Path) -> (Running, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_page-server"))
        .args(["--listen", "127.0.0.1:0"])
        .current_dir(directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let line = lines.find(|line| line.contains("listening on http://")).unwrap();
    let address = line.split_once("http://").unwrap().1.split_whitespace().next().unwrap();
    let address = address.trim_end_matches(['/', ',']).to_owned();
    thread::spawn(move || lines.for_each(drop));
    (Running { child, _files: None }, address)
}

/// Starts a Prometheus that reads a server every second, and returns its address. It knows no other
/// server: a Prometheus answers with the last numbers of a killed one for five minutes.
fn start_prometheus(server: &str) -> (Running, String) {
    let files = TempDir::new().unwrap();
    let directory = files.path();
    let rules = contrib().join("idempotency.rules.yml");
    let config = format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
         rule_files: [{:?}]\n\
         scrape_configs: [{{job_name: payments, static_configs: [{{targets: [{server:?}]}}]}}]\n",
        rules.canonicalize().unwrap()
    );
    let file = directory.join("prometheus.yml");
    fs::write(&file, config).unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let child = Command::new("prometheus")
        .arg(format!("--config.file={}", file.display()))
        .arg(format!("--storage.tsdb.path={}", directory.join("data").display()))
        .arg(format!("--web.listen-address={address}"))
        .stderr(fs::File::create(directory.join("prometheus.log")).unwrap())
        .spawn()
        .unwrap();
    (Running { child, _files: Some(files) }, address)
}

async fn query(prometheus: &str, expression: &str) -> Option<Value> {
    let url = format!("http://{prometheus}/api/v1/query");
    let url = reqwest::Url::parse_with_params(&url, [("query", expression)]).unwrap();
    let response: Value = reqwest::get(url).await.ok()?.json().await.ok()?;
    assert_eq!(response["status"], "success", "{expression}: {response}");
    Some(response["data"]["result"].clone())
}

/// Waits until an expression has one series, with this value.
async fn expect(prometheus: &str, expression: &str, value: &str) {
    let started = Instant::now();
    loop {
        let found = query(prometheus, expression).await;
        let series = found.as_ref().and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        assert!(series.len() < 2, "{expression} has several values: {series:?}");
        if series.iter().any(|series| series["value"][1] == value) {
            return;
        }
        assert!(started.elapsed() < LIMIT, "{expression} is not {value}, but {found:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn post(server: &str, path: &str, key: Option<&str>, body: &str) -> Option<(u16, Value)> {
    let request = reqwest::Client::new().post(format!("http://{server}{path}"));
    let request = request.header("Authorization", "Bearer sk_test_alice");
    let request =
        key.into_iter().fold(request, |request, key| request.header("Idempotency-Key", key));
    let request = request.header("Content-Type", "application/x-www-form-urlencoded");
    let response = request.body(body.to_owned()).send().await.ok()?;
    Some((response.status().as_u16(), response.json().await.unwrap_or_default()))
}

fn payment(card: &str) -> String {
    format!("amount=2000&currency=usd&payment_method={card}&confirm=true")
}

#[tokio::test]
async fn prometheus_has_the_numbers_that_requests_caused() {
    let directory = TempDir::new().unwrap();
    let (server, address) = start_payments(directory.path());
    let pay =
        async |key, body: String| post(&address, "/v1/payment_intents", key, &body).await.unwrap();
    let (status, paid) = pay(Some("k"), payment("pm_card_visa")).await;
    assert_eq!(status, 200, "{paid}");
    let replayed = pay(Some("k"), payment("pm_card_visa")).await;
    assert_eq!((replayed.0, &replayed.1), (200, &paid));
    assert_eq!(pay(Some("k"), payment("pm_card_visa").replace("2000", "2500")).await.0, 422);
    assert_eq!(pay(None, payment("pm_card_visa")).await.0, 400);
    let (_, slow) = pay(Some("slow"), payment("pm_card_slow_1500")).await;

    let (prometheus, monitor) = start_prometheus(&address);
    let operation = r#"operation="POST /v1/payment_intents""#;
    for (outcome, count) in [("ran", "2"), ("replayed", "1"), ("key_reused", "1"), ("refused", "1")]
    {
        let series = format!(r#"idempotency_requests_total{{{operation},outcome="{outcome}"}}"#);
        expect(&monitor, &series, count).await;
    }
    expect(&monitor, &format!("idempotency_run_seconds_count{{{operation}}}"), "2").await;
    // The slow card took longer than a second, the other one did not.
    let buckets = format!(r#"idempotency_run_seconds_bucket{{{operation},le="1"}}"#);
    expect(&monitor, &buckets, "1").await;
    expect(&monitor, "idempotency_in_flight", "0").await;
    expect(&monitor, "idempotency_records", "2").await;
    expect(&monitor, "idempotency_held", "0").await;

    // The server is killed in the middle of a refund, and no request uses its key again.
    let refund = format!("payment_intent={}", slow["id"].as_str().unwrap());
    let lost = post(&address, "/v1/refunds", Some("refund"), &refund);
    tokio::time::timeout(Duration::from_millis(700), lost).await.unwrap_err();
    drop((server, prometheus));
    let (server, address) = start_payments(directory.path());
    let (prometheus, monitor) = start_prometheus(&address);
    // Another request: the metrics begin with the first claim.
    let payment = payment("pm_card_visa");
    let started = post(&address, "/v1/payment_intents", Some("k3"), &payment);
    assert_eq!(started.await.unwrap().0, 200);
    expect(&monitor, "idempotency_held", "1").await;
    expect(&monitor, r#"count(ALERTS{alertname="IdempotencyKeyHeld",alertstate="firing"})"#, "1")
        .await;
    let (status, problem) = post(&address, "/v1/refunds", Some("refund"), &refund).await.unwrap();
    assert_eq!((status, &problem["code"]), (409, &"outcome_unknown".into()));
    expect(&monitor, r#"idempotency_held_total{operation="POST /v1/refunds"}"#, "1").await;

    for expression in expressions() {
        assert!(query(&monitor, &expression).await.is_some(), "{expression}");
    }
    let served = reqwest::get(format!("http://{address}/metrics")).await.unwrap();
    verify_names(&served.text().await.unwrap());
    drop((server, prometheus));
}

/// The expressions of the dashboard, as Grafana sends them. Prometheus has read those of the rules.
fn expressions() -> Vec<String> {
    let text = fs::read_to_string(contrib().join("dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let expressions: Vec<_> = targets
        .map(|target| target["expr"].as_str().unwrap())
        .map(|text| text.replace("$__rate_interval", "1m").replace("$job", ".*"))
        .map(|text| text.replace("$operation", ".*"))
        .collect();
    assert!(expressions.len() > 15);
    expressions
}

/// Every metric that the rules and the dashboard name is one that the server has, or has once a
/// call to the store fails.
fn verify_names(served: &str) {
    let files = ["idempotency.rules.yml", "dashboard.json"];
    let texts = files.map(|file| fs::read_to_string(contrib().join(file)).unwrap());
    let words = texts.iter().flat_map(|text| {
        text.split(|each: char| !(each.is_ascii_lowercase() || each == '_' || each == '1'))
    });
    let names: std::collections::BTreeSet<_> =
        words.filter(|word| word.starts_with("idempotency_")).collect();
    assert!(names.len() > 12, "{names:?}");
    for name in names.into_iter().filter(|name| *name != "idempotency_store_errors_total") {
        let name = name.trim_end_matches("_bucket");
        assert!(served.contains(&format!("# TYPE {name} ")), "{name}:\n{served}");
    }
}

#[test]
fn the_rules_fire_when_they_should_and_only_then() {
    for arguments in [
        ["check", "rules", "idempotency.rules.yml"],
        ["test", "rules", "idempotency.rules.test.yml"],
    ] {
        let output =
            Command::new("promtool").args(arguments).current_dir(contrib()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}
