//! Parts of pages that show records.

use std::time::Duration;

use idempotent_core::{
    RecordId,
    report::{RecordView, ShownDuration, ShownState, Time},
};
use maud::{Markup, html};

use crate::visit::Visit;

/// How many digits of an id a table shows. The link has the whole id.
const DIGITS: usize = 8;

pub(crate) fn badge(state: ShownState) -> Markup {
    let class = match state {
        ShownState::Held => "held",
        ShownState::InFlight => "busy",
        ShownState::Completed => "done",
        ShownState::Abandoned | ShownState::Expired | _ => "other",
    };
    html! { span class={ "state " (class) } { (state) } }
}

pub(crate) fn time(time: Time) -> Markup {
    html! { time { (time) } }
}

pub(crate) fn age(millis: u64) -> ShownDuration {
    ShownDuration(Duration::from_millis(millis))
}

pub(crate) fn or_dash(text: &str) -> &str {
    if text.is_empty() { "–" } else { text }
}

/// A link to a record, with the first digits of its id.
pub(crate) fn record_link(visit: &Visit, id: &RecordId) -> Markup {
    let id = id.to_string();
    html! {
        a href={ (visit.base) "records/" (id) } { code { (id.get(..DIGITS).unwrap_or(&id)) } }
    }
}

/// A table of records, which scrolls on a narrow screen.
pub(crate) fn records_table(visit: &Visit, caption: &str, records: &[RecordView]) -> Markup {
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
                        tr {
                            td { (record_link(visit, &record.id)) }
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
