//! The console of operators: its pages, its API, and what protects them.

use std::{sync::Arc, time::Duration};

use actix_web::{
    App, Error, HttpRequest,
    error::ErrorUnauthorized,
    http::{StatusCode, header::HeaderMap},
    test::{self, TestRequest},
    web,
};
use bytes::Bytes;
use idempotent_actix::{
    Idempotency, RecordId,
    scope::ScopeId,
    store::{Claim, Fingerprint, Lease, MemoryStore, OwnerToken, RecordState, Store},
};
use idempotent_console::{Access, Console};
use idempotent_core::{Abandoned, Key, ShortText, protocol::Note};
use idempotent_http::recording::{RecordedBody, encode};
use serde_json::{Value, json};

mod bulk;
mod decisions;
mod finding;

const OPERATION: &str = "POST /v1/refunds";
const SECRET: &str = "4242-4242-secret";

/// Whoever the header names; the name says what they may do.
async fn who(request: HttpRequest) -> Result<Access, Error> {
    match request.headers().get("x-user").and_then(|name| name.to_str().ok()) {
        Some("ada") => Ok(Access::Act("ada".into())),
        Some("bob") => Ok(Access::Read("bob".into())),
        Some(_) => Ok(Access::None),
        None => Err(ErrorUnauthorized("sign in first")),
    }
}

/// A console of a store in memory, mounted below a path of the application.
struct Subject {
    store: Arc<MemoryStore>,
    idempotency: Idempotency,
    console: Console,
}

/// A response, read to its end.
struct Response {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

impl Response {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {}", self.body))
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

impl Subject {
    fn new() -> Self {
        let store = Arc::new(MemoryStore::new());
        let idempotency =
            Idempotency::builder(store.clone()).namespace("shop").purge_every(None).build();
        let console = Console::new(&idempotency, who);
        Self { store, idempotency, console }
    }

    fn id(&self, key: &str) -> RecordId {
        let (scope, key) = (ScopeId::of("user", "alice"), Key::from_text(key).unwrap());
        self.idempotency.record_id(&scope, OPERATION, &key).unwrap()
    }

    async fn claimed(&self, key: &str) -> Lease {
        let owner = OwnerToken::random().unwrap();
        let claim = Claim::new(Fingerprint::from_bytes([1; Fingerprint::BYTES]), owner)
            .with_lease(Duration::from_secs(30))
            .with_ttl(Duration::from_secs(3_600))
            .with_operation(ShortText::new(OPERATION).unwrap());
        self.store.claim(&self.id(key), &claim).await.unwrap();
        Lease { id: self.id(key), owner }
    }

    async fn held(&self, key: &str) -> RecordId {
        let lease = self.claimed(key).await;
        let reference = ShortText::new(&format!("re_{key}")).unwrap();
        self.store.note(&lease, &Note::reference(reference)).await.unwrap();
        self.store.abandon(&lease, Abandoned::Hold).await.unwrap();
        lease.id
    }

    async fn completed(&self, key: &str) -> RecordId {
        let lease = self.claimed(key).await;
        let body = RecordedBody::Whole(Bytes::from(format!("{{\"card\":\"{SECRET}\"}}")));
        let recording = encode(201, &[(b"location", b"/v1/refunds/7")], &body);
        self.store.complete(&lease, recording.as_bytes()).await.unwrap();
        lease.id
    }

    async fn send(&self, request: TestRequest) -> Response {
        let app = App::new().service(web::scope("/admin").service(self.console.scope("/keys")));
        let app = test::init_service(app).await;
        let response = test::call_service(&app, request.to_request()).await;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = test::read_body(response).await;
        Response { status, headers, body: String::from_utf8(body.to_vec()).unwrap() }
    }

    async fn get(&self, user: &'static str, path: &str) -> Response {
        let request = TestRequest::get().uri(&format!("/admin/keys{path}"));
        self.send(request.insert_header(("x-user", user))).await
    }

    /// Sends a form as a page of the console does.
    async fn post(&self, user: &'static str, path: &str, form: &[(&str, &str)]) -> Response {
        let request = TestRequest::post().uri(&format!("/admin/keys{path}"));
        let request = request.insert_header(("sec-fetch-site", "same-origin")).set_form(form);
        self.send(request.insert_header(("x-user", user))).await
    }

    async fn call(&self, user: &'static str, path: &str, body: &Value) -> Response {
        let request = TestRequest::post().uri(&format!("/admin/keys/api{path}")).set_json(body);
        self.send(request.insert_header(("x-user", user))).await
    }

    async fn seen(&self, id: &RecordId) -> String {
        let shown = self.get("bob", &format!("/api/records/{id}")).await.json();
        shown["record"]["seen"].as_str().unwrap().to_owned()
    }

