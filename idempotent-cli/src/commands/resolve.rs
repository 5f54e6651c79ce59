//! The completion of a held operation with a response.

use std::{fs, io, path::Path};

use bytes::Bytes;
use idempotent_core::{
    EncodedRecording, job,
    protocol::{AuditAction, AuditedState, Resolution},
};
use idempotent_http::report::{GivenResponse, InvalidResponse, RecordingView};
use serde_json::Value;

use super::{
    decide::Decided,
    show::{record_text, recording_text},
};
use crate::{
    args::{ResolveArguments, ResponseArguments},
    ask::confirm,
    failure::Failure,
    report::Report,
    session::Session,
    text::BOLD,
};

/// Completes a held operation.
pub(super) async fn resolve(
    session: &Session,
    resolve: &ResolveArguments,
) -> Result<Report, Failure> {
    let recording = recording(&resolve.response)?;
    let decided = Decided::read(session, &resolve.record).await?;
    decided.verify_held()?;
    let response = recording_text(&RecordingView::of(recording.as_bytes(), true), true);
    let record = record_text(&decided.view);
    let what = format!("{record}\n{BOLD}Clients will get:{BOLD:#}\n{response}");
    let question = "\nComplete the operation with this response?";
    confirm(&what, question, resolve.record.decision.yes)?;
    let status = EncodedRecording::status_of(recording.as_bytes());
    let done = (AuditAction::Complete, AuditedState::Completed(status));
    decided.resolve(session, &Resolution::Complete(recording.into()), done).await
}

/// The recording of a response or of a result.
fn recording(response: &ResponseArguments) -> Result<EncodedRecording, Failure> {
    if let Some(result) = &response.result {
        let result: Value = serde_json::from_str(result)
            .map_err(|error| Failure::Usage(format!("--result is no JSON: {error}")))?;
        return job::recording_of::<_, ()>(Ok(&result))
            .map_err(|error| Failure::error("the result cannot be recorded", &error));
    }
    let Some(status) = response.status else {
        return Err(Failure::Usage(
            "say what clients get: --status with --body or --body-file, or --result".into(),
        ));
    };
    let invalid = |error: InvalidResponse| Failure::Usage(error.to_string());
    let mut given = GivenResponse::new(status).map_err(invalid)?;
    if let Some(content_type) = &response.content_type {
        given.add_header("content-type", content_type).map_err(invalid)?;
    }
    for line in &response.headers {
        given.add_line(line).map_err(invalid)?;
    }
    given.body = body(response)?;
    Ok(given.encode())
}

/// The body. By default there is none, as in a response without content: most statuses have an
/// empty body.
fn body(response: &ResponseArguments) -> Result<Option<Bytes>, Failure> {
    match (&response.body, &response.body_file) {
        (Some(body), _) => Ok(Some(body.clone().into())),
        (None, Some(file)) => Ok(Some(read(file)?.into())),
        (None, None) => Ok(None),
    }
}

fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    let read = if file == Path::new("-") {
        let mut body = Vec::new();
        io::Read::read_to_end(&mut io::stdin().lock(), &mut body).map(|_| body)
    } else {
        fs::read(file)
    };
    read.map_err(|error| Failure::error(&format!("{} cannot be read", file.display()), &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response() -> ResponseArguments {
        ResponseArguments {
            status: Some(201),
            content_type: None,
            headers: Vec::new(),
            body: None,
            body_file: None,
            result: None,
        }
    }

    fn view(response: &ResponseArguments) -> RecordingView {
        RecordingView::of(recording(response).unwrap().as_bytes(), true)
    }

    #[test]
    fn a_response_has_what_the_flags_say() {
        let response = ResponseArguments {
            content_type: Some("application/json".into()),
            headers: vec!["Location: /v1/refunds/7".into()],
            body: Some("{}".into()),
            ..response()
        };
        let view = view(&response);
        let headers: Vec<_> = view.headers.iter().map(|header| &*header.name).collect();
        assert_eq!((view.status, headers), (Some(201), vec!["content-type", "location"]));
        assert_eq!(view.body.and_then(|body| body.text).as_deref(), Some("{}"));
    }

    #[test]
    fn the_result_of_a_job_is_json() {
        let of = |result: &str| {
            recording(&ResponseArguments {
                status: None,
                result: Some(result.into()),
                ..response()
            })
        };
        let view = RecordingView::of(of("{\"a\":1}").unwrap().as_bytes(), true);
        assert_eq!(view.body.and_then(|body| body.text).as_deref(), Some("{\"a\":1}"));
        assert!(of("{").unwrap_err().text().contains("no JSON"));
    }

    #[test]
    fn a_header_that_is_never_recorded_is_refused() {
        for line in ["Date: now", "Set-Cookie: a=b", "no header", ": x", "a b: c", "a: \u{7}"] {
            let response = ResponseArguments { headers: vec![line.into()], ..response() };
            assert_eq!(recording(&response).unwrap_err().exit_code(), 2, "{line}");
        }
    }
}
