//! What of a request counts for "the same request": parts of a JSON body, the order of the query,
//! the notation of the content type.

use actix_web::{
    HttpResponse, post,
    web::{Data, ServiceConfig},
};
use idempotent_actix::idempotent;
use serde_json::json;
use test_support::{Probe, Request, TestApp};

use super::handlers::{User, assert_nothing_leaks, assert_problem};

macro_rules! handlers {
    ($($name:ident $path:literal [$($key:tt)*];)*) => {
        $(
            #[idempotent(scope = "user", $($key)*)]
            #[post($path)]
            async fn $name(user: User, probe: Data<Probe>, body: String) -> HttpResponse {
                probe.note(format!("{} {body}", user.0));
                probe.run().await
            }
        )*

        fn services(config: &mut ServiceConfig) {
            config$(.service($name))*;
        }
    };
}

handlers! {
    pay_ignoring "/parts/ignoring" [
        fingerprint = "json", ignore = ["/metadata/sent_at", "/a~1b", "/l/0"]
    ];
    pay_only "/parts/only" [fingerprint = "json", only = ["/amount", "/currency"]];
    pay_plain "/parts/plain" [fingerprint = "json"];
    pay_bytes "/parts/bytes" [];
    pay_unordered "/parts/unordered" [query = "unordered"];
    pay_unordered_json "/parts/unordered-json" [
        fingerprint = "json", only = ["/amount"], query = "unordered", content_type = "equivalent"
    ];
    pay_unordered_function "/parts/unordered-function" [
        fingerprint = "nothing", query = "unordered"
    ];
    pay_equivalent "/parts/equivalent" [content_type = "equivalent"];
}

fn nothing(_: &actix_web::HttpRequest, _: &[u8]) -> [u8; 0] {
    []
}

/// Whether two requests with one key are the same: the second is replayed. If they are not, it gets
/// 422 and nothing of the first response.
fn same(one: &Request, other: &Request) -> bool {
    let app = TestApp::new();
    let server = app.serve(services);
    let first = server.send(&one.clone().user("alice").key("k"));
    assert_eq!(first.status, 201, "{}", first.text());
    let second = server.send(&other.clone().user("alice").key("k"));
    assert_eq!(app.probe.runs(), 1);
    if second.status == 422 {
        assert_problem(&second, 422, "key_reused", false);
        assert_nothing_leaks(&second);
        return false;
    }
    second.assert_replays(&first);
    true
}

fn same_body(path: &str, one: &str, other: &str) -> bool {
    same(&Request::post(path).json(one), &Request::post(path).json(other))
}

