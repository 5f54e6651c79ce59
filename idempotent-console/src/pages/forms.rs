//! The fields of forms, and what they lead to.

use idempotent_http::report::{RecordingKind, RecordingView};
use maud::{Markup, html};

use crate::decisions::{OutcomeForm, OutcomeKind};

/// What is recorded, or what clients will get.
pub(super) fn recording(recording: &RecordingView) -> Markup {
    html! {
        dl.facts {
            @match recording.status {
                Some(status) => { dt { "status" } dd { (status) } }
                None => { dt { "kind" } dd { (kind(recording)) } }
            }
            @for header in &recording.headers {
                dt { (header.name) } dd { (header.value) }
            }
            @if let Some(body) = &recording.body {
                dt { "body" }
                @match (&body.text, &body.hex) {
                    (Some(text), _) => dd { pre tabindex="0" { (text) } },
                    (None, Some(hex)) => dd { pre tabindex="0" { (hex) } },
                    (None, None) if body.is_omitted => dd { "was not recorded" },
                    (None, None) => dd { (body.bytes) " bytes, which this console does not show" },
                }
            }
        }
    }
}

fn kind(recording: &RecordingView) -> &'static str {
    match recording.kind {
        RecordingKind::Damaged => "damaged: it is never replayed",
        RecordingKind::Sealed => "sealed, with a key that this program does not have",
        RecordingKind::Response => "a response",
        RecordingKind::Other | _ => "the result of a job",
    }
}

/// The fields of what clients get.
pub(super) fn outcome_fields(given: &OutcomeForm) -> Markup {
    let or = |text: &str, default: &str| {
        if text.is_empty() { default.to_owned() } else { text.to_owned() }
    };
    let option = |kind: OutcomeKind, value: &str, name: &str| {
        html! { option value=(value) selected[given.kind == kind] { (name) } }
    };
    html! {
        p { label { "Clients get"
            select name="kind" {
                (option(OutcomeKind::Response, "response", "a response"))
                (option(OutcomeKind::Result, "result", "the result of a job: its JSON is the body"))
            }
        } }
        p { label { "Status"
            input name="status" inputmode="numeric" pattern="[2-5][0-9][0-9]" maxlength="3" size="3"
                required value=(or(&given.status, "200"));
        } }
        p { label { "Content-Type"
            input name="content_type" value=(or(&given.content_type, "application/json"));
        } }
        p { label { "Other header lines, such as " code { "Location: /v1/refunds/7" }
            textarea name="headers" rows="2" spellcheck="false" { (given.headers) }
        } }
        p { label { "Body"
            textarea name="body" rows="6" spellcheck="false" { (given.body) }
        } }
    }
}

/// The same fields, hidden: they were shown before.
pub(super) fn hidden_outcome(given: &OutcomeForm) -> Markup {
    let kind = match given.kind {
        OutcomeKind::Response => "response",
        OutcomeKind::Result => "result",
    };
    html! {
        input type="hidden" name="kind" value=(kind);
        input type="hidden" name="status" value=(given.status);
        input type="hidden" name="content_type" value=(given.content_type);
        // A hidden input would lose line breaks.
        textarea name="headers" hidden { (given.headers) }
        textarea name="body" hidden { "\n" (given.body) }
    }
}

/// The field of the reason, which every decision needs.
pub(super) fn reason_field() -> Markup {
    html! {
        p { label { "Why? The log keeps it."
            input name="reason" required maxlength="255" autocomplete="off"
                pattern=".*\\S.*" title="a few words";
        } }
    }
}
