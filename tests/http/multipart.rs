//! `fingerprint::multipart`: two requests that a handler can distinguish never share a fingerprint
//! (I5).

use actix_multipart::Multipart;
use actix_web::{
    HttpResponse, post,
    web::{Bytes, Data, ServiceConfig},
};
use futures_util::StreamExt;
use idempotent_actix::{fingerprint, idempotent, scope};
use test_support::{ClientResponse, Probe, Request, TestApp};

#[idempotent(scope = "scope::global", fingerprint = "fingerprint::multipart")]
#[post("/parts")]
async fn parts(probe: Data<Probe>, mut parts: Multipart) -> HttpResponse {
    let mut seen = String::new();
    while let Some(Ok(mut part)) = parts.next().await {
        seen += &format!(" {}=", part.name().unwrap_or_default());
        while let Some(chunk) = part.next().await {
            seen += &String::from_utf8_lossy(&chunk.unwrap());
        }
    }
    probe.note(seen.trim().to_owned());
    probe.run().await
}

#[idempotent(scope = "scope::global", fingerprint = "fingerprint::multipart")]
#[post("/bytes")]
async fn whole(probe: Data<Probe>, body: Bytes) -> HttpResponse {
    probe.note(String::from_utf8_lossy(&body));
    probe.run().await
}

fn services(config: &mut ServiceConfig) {
    config.service(parts).service(whole);
}

fn send(app: &TestApp, path: &str, key: &str, boundary: &str, body: &str) -> ClientResponse {
    let content_type = format!("multipart/form-data; boundary={boundary}");
    let server = app.serve(services);
    server.send(&Request::post(path).key(key).header("Content-Type", content_type).body(body))
}

fn form(boundary: &str, to: &str) -> String {
    format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"to\"\r\n\r\n{to}\r\n\
         --{boundary}--\r\n"
    )
}

#[test]
fn a_retry_with_another_boundary_is_replayed() {
    let app = TestApp::new();
    let first = send(&app, "/parts", "k", "first", &form("first", "alice"));
    send(&app, "/parts", "k", "second-and-longer", &form("second-and-longer", "alice"))
        .assert_replays(&first);
    assert_eq!(send(&app, "/parts", "k", "third", &form("third", "mallory")).status, 422);
    assert_eq!(app.probe.notes(), ["to=alice"]);
}

/// Asserts that the handler reads these bodies as two different ones, and that they are a mismatch
/// under one key.
fn assert_distinguished(path: &str, bodies: [String; 2]) {
    let app = TestApp::new();
    let statuses =
        [0, 1].map(|body| send(&app, path, &format!("alone-{body}"), "B", &bodies[body]).status);
    assert_eq!(statuses, [201, 201]);
    let notes = app.probe.notes();
    assert_ne!(notes[0], notes[1], "the handler reads both bodies alike");
    let statuses = [0, 1].map(|body| send(&app, path, "k", "B", &bodies[body]).status);
    assert_eq!(statuses, [201, 422], "{notes:?}");
}

#[test]
fn each_line_of_a_repeated_header_counts() {
    let disposition = "Content-Disposition: form-data; name=";
    assert_distinguished(
        "/parts",
        ["alice", "mallory"].map(|to| {
            format!("--B\r\n{disposition}\"{to}\"\r\n{disposition}\"x\"\r\n\r\n10\r\n--B--\r\n")
        }),
    );
}

#[test]
fn bytes_after_a_boundary_within_a_part_count() {
    // The inner line is as long as a boundary line: some parsers compare only the length.
    let body = |to: &str| {
        let content = format!("a\r\n--B--\r\nto {to}");
        let headers = format!(
            "Content-Disposition: form-data; name=\"to\"\r\nContent-Length: {}",
            content.len()
        );
        format!("--B\r\n{headers}\r\n\r\n{content}\r\n--B--\r\n")
    };
    assert_distinguished("/parts", ["alice", "mallo"].map(body));
}

#[test]
fn bytes_after_a_boundary_in_the_preamble_count() {
    assert_distinguished(
        "/parts",
        ["alice", "mallory"].map(|to| format!("x--B--\r\n{}", form("B", to))),
    );
}

#[test]
fn bytes_after_the_last_boundary_count() {
    assert_distinguished(
        "/bytes",
        ["alice", "mallory"].map(|epilogue| form("B", "bob") + epilogue),
    );
}
