//! The tables of the guide "Calling a guarded API": each row, for a first attempt and for one after
//! an attempt that may have been run.

use std::{iter, time::Duration};

use idempotent_client::{Error, ErrorKind, IdempotentRequest, Outcome};
use reqwest::Response;

use super::{
    client, idempotency,
    scripted::{
        Line::{self, Close, Ignore, NotRun},
        Scripted, respond, truncated,
    },
    stores::Own,
    wait,
};

const REPLAYED: (&str, &str) = ("idempotency-replayed", "true");

/// What the caller of an operation with a label gets, how many requests were sent, and whether the
/// operation is still pending.
#[derive(Debug, PartialEq, Eq)]
struct Call {
    result: Result<u16, (ErrorKind, Outcome)>,
    requests: usize,
    is_pending: bool,
}

fn got(status: u16, requests: usize) -> Call {
    Call { result: Ok(status), requests, is_pending: false }
}

/// The caller gets the response, but it is not taken for the outcome.
fn got_pending(status: u16, requests: usize) -> Call {
    Call { is_pending: true, ..got(status, requests) }
}

fn failed(kind: ErrorKind, requests: usize) -> Call {
    Call { result: Err((kind, Outcome::Unknown)), requests, is_pending: true }
}

fn call(script: Vec<Line>) -> Call {
    let (server, store) = (Scripted::new(script), Own::default());
    let idempotency = idempotency()
        .pending(store.clone())
        .attempt_timeout(Duration::from_secs(2))
        .deadline(Duration::from_secs(20));
    let sent = client(&idempotency).post(server.url()).idempotent().label("order-17").send();
    let outcome = |error: Error| (error.kind(), error.outcome());
    let status = |response: Response| response.status().as_u16();
    let result = wait(sent).map(status).map_err(outcome);
    Call { result, requests: server.requests().len(), is_pending: store.has_open() }
}

/// The call if this is the first response.
fn first(line: Line, then: Vec<Line>) -> Call {
    call(iter::once(line).chain(then).collect())
}

/// The call if this is the response after one that was lost.
fn after_lost(line: Line, then: Vec<Line>) -> Call {
    call([Close, line].into_iter().chain(then).collect())
}

fn done() -> Vec<Line> {
    vec![respond(201, &[], "done")]
}

