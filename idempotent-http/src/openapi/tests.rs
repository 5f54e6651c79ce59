//! Golden documents: `golden/openapi/NAME.json` is a document, `golden/openapi/NAME.described.json`
//! what becomes of it. `UPDATE_EXPECT=1 cargo test -p idempotent-http openapi` rewrites the latter.

use std::path::Path;

use serde_json::{Value, json};

use super::*;
use crate::specification::{PublishedKeyRules, PublishedOperation, PublishedRoute};

mod dialects;

fn route(method: &'static str, path: Option<&'static str>) -> PublishedRoute {
    PublishedRoute { method: method.into(), path: path.map(Into::into), mounted: Vec::new() }
}

/// A handler with the default policy.
fn handler(name: &'static str, route: PublishedRoute) -> PublishedOperation {
    PublishedOperation {
        handler: name.into(),
        module: "shop::api".into(),
        routes: vec![route],
        key: "required".into(),
        key_from: "header:idempotency-key".into(),
        ttl_seconds: 86_400.0,
        claim: "lease".into(),
        fingerprint: "raw".into(),
        record: "final".into(),
        in_flight: "conflict".into(),
        abandoned: Some("retry".into()),
        scope: Some("parameter".into()),
        ..PublishedOperation::default()
    }
}

fn pay() -> PublishedOperation {
    handler("pay", route("POST", Some("/payments")))
}

/// A handler for each kind of policy.
fn handlers() -> Vec<PublishedOperation> {
    let mut export = handler("start_export", route("POST", Some("/exports")));
    export.in_flight = "poll".into();
    export.abandoned = Some("hold".into());
    export.timeout_seconds = Some(1.5);
    export.name = Some("export".into());
    let mut transfer = handler("transfer", route("POST", None));
    (transfer.claim, transfer.abandoned) = ("transaction".into(), None);
    transfer.record = "success".into();
    let mut event = handler("receive", route("POST", Some("/events/{source:[a-z]+}")));
    (event.key_from, event.scope) = ("json:/id".into(), Some("global".into()));
    let mut hook = handler("hook", route("PUT", Some("/hooks/{id}")));
    (hook.key_from, hook.key) = ("header:webhook-id".into(), "optional".into());
    hook.timeout_seconds = Some(60.0);
    hook.abandoned = Some("retry_then_hold".into());
    vec![pay(), export, transfer, event, hook]
}

fn specification(operations: Vec<PublishedOperation>) -> PublishedSpecification {
    PublishedSpecification {
        header: header_names::KEY.into(),
        key: PublishedKeyRules {
            syntax: crate::key::SYNTAX.into(),
            max_bytes: 255,
            rule: json!("any"),
        },
        replay_marker: header_names::REPLAYED.into(),
        not_run_marker: header_names::NOT_RUN.into(),
        operations,
        ..PublishedSpecification::default()
    }
}

fn render(case: ProblemCase) -> Rendered {
    let problem = Problem::new(case.kind, case.kind.advice(), "/idempotency#");
    Rendered::json(&case.problem(problem))
}

fn describe_with(document: &mut Value, specification: &PublishedSpecification) -> OpenApiReport {
    let lookups = ["/idempotency/keys/{key}".to_owned()];
    describe(document, &Server { specification, lookups: &lookups, render: &render })
}

fn describe_for(document: &mut Value, operations: Vec<PublishedOperation>) -> OpenApiReport {
    describe(
        document,
        &Server { specification: &specification(operations), lookups: &[], render: &render },
    )
}

/// A document with an empty operation at each of these places.
fn document(places: &[(&str, &str, &str)]) -> Value {
    let mut document = json!({ "openapi": "3.1.0", "paths": {} });
    for (path, method, id) in places {
        document["paths"][*path][*method] = json!({ "responses": {} });
        if !id.is_empty() {
            document["paths"][*path][*method]["operationId"] = json!(id);
        }
    }
    document
}

