//! Keys in the body beside the other extractors: their order, limits, middleware, transactions, and
//! the published specification.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
};

use actix_web::{
    App, Error, FromRequest, HttpMessage, HttpRequest, HttpResponse,
    dev::{Payload, Service},
    http::header::HeaderName,
    post,
    rt::spawn,
    web::{Data, Payload as BodyStream, ServiceConfig},
};
use futures_util::{StreamExt, stream};
use idempotent_actix::{Idempotency, Operation, Tx, idempotent, store::SqliteStore};
use sqlx::{
    Sqlite,
    sqlite::{SqliteConnectOptions, SqlitePool},
};
use test_support::{Op, Probe, Request, Server, TestApp, wait_for};

use super::{
    handlers::{User, assert_problem},
    key_sources,
};

/// Extracts the operation in a task of its own, as an extractor of an application may do. Notes
/// that the task waits.
struct InTask(Operation);

impl FromRequest for InTask {
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self, Error>>>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let probe = request.app_data::<Data<Probe>>().unwrap().clone();
        let mut operation = Operation::from_request(request, payload);
        let task = spawn(poll_fn(move |cx| {
            let operation = Pin::new(&mut operation).poll(cx);
            if operation.is_pending() {
                probe.note("waits");
            }
            operation
        }));
        Box::pin(async move { Ok(Self(task.await.unwrap()?)) })
    }
}

#[idempotent(scope = "user", key_from = "json:/id", fingerprint = "none")]
#[post("/several")]
async fn several(
    first: Operation,
    InTask(second): InTask,
    mut body: BodyStream,
    user: User,
    third: Operation,
    probe: Data<Probe>,
) -> HttpResponse {
    let mut length = 0;
    while let Some(chunk) = body.next().await {
        length += chunk.unwrap().len();
    }
    let keys = [first, second, third].map(|operation| {
        assert_eq!(operation.attempt().unwrap(), 1);
        operation.key().unwrap().as_str().to_owned()
    });
    probe.note(format!("{} {} {length}", user.0, keys.join(" ")));
    probe.run().await
}

#[idempotent(scope = "user", key_from = "json:/id", key = "optional")]
#[post("/in-transaction")]
async fn in_transaction(
    user: User,
    mut tx: Tx<Sqlite>,
    operation: Option<Operation>,
    probe: Data<Probe>,
) -> HttpResponse {
    let insert = sqlx::query("INSERT INTO events (user) VALUES (?1)").bind(user.0);
    insert.execute(tx.connection().await.unwrap()).await.unwrap();
    assert_eq!(operation.as_ref().map(|operation| operation.id().unwrap()), tx.record_id());
    probe.note(format!("{}", operation.is_some()));
    probe.run().await
}

fn services(config: &mut ServiceConfig) {
    config.service(several);
    key_sources::services(config);
}

fn event(path: &str) -> Request {
    Request::post(path).user("alice")
}

#[test]
fn extractors_wait_for_the_key_and_get_the_body_as_it_was_sent() {
    let app = TestApp::new();
    let server = app.serve(services);
    let body = r#"{"id":"evt_1","data":"0123456789"}"#;
    let (start, rest) = body.as_bytes().split_at(20);
    let head = event("/several").header("Content-Length", body.len().to_string()).without_length();
    let mut pending = server.begin_raw(&[&head.bytes()[..], start].concat());
    app.probe.await_note("waits");
    pending.send_more(rest);
    assert_eq!(pending.response().status, 201);
    for request in [
        event("/several").json(body),
        event("/several").chunks(body.as_bytes().chunks(3)),
        event("/several").json(body).header("Upgrade", "websocket"),
    ] {
        assert!(server.send(&request).is_replay());
    }
    let mut notes = app.probe.notes();
    notes.retain(|note| note != "waits");
    assert_eq!(notes, [format!("alice evt_1 evt_1 evt_1 {}", body.len())]);
}

