//! The memory that a large upload needs. A separate binary, because the test measures its process.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, and so do its helpers"
)]

use std::{io::Write, net::TcpStream};

use actix_web::{
    HttpResponse, post,
    web::{Bytes, Data, Payload, PayloadConfig, ServiceConfig},
};
use futures_util::StreamExt;
use idempotent_actix::{idempotent, scope};
use test_support::{Probe, Request, Server, TestApp, log};

const MIB: usize = 1 << 20;
const UPLOAD: usize = 32 * MIB;

#[idempotent(scope = "scope::global")]
#[post("/stream")]
async fn stream(mut body: Payload, probe: Data<Probe>) -> HttpResponse {
    let mut length = 0;
    while let Some(chunk) = body.next().await {
        length += chunk.unwrap().len();
    }
    probe.note(length.to_string());
    probe.run().await
}

#[idempotent(scope = "scope::global")]
#[post("/whole")]
async fn whole(body: Bytes, probe: Data<Probe>) -> HttpResponse {
    probe.note(body.len().to_string());
    probe.run().await
}

/// The peak memory of this process since the last call. Resets the peak.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: usize = line.trim().trim_end_matches(" kB").parse().unwrap();
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    peak * 1024
}

/// Uploads a body in chunks of this size, from a small buffer. Returns the peak memory of the
/// process.
fn peak_of(server: &Server, target: &str, upload: usize, chunk: usize) -> usize {
    let head = Request::post(target).key(format!("{target} {chunk}").replace(' ', "-"));
    let head = head
        .without_length()
        .header("Transfer-Encoding", "chunked")
        .header("Connection", "close")
        .bytes();
    let framed =
        [format!("{chunk:x}\r\n").into_bytes(), vec![b'x'; chunk], b"\r\n".to_vec()].concat();
    let many = framed.repeat((64 * 1024 / framed.len()).max(1));
    let per_write = chunk * (many.len() / framed.len());
    peak();
    let mut connection = TcpStream::connect(server.address()).unwrap();
    connection.write_all(&head).unwrap();
    for written in 0..upload / per_write {
        if let Err(error) = connection.write_all(&many) {
            let response = std::io::read_to_string(connection);
            panic!(
                "after {written} of {} writes: {error}; the server responded {response:?}",
                upload / per_write
            );
        }
    }
    connection.write_all(b"0\r\n\r\n").unwrap();
    let response = std::io::read_to_string(connection).unwrap();
    assert!(response.starts_with("HTTP/1.1 201"), "{response}");
    peak()
}

#[test]
fn an_upload_is_in_memory_once_and_once_more_if_the_handler_buffers_it() {
    log::discard();
    let app = TestApp::set(|builder| builder.body_limit(UPLOAD + MIB));
    let server = app.serve(|config: &mut ServiceConfig| {
        config.app_data(PayloadConfig::new(UPLOAD + MIB)).service(stream).service(whole);
    });
    // Warms up threads, buffers and the allocator.
    let base = peak_of(&server, "/stream", MIB, 1000);
    // The process may keep memory that was freed, so each upload is larger than the one before.
    let in_bytes = peak_of(&server, "/stream", 2 * MIB, 1) - base;
    let streamed = peak_of(&server, "/stream", UPLOAD, 64 * 1024 - 8) - base;
    let buffered = peak_of(&server, "/whole", UPLOAD, 64 * 1024 - 8) - base;
    println!(
        "2 MiB in single bytes: {in_bytes}, 32 MiB streamed: {streamed}, \
         buffered: {buffered}"
    );
    let lengths: Vec<usize> = app.probe.notes().iter().map(|note| note.parse().unwrap()).collect();
    assert!(
        lengths[1] > MIB && lengths[2] > UPLOAD - MIB && lengths[3] > UPLOAD - MIB,
        "{lengths:?}"
    );
    assert_eq!(app.probe.runs(), 4);
    // Small chunks need no more memory: 2 MiB in single bytes do not become many times as much.
    assert!(in_bytes < 8 * MIB, "{in_bytes}");
    // The guard keeps the body in memory once, whatever the handler does with it.
    assert!(streamed < UPLOAD * 3 / 2, "{streamed}");
    assert!(buffered < UPLOAD * 5 / 2, "{buffered}");
}
