//! Documents of servers that speak another dialect.

use super::*;

#[test]
fn the_headers_of_another_dialect_are_described() {
    let mut handler = pay();
    handler.ignore = Some(vec!["/sent_at".into()]);
    let mut specification = specification(vec![handler]);
    specification.dialect = Some("shop".into());
    specification.replay_marker = "idempotent-replayed".into();
    specification.expiry_header = Some("x-key-expires".into());
    let mut document = json!({
        "openapi": "3.1.0",
        "paths": { "/payments": { "post": { "responses": { "200": { "description": "Paid" } } } } },
    });
    let render = |case: ProblemCase| Rendered::json(&case.problem(Problem::new(case.kind, "", "")));
    let server = Server { specification: &specification, lookups: &[], render: &render };
    assert!(describe(&mut document, &server).is_complete());
    let operation = &document["paths"]["/payments"]["post"];
    let headers = operation["responses"]["200"]["headers"].as_object().unwrap();
    let names: Vec<_> = headers.keys().map(String::as_str).collect();
    assert_eq!(names, ["Idempotency-Replay", "Idempotent-Replayed", "X-Key-Expires"]);
    let marker = &document["components"]["headers"]["IdempotencyReplayed"]["schema"];
    assert_eq!(marker, &json!({ "type": "string" }));
    assert_eq!(operation["x-idempotency"]["ignore"], json!(["/sent_at"]));
}
