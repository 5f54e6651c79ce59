//! Dialects: a row for each line of a specification that a server can hold. The guide `dialects`
//! has the tables of these rows.
//!
//! Read were draft-ietf-httpapi-idempotency-key-header-07; Stripe's "Idempotent requests" and
//! "Errors" of November 2026; and the RFC "Agentic Checkout" of the Agentic Commerce Protocol, its
//! version 2026-01-16 with SEP 120 (commit 0bbbe9ea of its repository).

use std::fmt::Write;

use actix_web::{
    HttpResponse, delete, post,
    web::{Data, ServiceConfig},
};
use idempotent_actix::{Idempotency, dialect::Dialect, idempotent};
use test_support::{ClientResponse, Pending, Probe, Request, Server, TestApp};

use super::handlers::User;

mod acp;
mod ietf;
mod own;
mod stripe;

const COMPLETE: &str = "/checkout_sessions/1/complete";

#[idempotent(scope = "user", fingerprint = "json", content_type = "ignored", key = "optional")]
#[post("/checkout_sessions/{id}/complete")]
async fn complete(user: User, probe: Data<Probe>, body: String) -> HttpResponse {
    probe.note(format!("{} {body}", user.0));
    probe.run().await
}

#[idempotent(scope = "user", fingerprint = "json")]
#[post("/required")]
async fn required(user: User, probe: Data<Probe>) -> HttpResponse {
    probe.note(user.0);
    probe.run().await
}

#[idempotent(scope = "user", fingerprint = "json")]
#[delete("/required")]
async fn deleted(user: User, probe: Data<Probe>) -> HttpResponse {
    probe.note(user.0);
    probe.run().await
}

#[idempotent(scope = "user", in_flight = "poll")]
#[post("/polled/{id}")]
async fn polled(user: User, probe: Data<Probe>) -> HttpResponse {
    probe.note(user.0);
    probe.run().await
}

fn services(config: &mut ServiceConfig) {
    config.service(complete).service(required).service(deleted).service(polled);
    config.service(Idempotency::lookup_resource("/keys/{key}"));
}

/// A server that speaks a dialect.
struct Speaking {
    app: TestApp,
    server: Server,
}

impl Speaking {
    fn new(dialect: Dialect) -> Self {
        Self::responding(dialect, |run| HttpResponse::Created().body(format!("run {run}")))
    }

    fn responding(
        dialect: Dialect,
        response: impl Fn(usize) -> HttpResponse + Send + Sync + 'static,
    ) -> Self {
        let app = TestApp::with(Probe::responding(response), |builder| builder.dialect(dialect));
        let server = app.serve(services);
        Self { app, server }
    }

    fn send(&self, request: &Request) -> ClientResponse {
        self.server.send(request)
    }

    /// The response to a request whose key is in flight, and the first request.
    fn in_flight(&self, request: &Request) -> (ClientResponse, Pending) {
        self.app.probe.hold();
        let first = self.server.begin(request);
        self.app.probe.await_runs(1);
        (self.send(request), first)
    }
}

fn pay(key: &str, body: &str) -> Request {
    Request::post(COMPLETE).user("alice").key(key).json(body)
}

/// A line of a specification: its section, and what it demands of a server.
type Row = (&'static str, &'static str);

/// Declares a test for each row, and the table of the rows.
macro_rules! rows {
    ($($name:ident: $section:literal, $line:literal => $test:block)+) => {
        pub(super) const ROWS: &[super::Row] = &[$(($section, $line)),+];

        $(
            #[test]
            fn $name() $test
        )+
    };
}
use rows;

fn table(rows: &[Row]) -> String {
    let mut table = "| section | what it says of a server |\n|---|---|\n".to_owned();
    for (section, line) in rows {
        let _ = writeln!(table, "| {section} | {line} |");
    }
    table
}

#[test]
fn the_guide_has_the_tables_of_these_rows() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../idempotent-actix/src/guide/dialects.md");
    let mut text = std::fs::read_to_string(path).unwrap();
    let before = text.clone();
    for (name, rows) in [("ietf", ietf::ROWS), ("stripe", stripe::ROWS), ("acp", acp::ROWS)] {
        let mark = format!("<!-- rows of {name} -->\n");
        let (start, rest) = text.split_once(&mark).expect("the mark of a table");
        let (_, end) = rest.split_once("\n<!-- end -->").expect("the end of a table");
        text = format!("{start}{mark}{}\n<!-- end -->{end}", table(rows));
    }
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, text).unwrap();
        return;
    }
    assert_eq!(before, text, "run `UPDATE=1 cargo test -p tests --test http dialects`");
}