fn golden(name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/openapi");
    let original = std::fs::read_to_string(folder.join(format!("{name}.json"))).unwrap();
    let original: Value = serde_json::from_str(&original).unwrap();
    let mut described = original.clone();
    let report = describe_with(&mut described, &specification(handlers()));
    let text = format!("{}\n", serde_json::to_string_pretty(&described).unwrap());
    expect_test::expect_file![folder.join(format!("{name}.described.json"))].assert_eq(&text);
    expect_test::expect_file![folder.join(format!("{name}.report.txt"))]
        .assert_eq(&format!("{report}\n"));
    assert!(contains(&described, &original), "a part of the original is lost");
    let mut again = described.clone();
    let second = describe_with(&mut again, &specification(handlers()));
    assert_eq!((again, second), (described, report));
}

/// Whether a document has everything that another one has.
fn contains(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => part
            .iter()
            .all(|(name, part)| whole.get(name).is_some_and(|whole| contains(whole, part))),
        (Value::Array(whole), Value::Array(part)) => {
            whole.len() >= part.len()
                && whole.iter().zip(part).all(|(whole, part)| contains(whole, part))
        }
        (whole, part) => whole == part,
    }
}

#[test]
fn a_document_of_3_0_is_described() {
    golden("3.0");
}

#[test]
fn a_document_of_3_1_is_described() {
    golden("3.1");
}

#[test]
fn what_is_written_by_hand_wins() {
    let mut described = document(&[("/payments", "post", "pay")]);
    let operation = json!({
        "operationId": "pay",
        "parameters": [{ "name": "idempotency-key", "in": "header", "schema": {} }],
        "responses": {
            "201": {
                "description": "Paid",
                "headers": { "idempotency-replayed": { "schema": {} } },
            },
            "303": { "$ref": "#/components/responses/Other" },
            "409": { "description": "Busy" },
        },
        "x-idempotency": false,
    });
    described["paths"]["/payments"]["post"] = operation.clone();
    let report = describe_for(&mut described, vec![pay()]);
    let found = &described["paths"]["/payments"]["post"];
    assert!(contains(found, &operation));
    assert_eq!(found["parameters"], operation["parameters"]);
    assert_eq!(found["responses"]["303"], operation["responses"]["303"]);
    assert_eq!(described["components"].get("parameters"), None);
    assert_eq!(
        report.kept,
        [
            "POST /payments: it has the parameter Idempotency-Key",
            "POST /payments: it has the response 409, which lacks in_flight, outcome_unknown",
            "POST /payments: its response 201 has Idempotency-Replayed in its `headers`",
            "POST /payments: its response 303 is a reference, which lacks our headers",
            "POST /payments: it has `x-idempotency`",
        ]
    );
}

#[test]
fn components_of_the_document_keep_their_names() {
    let mut described = document(&[("/payments", "post", "pay")]);
    let theirs = json!({ "type": "object", "description": "theirs" });
    described["components"] = json!({ "schemas": { "IdempotencyProblem": theirs } });
    assert!(describe_for(&mut described, vec![pay()]).is_complete());
    let schemas = &described["components"]["schemas"];
    assert_eq!(schemas["IdempotencyProblem"], theirs);
    let response = &described["components"]["responses"]["IdempotencyProblem422"];
    assert_eq!(
        response["content"]["application/problem+json"]["schema"]["$ref"],
        "#/components/schemas/IdempotencyProblem_2"
    );
}

#[test]
fn components_that_are_no_object_are_not_replaced() {
    let mut described = document(&[("/payments", "post", "pay")]);
    described["components"] = json!({ "parameters": [] });
    assert!(describe_for(&mut described, vec![pay()]).is_complete());
    assert_eq!(described["components"]["parameters"], json!([]));
    let parameter = &described["paths"]["/payments"]["post"]["parameters"][0];
    assert_eq!(parameter["name"], "Idempotency-Key");
}