#[test]
fn a_refused_key_ends_the_extractors_that_wait_for_it() {
    let app = TestApp::new();
    let server = app.serve(services);
    for body in ["{}", "{", r#"{"id":[]}"#] {
        assert_eq!(server.send(&event("/several").json(body)).status, 400, "{body}");
    }
    drop(server.begin_raw(
        b"POST /several HTTP/1.1\r\nHost: h\r\nX-User: alice\r\nContent-Length: 10\r\n\r\n{",
    ));
    assert_eq!(server.send(&event("/several").json(r#"{"id":1}"#)).status, 201);
    assert_eq!((app.probe.runs(), app.store.calls(Op::Claim)), (1, 1));
}

#[test]
fn a_body_over_the_limit_is_refused_even_if_its_key_is_optional() {
    let app = TestApp::set(|builder| builder.body_limit(20));
    let server = app.serve(services);
    let (right, long) = (r#"{"id":"k","l":"234"}"#, r#"{"id":"k","l":"2345"}"#);
    for path in ["/several", "/json-or-none"] {
        assert_eq!(server.send(&event(path).json(right)).status, 201);
        assert_problem(&server.send(&event(path).json(long)), 413, "body_too_large", false);
        let chunked = event(path).chunks(long.as_bytes().chunks(7));
        assert_problem(&server.send(&chunked), 413, "body_too_large", false);
    }
    assert_eq!(app.probe.runs(), 2);
}

#[test]
fn a_body_that_middleware_has_read_is_not_one_without_a_key() {
    let app = TestApp::new();
    let (idempotency, probe) = (app.idempotency.clone(), app.probe.clone());
    let server = Server::start(move || {
        App::new()
            .app_data(idempotency.clone())
            .app_data(Data::new(probe.clone()))
            .configure(services)
            .wrap_fn(|mut request, service| {
                drop(request.take_payload());
                if request.headers().contains_key("x-ended") {
                    let payload = Box::pin(stream::empty());
                    request.set_payload(Payload::Stream { payload });
                }
                service.call(request)
            })
    });
    let body = r#"{"id":"k"}"#;
    for path in ["/several", "/json-or-none", "/form-or-none", "/function-or-none", "/event"] {
        for request in [
            event(path).json(body),
            event(path).chunks([body]),
            event(path).json(body).header("X-Ended", "1"),
        ] {
            assert_problem(&server.send(&request), 500, "misconfigured", false);
        }
    }
    let by_header = event("/header").header("webhook-id", "k").json(body);
    assert_problem(&server.send(&by_header), 500, "misconfigured", false);
    assert_eq!(app.probe.runs(), 0);
}

#[test]
fn a_transaction_knows_the_record_of_a_key_in_the_body() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("records.db");
    let (store, pool) = wait_for("the store", async {
        let store = SqliteStore::connect(&format!("sqlite:{}", file.display())).await.unwrap();
        store.migrate().await.unwrap();
        let options = SqliteConnectOptions::new().filename(&file);
        let pool = SqlitePool::connect_with(options).await.unwrap();
        sqlx::query("CREATE TABLE events (user TEXT)").execute(&pool).await.unwrap();
        (store, pool)
    });
    let (idempotency, probe) = (Idempotency::new(store), Probe::new());
    let data = probe.clone();
    let server = Server::start(move || {
        let app = App::new().app_data(idempotency.clone()).app_data(Data::new(data.clone()));
        app.service(in_transaction)
    });
    for body in [r#"{"id":"k"}"#, r#"{"id":"k"}"#, "{}", "{}"] {
        let response = server.send(&event("/in-transaction").json(body));
        assert_eq!(response.status, 201, "{}", response.text());
    }
    assert_eq!(probe.notes(), ["true", "false", "false"]);
    let count = sqlx::query_scalar::<_, i64>("SELECT count(*) FROM events").fetch_one(&pool);
    assert_eq!(wait_for("the count", count).unwrap(), 3);
}

/// Two handlers with the same name in one macro call, whose key functions cannot be told apart.
macro_rules! twins {
    ($($register:ident $path:literal $key:literal;)*) => { $(
        fn $register(config: &mut ServiceConfig) {
            fn key(_: &HttpRequest, _: &[u8]) -> &'static str {
                $key
            }
            #[idempotent(scope = "user", key_from = "key")]
            #[post($path)]
            async fn twin(user: User, probe: Data<Probe>) -> HttpResponse {
                probe.note(user.0);
                probe.run().await
            }
            config.service(twin);
        }
    )* };
}

twins! {
    one "/one" "1";
    other "/other" "2";
}

#[test]
fn no_handler_takes_its_keys_from_the_function_of_another_one() {
    let app = TestApp::new();
    let server = app.serve(|config: &mut ServiceConfig| {
        one(config);
        other(config);
    });
    for path in ["/one", "/other"] {
        assert_problem(&server.send(&event(path)), 500, "misconfigured", false);
    }
    assert_eq!(app.probe.runs(), 0);
}

#[test]
fn the_specification_shows_the_source_of_each_key() {
    let app = TestApp::set(|builder| builder.header(HeaderName::from_static("x-request-token")));
    let specification = app.idempotency.specification();
    let operations = specification["operations"].as_array().unwrap();
    let source = |handler: [&str; 2]| {
        let [handler, path] = handler;
        let operation = operations.iter().find(|operation| {
            operation["handler"] == handler && operation["routes"][0]["path"] == path
        });
        operation.unwrap()["key_from"].as_str().unwrap()
    };
    for (operation, expected) in [
        (["pay", "/payments"], "header:x-request-token"),
        (["by_header", "/header"], "header:webhook-id"),
        (["by_field", "/form"], "form:idempotency_key"),
        (["by_event", "/event"], "json:/data/0/~1id"),
        (["by_query", "/query"], "custom"),
    ] {
        assert_eq!(source(operation), expected);
    }
}
