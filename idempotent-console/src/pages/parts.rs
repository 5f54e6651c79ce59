//! Parts of several pages.

use std::time::Duration;

use idempotent_core::report::{RecordView, ShownDuration, ShownState, Time};
use idempotent_http::report::RecordingView;
use maud::{Markup, html};

use crate::{
    decisions::{OutcomeForm, OutcomeKind},
    gate::Visit,
};

/// How many digits of an id a table shows. The link has the whole id.
const DIGITS: usize = 8;

pub(super) fn badge(state: ShownState) -> Markup {
    let class = match state {
        ShownState::Held => "held",
        ShownState::InFlight => "busy",
        ShownState::Completed => "done",
        ShownState::Abandoned | ShownState::Expired | _ => "other",
    };
    html! { span class={ "state " (class) } { (state) } }
}

pub(super) fn time(time: Time) -> Markup {
    html! { time { (time) } }
}

pub(super) fn age(millis: u64) -> ShownDuration {
    ShownDuration(Duration::from_millis(millis))
}

pub(super) fn or_dash(text: &str) -> &str {
    if text.is_empty() { "–" } else { text }
}

/// A table of records, which scrolls on a narrow screen.
pub(super) fn records_table(visit: &Visit, caption: &str, records: &[RecordView]) -> Markup {
    html! {
        div.scroll role="region" aria-label=(caption) tabindex="0" {
            table {
                caption { (caption) }
                thead { tr {
                    th scope="col" { "Record" }
                    th scope="col" { "State" }
                    th scope="col" { "Operation" }
                    th scope="col" { "Reference" }
                    th scope="col" { "Attempt" }
                    th scope="col" { "First seen" }
                } }
                tbody {
                    @for record in records {
                        @let id = record.id.to_string();
                        tr {
                            td { a href={ (visit.base) "records/" (id) } { code { (id.get(..DIGITS).unwrap_or(&id)) } } }
                            td { (badge(record.state)) }
                            td { (or_dash(record.operation.as_str())) }
                            td { (record.reference.as_deref().unwrap_or("–")) }
                            td.number { (record.attempt) }
                            td { (age(record.age_ms)) " ago" }
                        }
                    }
                }
            }
        }
    }
}

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
    use idempotent_http::report::RecordingKind;
    match recording.kind {
        RecordingKind::Damaged => "damaged: it is never replayed",
        RecordingKind::Response => "a response",
        RecordingKind::Other | _ => "the result of a job, or sealed",
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
                (option(OutcomeKind::Result, "result", "the result of a job, whose JSON is the body"))
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