#[test]
fn an_operation_belongs_to_the_handler_of_its_name_unless_its_path_contradicts() {
    for (path, id, routed, expected) in [
        ("/a", "pay", None, true),
        ("/a", "shop::api::pay", None, true),
        ("/a", "api::pay", None, true),
        ("/a", "i::pay", None, false),
        ("/a", "other", None, false),
        ("/a", "", None, false),
        ("/v1/payments", "pay", Some("/payments"), true),
        ("/v1/payments", "", Some("/payments"), true),
        ("/v1/payments", "other", Some("/payments"), true),
        ("/refunds", "pay", Some("/payments"), false),
        ("/orders/{id}", "", Some("/{id}"), false),
        ("/orders/{id}", "pay", Some("/{id}"), true),
    ] {
        let mut described = document(&[(path, "post", id)]);
        let report = describe_for(&mut described, vec![handler("pay", route("POST", routed))]);
        let case = format!("{path} {id} {routed:?}: {report:?}");
        assert_eq!(report.described.len() == 1, expected, "{case}");
        assert_eq!(report.missing.is_empty(), expected, "{case}");
        let found = &described["paths"][path]["post"];
        assert_eq!(found.get("x-idempotency").is_some(), expected, "{case}");
    }
}

#[test]
fn another_method_is_another_operation() {
    let mut described = document(&[("/payments", "put", "pay"), ("/payments", "get", "pay")]);
    let before = described.clone();
    let report = describe_for(&mut described, vec![pay()]);
    assert_eq!(report.missing, ["POST /payments (shop::api::pay)"]);
    assert_eq!(described, before);
}

#[test]
fn what_may_be_several_things_is_reported_and_left() {
    // Two handlers of one name, two resources that end alike, and a name against a path.
    let mut other = pay();
    other.module = "shop::admin".into();
    let by_path = handler("other", route("POST", Some("/a")));
    let by_name = handler("pay", route("POST", None));
    for (places, handlers, ambiguous) in [
        (vec![("/payments", "post", "pay")], vec![pay(), other.clone()], 1),
        (vec![("/payments", "post", "admin::pay")], vec![pay(), other], 0),
        (vec![("/v1/payments", "post", ""), ("/v2/payments", "post", "")], vec![pay()], 2),
        (vec![("/payments", "post", ""), ("/v2/payments", "post", "")], vec![pay()], 1),
        (vec![("/v1/payments", "post", "pay"), ("/v2/payments", "post", "")], vec![pay()], 1),
        (vec![("/a", "post", "pay")], vec![by_path, by_name], 1),
    ] {
        let (mut described, count) = (document(&places), places.len());
        let report = describe_for(&mut described, handlers);
        assert_eq!(report.ambiguous.len(), ambiguous, "{places:?}: {report:?}");
        assert_eq!(report.described.len(), count - ambiguous, "{places:?}: {report:?}");
        let text = described.to_string();
        assert_eq!(text.matches("x-idempotency").count(), count - ambiguous, "{text}");
    }
}

#[test]
fn requests_that_were_handled_say_where_a_handler_is() {
    let places = [("/v1/payments", "post", ""), ("/v2/payments", "post", "")];
    let mut mounted = pay();
    mounted.routes[0].mounted = vec!["/v1/payments".into(), "/v2/payments".into()];
    let report = describe_for(&mut document(&places), vec![mounted.clone()]);
    assert_eq!((report.described.len(), report.is_complete()), (2, true), "{report:?}");
    mounted.routes[0].mounted = vec!["/v3/payments".into()];
    let report = describe_for(&mut document(&places), vec![mounted]);
    assert_eq!((report.described.len(), report.missing.len()), (0, 1), "{report:?}");
}

#[test]
fn references_are_followed_in_the_document_and_reported_elsewhere() {
    let mut described = json!({
        "openapi": "3.1.0",
        "paths": {
            "/payments": { "$ref": "#/components/pathItems/pay%20ments" },
            "/a": { "$ref": "#/components/pathItems/shared" },
            "/b": { "$ref": "#/components/pathItems/shared" },
            "/far": { "$ref": "other.json#/paths/~1far" },
            "/circle": { "$ref": "#/paths/~1circle" },
        },
        "components": {
            "pathItems": {
                "pay ments": {
                    "parameters": [{ "$ref": "#/components/parameters/Key" }],
                    "post": { "responses": {} },
                },
                "shared": { "post": { "operationId": "shared", "responses": {} } },
            },
            "parameters": {
                "Key": { "name": "IDEMPOTENCY-KEY", "in": "header", "schema": {} },
            },
        },
    });
    let shared = handler("shared", route("POST", None));
    let report = describe_for(&mut described, vec![pay(), shared]);
    assert_eq!(report.described, ["POST /payments (shop::api::pay)"]);
    assert_eq!(report.ambiguous.len(), 2, "{report:?}");
    assert_eq!(
        report.kept,
        [
            "POST /a: several paths share its path item",
            "POST /b: several paths share its path item",
            "POST /payments: it has the parameter Idempotency-Key",
        ]
    );
    let items = &described["components"]["pathItems"];
    assert!(items["pay ments"]["post"]["responses"].get("422").is_some());
    assert_eq!(items["pay ments"]["post"].get("parameters"), None);
    assert_eq!(items["shared"]["post"].get("x-idempotency"), None);
}

