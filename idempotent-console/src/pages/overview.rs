//! The first page.

use idempotent_core::report::{CountView, RecordPageView, ShownDuration};
use maud::{Markup, html};

use super::list::key_form;
use crate::{
    counts::OutcomeCount,
    layout::{Place, page as layout},
    tables::records_table,
    visit::Visit,
};

pub(super) fn page(
    visit: &Visit,
    count: &CountView,
    requests: &[OutcomeCount],
    held: &RecordPageView,
) -> Markup {
    let base = visit.base.as_str();
    let oldest = count
        .oldest_held
        .map(|oldest| ShownDuration(held.at.timestamp().duration_since(oldest.timestamp())));
    let content = html! {
        ul.tiles {
            li.alarm[count.held > 0] {
                a href={ (base) "records?state=held" } { strong { (count.held) } " held" }
            }
            li {
                strong { @match oldest { Some(oldest) => (oldest), None => "–" } }
                " the oldest held"
            }
            li {
                a href={ (base) "records?state=in_flight" } {
                    strong { (count.in_flight) } " in flight"
                }
            }
            li { strong { @if !count.is_exact { "about " } (count.records) } " records" }
        }
        p.note {
            "In flight are those that would be held if they were abandoned, and those whose lease \
             was renewed."
        }
        section {
            h2 { "Held: it is not known whether they took effect" }
            @if held.records.is_empty() {
                p { "None. Nothing waits for you." }
            } @else {
                (records_table(visit, "The oldest held operations", &held.records))
                @if held.next.is_some() {
                    p { a href={ (base) "records?state=held" } { "All held operations" } }
                }
            }
        }
        section {
            h2 { "Find an operation" }
            form.line method="get" action={ (base) "find" } {
                p { label { "Digits of its id, as log lines have them"
                    input name="digits" required pattern="\\s*[0-9a-fA-F]{1,64}\\s*"
                        autocomplete="off" spellcheck="false" title="1 to 64 hexadecimal digits";
                } }
                button { "Find" }
            }
            (key_form(base))
        }
        section {
            h2 { "Requests of this process" }
            @if requests.is_empty() {
                p { "None within the last hour, or the application does not count them." }
            } @else {
                (rates(requests))
            }
        }
    };
    layout(visit, Place::Overview, "Overview", &content)
}

fn rates(requests: &[OutcomeCount]) -> Markup {
    html! {
        div.scroll role="region" aria-label="Requests by outcome" tabindex="0" {
            table {
                caption { "Requests by outcome" }
                thead { tr {
                    th scope="col" { "Outcome" }
                    th scope="col" { "Last minute" }
                    th scope="col" { "Last hour" }
                } }
                tbody {
                    @for count in requests {
                        tr {
                            th scope="row" { code { (count.outcome.label()) } }
                            td.number { (count.last_minute) }
                            td.number { (count.last_hour) }
                        }
                    }
                }
            }
        }
    }
}