#[test]
fn what_is_ignored_does_not_count_and_the_rest_does() {
    let one = r#"{"amount":100,"metadata":{"sent_at":1,"by":"x"},"a/b":1,"l":[1,2]}"#;
    for (other, is_same) in [
        (r#"{"amount":1e2,"metadata":{"sent_at":[2],"by":"x"},"a/b":1,"l":[1,2]}"#, true),
        (r#"{"amount":100,"metadata":{"by":"x"},"a/b":1,"l":[1,2]}"#, true),
        (r#"{"amount":100,"metadata":{"sent_at":1,"by":"x"},"l":[1,2]}"#, true),
        (r#"{"amount":100,"metadata":{"sent_at":1,"by":"x"},"l":[7,2]}"#, true),
        (r#"{"amount":101,"metadata":{"sent_at":1,"by":"x"},"a/b":1,"l":[1,2]}"#, false),
        (r#"{"amount":100,"metadata":{"sent_at":1,"by":"y"},"a/b":1,"l":[1,2]}"#, false),
        (r#"{"amount":100,"metadata":{"sent_at":1,"by":"x"},"a/b":1,"l":[1,3]}"#, false),
        (r#"{"amount":100,"sent_at":1,"metadata":{"by":"x"},"l":[1,2]}"#, false),
        (r#"{"amount":100,"metadata":{"by":"x"},"l":[1,2],"more":null}"#, false),
    ] {
        assert_eq!(same_body("/parts/ignoring", one, other), is_same, "{other}");
    }
}

#[test]
fn only_what_is_listed_counts() {
    let one = r#"{"amount":100,"currency":"eur","note":"a"}"#;
    for (other, is_same) in [
        (r#"{"amount":100.0,"currency":"eur"}"#, true),
        (r#"{"currency":"eur","amount":100,"note":{"b":[]}}"#, true),
        (r#"{"amount":101,"currency":"eur","note":"a"}"#, false),
        (r#"{"amount":100,"note":"a"}"#, false),
        (r#"{"amount":100,"currency":null,"note":"a"}"#, false),
        (r#"{"amount":"100","currency":"eur","note":"a"}"#, false),
    ] {
        assert_eq!(same_body("/parts/only", one, other), is_same, "{other}");
    }
}

#[test]
fn a_body_without_a_canonical_form_counts_whole() {
    for path in ["/parts/ignoring", "/parts/only"] {
        for (one, other) in [
            ("not json", "not  json"),
            (r#"{"note":1,"note":2}"#, r#"{"note":2,"note":1}"#),
            (r#"{"note":9007199254740993}"#, r#"{"note":9007199254740992}"#),
            ("", "{}"),
        ] {
            assert!(same_body(path, one, one), "{one}");
            assert!(!same_body(path, one, other), "{one} and {other}");
        }
    }
}

#[test]
fn the_handler_reads_the_whole_body() {
    let app = TestApp::new();
    let server = app.serve(services);
    let body = "{ \"amount\": 1.0, \"note\": 7 }";
    let _ = server.send(&Request::post("/parts/only").user("alice").key("k").json(body));
    assert_eq!(app.probe.notes(), [format!("alice {body}")]);
}

#[test]
fn the_query_counts_as_sent_unless_the_operation_says_otherwise() {
    let body = r#"{"amount":1}"#;
    let request = |target: String| Request::post(&target).json(body);
    let same = |path: &str, one: &str, other: &str| {
        same(&request(format!("{path}?{one}")), &request(format!("{path}?{other}")))
    };
    for path in
        ["/parts/bytes", "/parts/plain", "/parts/only", "/parts/ignoring", "/parts/equivalent"]
    {
        assert!(!same(path, "a=1&b=2", "b=2&a=1"), "{path}");
    }
    for path in ["/parts/unordered", "/parts/unordered-json", "/parts/unordered-function"] {
        assert!(same(path, "a=1&b=2&a=3", "b=2&a=1&a=3"), "{path}");
        assert!(!same(path, "a=1&a=2", "a=2&a=1"), "{path}");
        assert!(!same(path, "a=1&b=2", "a=2&b=1"), "{path}");
        assert!(!same(path, "a=1", "a=1&b=2"), "{path}");
    }
}

#[test]
fn the_content_type_counts_as_sent_unless_the_operation_says_otherwise() {
    let same = |path: &str, one: &str, other: &str| {
        let request = |content_type: &str| {
            Request::post(path).header("Content-Type", content_type).body(r#"{"amount":1}"#)
        };
        same(&request(one), &request(other))
    };
    let [json, utf_8] = ["application/json", "application/json; charset=utf-8"];
    for path in
        ["/parts/bytes", "/parts/plain", "/parts/only", "/parts/ignoring", "/parts/unordered"]
    {
        assert!(!same(path, json, utf_8), "{path}");
    }
    for path in ["/parts/equivalent", "/parts/unordered-json"] {
        assert!(same(path, json, utf_8), "{path}");
        assert!(same(path, utf_8, "Application/Json;Charset=UTF-8"), "{path}");
        assert!(!same(path, json, "application/json; version=2"), "{path}");
        assert!(!same(path, json, "application/merge-patch+json"), "{path}");
        assert!(!same(path, "text/plain", "text/plain; charset=utf-8"), "{path}");
    }
}

#[test]
fn a_key_with_another_request_never_sends_its_client_to_a_new_key() {
    let app = TestApp::new();
    let server = app.serve(services);
    let send =
        |body: &str| server.send(&Request::post("/parts/bytes").user("alice").key("k").body(body));
    send("100");
    let detail = send("200").json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("may have been carried out"), "{detail}");
    assert!(detail.contains("do not use a new key before you know"), "{detail}");
}

#[test]
fn the_specification_says_what_counts() {
    let specification = TestApp::new().idempotency.specification();
    let operation = |handler: &str| {
        let operations = specification["operations"].as_array().unwrap().iter();
        let paths = |operation: &&serde_json::Value| operation["routes"][0]["path"] == handler;
        operations.clone().find(paths).unwrap().clone()
    };
    let ignoring = operation("/parts/ignoring");
    assert_eq!(ignoring["fingerprint"], "json");
    assert_eq!(ignoring["ignore"], json!(["/metadata/sent_at", "/a~1b", "/l/0"]));
    assert_eq!(ignoring.get("only"), None);
    assert_eq!((&ignoring["query"], &ignoring["content_type"]), (&json!("exact"), &json!("exact")));
    let only = operation("/parts/unordered-json");
    assert_eq!((only["only"].clone(), only.get("ignore")), (json!(["/amount"]), None));
    assert_eq!(
        (&only["query"], &only["content_type"]),
        (&json!("unordered"), &json!("equivalent"))
    );
}
