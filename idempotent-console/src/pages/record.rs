//! One operation: its story, what is recorded, and what can be decided.

use idempotent_core::{
    Abandoned,
    report::{RecordView, ShownState, Story},
};
use maud::{Markup, html};

use super::forms::{outcome_fields, reason_field, recording};
use crate::{
    decisions::OutcomeForm,
    layout::{Place, page as layout},
    records::Whole,
    tables::{age, badge, or_dash, time},
    visit::Visit,
};

pub(super) fn page(visit: &Visit, whole: &Whole, done: &str, outcome: &OutcomeForm) -> Markup {
    let Whole { record, recording: recorded, story } = whole;
    let operation = record.as_ref().map(|record| record.operation.as_str()).unwrap_or_default();
    let title = if operation.is_empty() { "Operation" } else { operation };
    let content = html! {
        @if let Some(done) = done_text(done) {
            p.done role="status" { (done) }
        }
        p.id { code { (story.id) } }
        (story_section(story))
        @if let Some(record) = record {
            @if visit.may_act() { (decisions(visit, record, outcome)) }
            section { h2 { "Record" } (facts(record)) }
        }
        @if let Some(recorded) = recorded {
            section { h2 { "Recorded response" } (recording(recorded)) }
        }
    };
    layout(visit, Place::Other, title, &content)
}

fn done_text(done: &str) -> Option<&'static str> {
    match done {
        "completed" => Some("Completed: requests with the key get this response from now on."),
        "released" => Some("Released: the next request with the key runs the operation."),
        "forgotten" => Some("Forgotten: the key is free again."),
        _ => None,
    }
}

fn story_section(story: &Story) -> Markup {
    html! {
        section.story {
            h2 { "What has happened" }
            @if story.events.is_empty() {
                p { "Nothing is known." }
            } @else {
                ol {
                    @for event in &story.events {
                        li { @if let Some(at) = event.at { (time(at)) " " } (event.text) }
                    }
                }
            }
            p.conclusion {
                @if let Some(state) = story.state { (badge(state)) " " }
                (story.conclusion)
            }
            @if let Some(advice) = &story.advice { p.advice { (advice) } }
        }
    }
}

fn facts(record: &RecordView) -> Markup {
    let if_abandoned = match record.on_abandon {
        Abandoned::Hold => "the key is held",
        Abandoned::Retry => "the next request runs the operation again",
    };
    html! {
        dl.facts {
            dt { "state" } dd { (badge(record.state)) }
            dt { "attempt" } dd { (record.attempt) }
            dt { "reference" } dd { (or_dash(record.reference.as_deref().unwrap_or_default())) }
            dt { "progress" } dd { (or_dash(record.progress.as_deref().unwrap_or_default())) }
            dt { "first seen" } dd { (time(record.first_seen)) ", " (age(record.age_ms)) " ago" }
            @if let Some(until) = record.lease.as_ref().and_then(|lease| lease.until) {
                dt { "lease until" } dd { (time(until)) }
            }
            @if let Some(at) = record.completed_at { dt { "completed" } dd { (time(at)) } }
            dt { "expires" }
            dd {
                @match record.expires_at { Some(at) => (time(at)), None => "not while it is held" }
            }
            dt { "if abandoned" } dd { (if_abandoned) }
            @if let Some(principal) = record.principal {
                dt { "principal" } dd { code { (principal) } }
            }
        }
    }
}

fn decisions(visit: &Visit, record: &RecordView, outcome: &OutcomeForm) -> Markup {
    let path = format!("{}records/{}/", visit.base, record.id);
    let seen = html! { input type="hidden" name="seen" value=(record.seen); };
    match record.state {
        ShownState::Held => html! {
            section.decide {
                h2 { "Decide" }
                p { "Look first where the operation has its effects: did it take effect?" }
                details open[!outcome.body.is_empty()] {
                    summary { "It took effect: complete it with the response for its client" }
                    form method="post" action={ (path) "preview" } {
                        (seen)
                        (outcome_fields(outcome))
                        button { "Show what clients will get" }
                    }
                }
                details {
                    summary { "It did not take effect: release the key; the next request runs it" }
                    form method="post" action={ (path) "release" } {
                        (seen)
                        (reason_field())
                        button { "Release the key" }
                    }
                }
            }
        },
        ShownState::Completed => html! {
            section.decide {
                h2 { "Decide" }
                details {
                    summary { "Forget the response: the next request runs the operation anew" }
                    form method="post" action={ (path) "forget" } {
                        (seen)
                        (reason_field())
                        button { "Forget the response" }
                    }
                }
            }
        },
        // There is nothing to decide.
        ShownState::InFlight | ShownState::Abandoned | ShownState::Expired | _ => html! {},
    }
}
