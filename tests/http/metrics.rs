//! The metrics of the feature `metrics`, and the calls of `on_held`.

use std::{
    sync::{Arc, Mutex, OnceLock},
    time::{Duration, Instant},
};

use actix_web::{
    HttpResponse, post,
    web::{self, Data, ServiceConfig},
};
use idempotent_actix::{
    Disposition, Idempotency, Key, RejectUnsupportedKeys, RequestOutcome, idempotent,
    job::{Failure, Job},
    scope::ScopeId,
};
use idempotent_sqlite::internals::batched_sqlite;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use test_support::{Fault, Op, Probe, Request, TestApp, subjects::sqlite::File, wait_for};

use super::handlers::User;

/// The metrics of this process. Its tests share one recorder, so each uses operations of its own.
fn recorded() -> &'static PrometheusHandle {
    static RECORDED: OnceLock<PrometheusHandle> = OnceLock::new();
    RECORDED.get_or_init(|| {
        let buckets = &idempotent_actix::metrics::SECONDS_BUCKETS;
        PrometheusBuilder::new().set_buckets(buckets).unwrap().install_recorder().unwrap()
    })
}

/// The value of a series, such as `idempotency_requests_total{operation="pay",outcome="ran"}`.
fn value(series: &str) -> Option<f64> {
    let text = recorded().render();
    let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
    Some(value.parse().unwrap())
}

fn requests(operation: &str, outcome: &str) -> f64 {
    let labels = format!("{{operation=\"{operation}\",outcome=\"{outcome}\"}}");
    value(&format!("idempotency_requests_total{labels}")).unwrap_or_default()
}

macro_rules! handlers {
    ($($name:ident $operation:literal $path:literal $(, $key:ident = $value:literal)*;)*) => {
        $(
            #[idempotent(scope = "user", name = $operation $(, $key = $value)*)]
            #[post($path)]
            async fn $name(user: User, probe: Data<Probe>) -> HttpResponse {
                probe.note(user.0);
                probe.run().await
            }
        )*
        fn all(config: &mut ServiceConfig) {
            config$(.service($name))*.service(by_pattern);
            config.route("/by-hand/{id}", web::post().to(by_hand));
        }
    };
}

handlers! {
    counted "counted" "/counted";
    timed "timed" "/timed", wait = "50ms";
    paged "paged" "/paged";
    failing "failing" "/failing";
    optional_key "optional key" "/optional-key", key = "optional";
}

#[idempotent(scope = "user")]
#[post("/by-pattern/{id}")]
async fn by_pattern(user: User, probe: Data<Probe>) -> HttpResponse {
    probe.note(user.0);
    probe.run().await
}

#[idempotent(scope = "user", method = "POST")]
async fn by_hand(user: User, probe: Data<Probe>) -> HttpResponse {
    probe.note(user.0);
    probe.run().await
}

#[test]
fn each_outcome_is_counted_by_its_label() {
    recorded();
    let app = TestApp::responding(|run| {
        assert!(run != 2, "the handler panics");
        HttpResponse::Created().finish()
    });
    let server = app.serve(all);
    let post = |key: &str| Request::post("/counted").user("a").key(key).body("b");
    let send = |request: &Request| server.send(request).status;
    assert_eq!(send(&post("k")), 201);
    assert_eq!(send(&post("k")), 201);
    assert_eq!(send(&post("k").body("c")), 422);
    assert_eq!(send(&Request::post("/counted").user("a")), 400);
    assert_eq!(send(&post("a b")), 400);
    assert_eq!(send(&post("k2")), 500);
    app.store.fail(Op::Claim, 2, Fault::Before);
    assert_eq!(send(&post("k3")), 503);
    let counts = RequestOutcome::ALL.iter().map(|outcome| {
        let count = requests("counted", outcome.label());
        (outcome.label(), count)
    });
    let counts: Vec<_> = counts.filter(|(_, count)| *count > 0.0).collect();
    let expected = [
        ("ran", 1.0),
        ("replayed", 1.0),
        ("key_reused", 1.0),
        ("refused", 2.0),
        ("handler_failed", 1.0),
        ("unavailable", 1.0),
    ];
    assert_eq!(counts, expected);
    // A series that has counted nothing is there, so that a rate begins at 0.
    let overloaded = "idempotency_requests_total{operation=\"counted\",outcome=\"overloaded\"}";
    assert_eq!(value(overloaded), Some(0.0));
}

#[test]
fn requests_without_a_key_are_counted() {
    recorded();
    let server = TestApp::new().serve(all);
    assert_eq!(server.send(&Request::post("/optional-key").user("a")).status, 201);
    assert_eq!(requests("optional key", "ran"), 1.0);
}

#[test]
fn labels_have_the_pattern_of_a_path_and_never_the_path() {
    recorded();
    let server = TestApp::new().serve(all);
    for path in ["/by-pattern/a-secret-path", "/by-hand/a-secret-path"] {
        let request =
            Request::post(path).user("a-secret-user").key("a-secret-key").body("a-secret");
        assert_eq!(server.send(&request).status, 201);
    }
    assert_eq!(requests("POST /by-pattern/{id}", "ran"), 1.0);
    assert_eq!(requests("POST /by-hand/{id}", "ran"), 1.0);
    let text = recorded().render();
    assert!(!text.contains("a-secret"), "{text}");
}