fn problem(status: u16, code: &str, retryable: bool) -> Line {
    let body = format!(r#"{{"type":"t","code":"{code}","retryable":{retryable}}}"#);
    respond(status, &[("content-type", "application/problem+json")], &body)
}

#[test]
fn no_response_a_timeout_or_a_response_that_breaks_off_is_sent_again() {
    for line in [Close, truncated(), Ignore] {
        assert_eq!(first(line, done()), got(201, 2));
    }
    let cut = || {
        Line::Send(
            "HTTP/1.1 409 X\r\ncontent-type: application/problem+json\r\nconnection: close\r\n\
             \r\n{\"type\":\"t\",\"code\":\"outcome_unk"
                .to_owned(),
        )
    };
    assert_eq!(first(cut(), done()), got(201, 2));
    assert_eq!(after_lost(cut(), done()), got(201, 3));
}

#[test]
fn a_request_in_progress_is_sent_again() {
    let stripe = r#"{"error":{"type":"idempotency_error","code":"idempotency_key_in_use"}}"#;
    let lines = || {
        [
            problem(409, "in_flight", true),
            respond(409, &[], stripe),
            respond(409, &[("retry-after", "0")], ""),
            respond(
                202,
                &[("location", "/keys/k"), ("retry-after", "0")],
                r#"{"state":"in_flight","reference":null}"#,
            ),
        ]
    };
    for line in lines() {
        assert_eq!(first(line, done()), got(201, 2));
    }
    for line in lines() {
        assert_eq!(after_lost(line, done()), got(201, 3));
    }
    // The draft has no code for it, and it may be the earlier attempt.
    assert_eq!(after_lost(respond(409, &[], ""), done()), got(201, 3));
}

#[test]
fn what_may_pass_is_sent_again_unless_the_server_advises_against_it() {
    for status in [408, 425, 429, 500, 502, 503, 504, 511, 599, 600, 999] {
        assert_eq!(first(respond(status, &[], ""), done()), got(201, 2), "{status}");
        assert_eq!(after_lost(respond(status, &[], ""), done()), got(201, 3), "{status}");
    }
    for name in ["stripe-should-retry", "x-should-retry"] {
        for status in [408, 425, 429] {
            let no = || respond(status, &[(name, "false")], "");
            assert_eq!(first(no(), vec![]), got_pending(status, 1), "{status}");
            let refused = failed(ErrorKind::Refused, 3);
            assert_eq!(after_lost(no(), vec![no()]), refused, "{status}");
        }
        let no = || respond(500, &[(name, "false")], "");
        assert_eq!(first(no(), vec![]), failed(ErrorKind::Held, 1));
        assert_eq!(after_lost(no(), vec![]), failed(ErrorKind::Held, 2));
    }
    assert_eq!(first(problem(503, "x", false), vec![]), failed(ErrorKind::Held, 1));
}

#[test]
fn a_recorded_response_is_returned_whatever_its_status() {
    for status in [200, 201, 303, 400, 401, 402, 403, 404, 409, 422, 429, 500, 503] {
        let replay = || respond(status, &[REPLAYED], "");
        assert_eq!(first(replay(), vec![]), got(status, 1), "{status}");
        assert_eq!(after_lost(replay(), vec![]), got(status, 2), "{status}");
    }
}

#[test]
fn an_unknown_outcome_ends_the_call_and_stays_pending() {
    let lines = || {
        [
            problem(409, "outcome_unknown", false),
            problem(500, "record_unreadable", false),
            problem(500, "misconfigured", false),
            problem(501, "x", false),
        ]
    };
    for line in lines() {
        assert_eq!(first(line, vec![]), failed(ErrorKind::Held, 1));
    }
    for line in lines() {
        assert_eq!(after_lost(line, vec![]), failed(ErrorKind::Held, 2));
    }
}

#[test]
fn a_refusal_with_the_mark_of_the_guard_was_not_run() {
    let not_done = |kind, requests| Call {
        result: Err((kind, Outcome::NotDone)),
        requests,
        is_pending: false,
    };
    assert_eq!(first(NotRun(503, "overloaded"), vec![]), not_done(ErrorKind::Deadline, 1));
    let misconfigured = || NotRun(500, "misconfigured");
    assert_eq!(first(misconfigured(), vec![]), not_done(ErrorKind::Misconfigured, 1));
    let lost = after_lost(NotRun(503, "overloaded"), vec![]);
    assert_eq!(lost, failed(ErrorKind::Deadline, 2));
    let lost = after_lost(misconfigured(), vec![]);
    assert_eq!(lost, failed(ErrorKind::Misconfigured, 2));
}

#[test]
fn a_redirect_is_never_the_outcome_unless_it_is_recorded() {
    for status in [300, 301, 302, 303, 304, 307, 308] {
        let redirect = || respond(status, &[("location", "http://127.0.0.1:1/login")], "");
        let refused = |requests| failed(ErrorKind::Refused, requests);
        assert_eq!(first(redirect(), vec![redirect()]), refused(2), "{status}");
        assert_eq!(after_lost(redirect(), vec![redirect()]), refused(3), "{status}");
        assert_eq!(first(redirect(), done()), got(201, 2), "{status}");
    }
}

#[test]
fn a_first_refusal_in_front_of_the_operation_is_returned_and_does_not_finish_the_label() {
    for status in
        [401, 403, 404, 405, 406, 407, 411, 413, 414, 415, 416, 417, 421, 426, 431, 451, 501, 505]
    {
        let refusal = || respond(status, &[], "");
        assert_eq!(first(refusal(), vec![]), got_pending(status, 1), "{status}");
    }
}

#[test]
fn any_other_first_response_is_the_outcome() {
    for status in [200, 201, 202, 204, 400, 402, 409, 410, 412, 422, 424] {
        assert_eq!(first(respond(status, &[], ""), vec![]), got(status, 1), "{status}");
    }
}

#[test]
fn a_success_is_the_outcome_of_a_later_attempt_too() {
    for status in [200, 201, 202, 204] {
        assert_eq!(after_lost(respond(status, &[], ""), vec![]), got(status, 2), "{status}");
    }
}

#[test]
fn any_other_later_response_is_asked_for_once_more() {
    for status in [400, 401, 402, 403, 404, 405, 407, 410, 413, 421, 422, 451, 501, 505] {
        let refusal = || respond(status, &[], "");
        let refused = failed(ErrorKind::Refused, 3);
        assert_eq!(after_lost(refusal(), vec![refusal()]), refused, "{status}");
        // It was the handler's own.
        let recorded = vec![respond(status, &[REPLAYED], "")];
        assert_eq!(after_lost(refusal(), recorded), got(status, 3), "{status}");
        assert_eq!(after_lost(refusal(), done()), got(201, 3), "{status}");
    }
}

#[test]
fn a_later_key_reused_means_that_the_outcome_is_unknown() {
    let reused = || problem(422, "key_reused", false);
    assert_eq!(first(reused(), vec![]), got(422, 1));
    assert_eq!(after_lost(reused(), vec![]), failed(ErrorKind::Held, 2));
}
