//! The page that shows what clients will get, before it is stored.

use idempotent_core::EncodedRecording;
use idempotent_http::report::RecordingView;
use maud::{Markup, html};

use super::forms::{hidden_outcome, reason_field, recording as recording_part};
use crate::{
    decisions::OutcomeForm,
    layout::{Place, page as layout},
    records::Whole,
    tables::badge,
    visit::Visit,
};

pub(super) fn page(
    visit: &Visit,
    whole: &Whole,
    seen: &str,
    outcome: &OutcomeForm,
    recording: &EncodedRecording,
) -> Markup {
    let id = whole.story.id;
    let path = format!("{}records/{id}", visit.base);
    // Its body is shown: whoever asks has just written it.
    let recording = RecordingView::of(recording.as_bytes(), true);
    let content = html! {
        p.id { code { (id) } }
        @if let Some(record) = &whole.record {
            p { (badge(record.state)) " " (record.operation) }
        }
        section {
            h2 { "Clients will get" }
            (recording_part(&recording))
        }
        form.decide method="post" action={ (path) "/complete" } {
            input type="hidden" name="seen" value=(seen);
            (hidden_outcome(outcome))
            (reason_field())
            button { "Complete the operation with this response" }
        }
        p { a href=(path) { "Back to the operation, without a decision" } }
    };
    layout(visit, Place::Other, "Complete an operation", &content)
}