#[test]
fn a_parameter_of_another_document_may_be_that_of_the_key() {
    let mut described = document(&[("/payments", "post", "")]);
    let parameters = json!([{ "$ref": "common.json#/Key" }]);
    described["paths"]["/payments"]["post"]["parameters"] = parameters.clone();
    let report = describe_for(&mut described, vec![pay()]);
    assert_eq!(report.kept.len(), 1, "{report:?}");
    assert_eq!(described["paths"]["/payments"]["post"]["parameters"], parameters);
}

#[test]
fn the_schema_of_the_key_follows_the_rule() {
    for (rule, expected) in [
        (
            json!("any"),
            json!({ "type": "string", "minLength": 1, "maxLength": 255,
            "pattern": r"^[!#-+\--~]{1,255}$" }),
        ),
        (
            json!({ "min_bytes": 16 }),
            json!({ "type": "string", "minLength": 16, "maxLength": 255,
            "pattern": r"^[!#-+\--~]{16,255}$" }),
        ),
        (
            json!("uuid"),
            json!({ "type": "string", "minLength": 36, "maxLength": 36,
            "format": "uuid" }),
        ),
    ] {
        let mut specification = specification(vec![pay()]);
        specification.key.rule = rule;
        let mut described = document(&[("/payments", "post", "")]);
        describe_with(&mut described, &specification);
        assert_eq!(described["components"]["parameters"]["IdempotencyKey"]["schema"], expected);
    }
}

#[test]
fn a_problem_is_described_as_the_server_renders_it() {
    let render = |case: ProblemCase| Rendered {
        status: if case.status == 422 { 400 } else { case.status },
        media_type: Some("application/json".into()),
        headers: vec!["x-unknown".into(), "stripe-should-retry".into()],
        body: Some(json!({ "error": case.kind.code() })),
    };
    let specification = specification(vec![pay()]);
    let mut described = document(&[("/payments", "post", "")]);
    describe(
        &mut described,
        &Server { specification: &specification, lookups: &[], render: &render },
    );
    let operation = &described["paths"]["/payments"]["post"];
    assert_eq!(operation["responses"].get("422"), None);
    let response = &described["components"]["responses"]["IdempotencyProblem400"];
    let headers: Vec<_> = response["headers"].as_object().unwrap().keys().collect();
    assert_eq!(headers, ["Stripe-Should-Retry"]);
    let media = &response["content"]["application/json"];
    assert_eq!(media.get("schema"), None);
    assert_eq!(media["examples"]["key_reused"]["value"]["error"], "key_reused");
}

#[test]
fn other_documents_are_not_touched() {
    for (mut other, expected) in [
        (
            json!({ "swagger": "2.0", "paths": {} }),
            "the document is of version \"2.0\", not OpenAPI 3",
        ),
        (json!([]), "the document is not an OpenAPI document"),
    ] {
        let before = other.clone();
        assert_eq!(describe_for(&mut other, vec![pay()]).kept, [expected]);
        assert_eq!(other, before);
    }
}

#[test]
fn malformed_parts_are_reported_and_left() {
    let mut described = document(&[("/payments", "post", "")]);
    let operation = json!({ "parameters": {}, "responses": [] });
    described["paths"]["/payments"]["post"] = operation.clone();
    let report = describe_for(&mut described, vec![pay()]);
    assert_eq!(report.kept.len(), 2, "{report:?}");
    assert!(contains(&described["paths"]["/payments"]["post"], &operation));
}