    async fn state(&self, id: &RecordId) -> Option<RecordState> {
        self.store.look_up(id).await.unwrap().map(|found| found.record.state)
    }
}

#[actix_web::test]
async fn the_application_says_who_may_do_what() {
    let subject = Subject::new();
    let id = subject.held("k").await;
    let nobody = subject.send(TestRequest::get().uri("/admin/keys/")).await;
    assert_eq!((nobody.status.as_u16(), nobody.body.as_str()), (401, "sign in first"));
    for path in ["/", "/records", "/style.css", "/api/overview", "/nowhere"] {
        let refused = subject.get("eve", path).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{path}");
        assert!(!refused.body.contains(OPERATION), "{path}");
    }
    let shown = subject.get("bob", &format!("/records/{id}")).await;
    assert!(shown.status.is_success() && shown.body.contains("bob, may look"), "{}", shown.body);
    assert!(!shown.body.contains("<form"), "a form for somebody who may not decide");
    let shown = subject.get("ada", &format!("/records/{id}")).await;
    assert!(shown.body.contains("ada, may decide") && shown.body.contains("/release"));
    let seen = subject.seen(&id).await;
    let form = [("seen", seen.as_str()), ("reason", "because")];
    for action in ["release", "forget", "complete", "preview"] {
        let form = [form[0], form[1], ("status", "200")];
        let refused = subject.post("bob", &format!("/records/{id}/{action}"), &form).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{action}: {}", refused.body);
    }
    for action in ["release", "forget", "resolve"] {
        let given = json!({ "seen": seen, "reason": "because" });
        let given = match action {
            "resolve" => json!({ "seen": seen, "reason": "because", "result": 1 }),
            _ => given,
        };
        let refused = subject.call("bob", &format!("/records/{id}/{action}"), &given).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{action}: {}", refused.body);
        assert_eq!(refused.json()["code"], "forbidden");
    }
    assert_eq!(subject.state(&id).await, Some(RecordState::Held));
}

#[actix_web::test]
async fn every_response_has_the_headers_that_protect_it() {
    let subject = Subject::new();
    let id = subject.held("k").await;
    let missing = "/records/00000000";
    for path in [
        "",
        "/",
        "/records",
        &format!("/records/{id}"),
        missing,
        "/log",
        "/style.css",
        "/api/overview",
        "/api/nowhere",
        "/nowhere",
    ] {
        for user in ["ada", "bob", "eve"] {
            let response = subject.get(user, path).await;
            let context = format!("{user} {path}: {}", response.status);
            assert_eq!(response.header("cache-control"), "no-store", "{context}");
            assert_eq!(response.header("x-content-type-options"), "nosniff", "{context}");
            assert_eq!(response.header("referrer-policy"), "same-origin", "{context}");
            let policy = response.header("content-security-policy");
            assert_eq!(
                policy,
                "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; \
                 frame-ancestors 'none'",
                "{context}"
            );
            assert!(!response.body.contains("<script") && !response.body.contains("style=\""));
        }
    }
}

#[actix_web::test]
async fn the_links_of_a_page_lead_to_pages() {
    let subject = Subject::new();
    let id = subject.held("k").await;
    subject.completed("done").await;
    let root = subject.get("ada", "").await;
    assert_eq!((root.status.as_u16(), root.header("location")), (308, "keys/"));
    let mut seen = std::collections::BTreeSet::new();
    let mut left = vec!["/admin/keys/".to_owned(), format!("/admin/keys/records/{id}")];
    while let Some(path) = left.pop() {
        if !seen.insert(path.clone()) {
            continue;
        }
        let request = TestRequest::get().uri(&path).insert_header(("x-user", "ada"));
        let page = subject.send(request).await;
        assert!(page.status.is_success(), "{path}: {}", page.status);
        let from = path.split('?').next().unwrap();
        for link in page.body.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
            if link.starts_with('#') {
                continue;
            }
            left.push(resolve(from, &link.replace("&amp;", "&")));
        }
    }
    for expected in ["/admin/keys/log", "/admin/keys/style.css", "/admin/keys/records?state=held"] {
        assert!(seen.contains(expected), "{seen:#?}");
    }
}

/// A relative link, seen from this path (RFC 3986, section 5.2).
fn resolve(from: &str, link: &str) -> String {
    let mut folders: Vec<_> = from.split('/').collect();
    folders.pop();
    let mut rest = link;
    loop {
        if let Some(next) = rest.strip_prefix("../") {
            folders.pop();
            rest = next;
        } else if let Some(next) = rest.strip_prefix("./") {
            rest = next;
        } else {
            break format!("{}/{rest}", folders.join("/"));
        }
    }
}

#[actix_web::test]
async fn the_first_page_counts_the_responses_that_the_application_counts() {
    let subject = Subject::new();
    let mut response = actix_web::HttpResponse::Ok().finish();
    subject.console.count(&response);
    assert!(subject.get("bob", "/").await.body.contains("None within the last hour"));
    response.extensions_mut().insert(idempotent_actix::RequestOutcome::Replayed);
    subject.console.count(&response);
    let requests = &subject.get("bob", "/api/overview").await.json()["requests_of_this_process"];
    assert_eq!(*requests, json!({ "replayed": { "last_minute": 1, "last_hour": 1 } }));
    assert!(subject.get("bob", "/").await.body.contains("<code>replayed</code>"));
}
