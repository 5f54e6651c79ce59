//! Writes one line per request to the terminal: method, path, status, outcome, time, and the first
//! 8 hex digits of the record id, but never the key.
//!
//! The requests of the page (`demo.rs`) are not logged.
//!
//! actix-web's `Logger` would write no line for a request whose client disconnects.

use std::{fmt::Display, io::Write, time::Instant};

use actix_web::{
    Error,
    body::MessageBody,
    dev::{ServiceRequest, ServiceResponse},
    middleware::Next,
    web::Data,
};
use idempotent_actix::{RecordId, RequestOutcome};
use idempotent_console::Console;

use crate::demo;

/// Middleware that writes the log, and counts the responses for the console.
pub(crate) async fn requests(
    console: Data<Console>,
    request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    if demo::is_path(request.path()) {
        return next.call(request).await;
    }
    let mut line = Line::start(&request);
    let response = next.call(request).await;
    match &response {
        Ok(response) => {
            console.count(response.response());
            let extensions = response.response().extensions();
            line.end(
                response.status().as_u16(),
                extensions.get::<RequestOutcome>(),
                extensions.get::<RecordId>(),
            );
        }
        Err(error) => line.end(error.as_response_error().status_code().as_u16(), None, None),
    }
    response
}

/// The line of one request. If the client disconnects, actix-web drops the line early, and the
/// outcome is "hung up".
struct Line {
    request: String,
    started: Instant,
    ended: bool,
}

impl Line {
    fn start(request: &ServiceRequest) -> Self {
        Self {
            request: format!("{} {}", request.method(), request.path()),
            started: Instant::now(),
            ended: false,
        }
    }

    fn end(&mut self, status: u16, outcome: Option<&RequestOutcome>, record: Option<&RecordId>) {
        self.ended = true;
        self.write(&status, &or_dash(outcome), &or_dash(record.map(RecordId::short).as_ref()));
    }

    fn write(&self, status: &dyn Display, outcome: &str, record: &str) {
        let millis = self.started.elapsed().as_millis();
        // A closed terminal must not stop the server.
        let _ = writeln!(
            std::io::stdout(),
            "{:<32} {status:>3}  {outcome:<17} {millis:>5} ms  {record}",
            self.request
        );
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if !self.ended {
            self.write(&"-", "hung up", "-");
        }
    }
}

fn or_dash<T: Display>(value: Option<&T>) -> String {
    value.map_or_else(|| "-".to_owned(), T::to_string)
}
