//! One line a request on the terminal: method, path, status, outcome, time, and the record's first 8 hex digits. Never the key.

use std::{fmt::Display, io::Write, time::Instant};

use actix_web::{
    Error,
    body::MessageBody,
    dev::{ServiceRequest, ServiceResponse},
    middleware::Next,
};
use idempotent_actix::{RecordId, RequestOutcome};

/// Middleware that writes the lines.
pub(crate) async fn requests(
    request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let mut line = Line::start(&request);
    let response = next.call(request).await;
    match &response {
        Ok(response) => {
            let extensions = response.response().extensions();
            line.end(response.status().as_u16(), extensions.get::<RequestOutcome>(), extensions.get::<RecordId>());
        }
        Err(error) => line.end(error.as_response_error().status_code().as_u16(), None, None),
    }
    response
}

/// The line of one request. If the client hangs up, actix drops it before its end, and it says so.
struct Line {
    request: String,
    started: Instant,
    ended: bool,
}

impl Line {
    fn start(request: &ServiceRequest) -> Self {
        Self { request: format!("{} {}", request.method(), request.path()), started: Instant::now(), ended: false }
    }

    fn end(&mut self, status: u16, outcome: Option<&RequestOutcome>, record: Option<&RecordId>) {
        self.ended = true;
        self.write(&status, &or_dash(outcome), &or_dash(record));
    }

    fn write(&self, status: &dyn Display, outcome: &str, record: &str) {
        let millis = self.started.elapsed().as_millis();
        // A terminal that is gone is no reason to stop serving.
        let _ = writeln!(std::io::stdout(), "{:<32} {status:>3}  {outcome:<11} {millis:>5} ms  {record}", self.request);
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