#[test]
fn a_key_at_an_operation_that_does_not_support_it_is_counted_as_other() {
    recorded();
    let before = requests("other", "refused");
    let app = TestApp::new();
    let idempotency = app.idempotency.clone();
    let server = test_support::Server::start(move || {
        actix_web::App::new()
            .route("/plain", web::post().to(HttpResponse::Ok))
            .wrap(RejectUnsupportedKeys::new(&idempotency))
    });
    assert_eq!(server.send(&Request::post("/plain").key("k").body("b")).status, 400);
    assert!(requests("other", "refused") > before);
}

#[test]
fn the_times_of_an_operation_are_in_histograms() {
    recorded();
    let app = TestApp::new();
    let server = app.serve(all);
    let post = || Request::post("/timed").user("a").key("k").body("b");
    app.probe.hold();
    let first = server.begin(&post());
    app.probe.await_runs(1);
    assert_eq!(server.send(&post()).status, 409);
    app.probe.release_all();
    assert_eq!(first.response().status, 201);
    let count =
        |step: &str| value(&format!("idempotency_{step}_seconds_count{{operation=\"timed\"}}"));
    assert_eq!(["claim", "wait", "run", "complete"].map(count), [2.0, 1.0, 1.0, 1.0].map(Some));
    let waited = value("idempotency_wait_seconds_sum{operation=\"timed\"}").unwrap();
    assert!((0.05..5.0).contains(&waited), "{waited}");
    // The shortest bucket of a wait of 50 ms.
    let below =
        |bound| format!("idempotency_wait_seconds_bucket{{operation=\"timed\",le=\"{bound}\"}}");
    assert_eq!(value(&below("0.02")), Some(0.0));
}

#[test]
fn somebody_is_paged_once_for_a_held_key() {
    recorded();
    let pages = Arc::new(Mutex::new(Vec::new()));
    let (noted, held) = (pages.clone(), |_| {
        let mut response = HttpResponse::Ok().finish();
        response.extensions_mut().insert(Disposition::Unknown);
        response
    });
    let app = TestApp::with(Probe::responding(held), |builder| {
        builder.on_held(move |held| noted.lock().unwrap().push(held.to_string()))
    });
    let server = app.serve(all);
    let post = Request::post("/paged").user("a").key("k").body("b");
    assert_eq!([server.send(&post).status, server.send(&post).status], [200, 409]);
    let id = TestApp::id("a", "paged", "k");
    assert_eq!(*pages.lock().unwrap(), [format!("{id} (paged)")]);
    assert_eq!(requests("paged", "became_held"), 1.0);
    assert_eq!(requests("paged", "outcome_unknown"), 1.0);
    assert_eq!(value("idempotency_held_total{operation=\"paged\"}"), Some(1.0));
}

#[test]
fn the_records_of_the_store_are_counted() {
    recorded();
    let app = TestApp::set(|builder| builder.count_every(Some(Duration::from_secs(1))));
    let server = app.serve(all);
    let post = Request::post("/failing").user("a").key("k").body("b");
    assert_eq!(server.send(&post).status, 201);
    // Other tests count the records of their stores, each every minute.
    let started = Instant::now();
    while (value("idempotency_records"), value("idempotency_held")) != (Some(1.0), Some(0.0)) {
        assert!(started.elapsed() < Duration::from_secs(30), "{}", recorded().render());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn runs_of_jobs_are_counted() {
    recorded();
    const IMPORT: Job = Job::new("import of the metrics");
    let app = TestApp::new();
    let (scope, key) = (ScopeId::global(), Key::from_text("k").unwrap());
    let run = |input: u32| {
        let idempotency: &Idempotency = &app.idempotency;
        let run = idempotency.run(&IMPORT, &scope, &key, &input, |_| async { Ok::<_, Failure>(7) });
        drop(wait_for("the run", run));
    };
    run(1);
    run(1);
    run(2);
    let counts = ["ran", "replayed", "key_reused"].map(|outcome| requests(IMPORT.name, outcome));
    assert_eq!(counts, [1.0, 1.0, 1.0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sizes_of_batches_are_counted() {
    recorded();
    const BATCHED: Job = Job::new("batched");
    let file = File::new();
    let store = batched_sqlite(file.open().await);
    store.migrate().await.unwrap();
    let idempotency = Idempotency::builder(store).namespace("batches");
    let idempotency = idempotency.count_every(Some(Duration::from_secs(1))).build();
    let runs = (0..20u32).map(|number| {
        let (scope, key) = (ScopeId::global(), Key::from_text(number.to_string()).unwrap());
        let work = |_| async { Ok::<_, Failure>(7) };
        idempotency.run(&BATCHED, &scope, &key, &number, work)
    });
    for done in futures_util::future::join_all(runs).await {
        assert!(!done.unwrap().replayed);
    }
    let started = Instant::now();
    // Each run is a claim and a completion.
    while value("idempotency_batches_sum") != Some(40.0) {
        assert!(started.elapsed() < Duration::from_secs(30), "{}", recorded().render());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let batches = value("idempotency_batches_count").unwrap();
    assert!((1.0..40.0).contains(&batches), "{batches}");
}
