//! A list of records.

use idempotent_core::report::RecordPageView;
use maud::{Markup, html};

use crate::{
    layout::{Place, page as layout},
    records::{ListQuery, Listed},
    tables::records_table,
    visit::Visit,
};

pub(super) fn page(visit: &Visit, query: &ListQuery, page: &RecordPageView) -> Markup {
    let base = visit.base.as_str();
    let content = html! {
        (filter_form(base, query))
        @if page.records.is_empty() {
            p role="status" {
                @if page.next.is_some() { "None so far." } @else { "No record is like that." }
            }
        } @else {
            (records_table(visit, caption(query), &page.records))
        }
        @if !page.unreadable.is_empty() {
            p role="alert" { "These records cannot be read. The log of the server says why." }
            ul { @for id in &page.unreadable { li.id { code { (id) } } } }
        }
        @if let Some(next) = &page.next {
            @let next = ListQuery { after: next.to_string(), ..query.clone() };
            p { a rel="next" href={ (base) "records?" (next.url()) } { "Further records" } }
        }
        @if query.state == Listed::Held && visit.may_act() && !page.records.is_empty() {
            @let all = ListQuery { after: String::new(), ..query.clone() };
            p { a href={ (base) "bulk?" (all.url()) } { "Decide about all of these at once" } }
        }
    };
    layout(visit, Place::Records, "Records", &content)
}

fn caption(query: &ListQuery) -> &'static str {
    match query.state {
        Listed::Watched | Listed::Held | Listed::InFlight => "Records, the oldest first",
        Listed::Completed | Listed::Any => "Records, in no particular order",
    }
}

fn filter_form(base: &str, query: &ListQuery) -> Markup {
    html! {
        form.filters method="get" action={ (base) "records" } aria-label="Filters" {
            p { label { "State"
                select name="state" {
                    @for (state, value, name) in Listed::ALL {
                        option value=(value) selected[state == query.state] { (name) }
                    }
                }
            } }
            p { label { "Operation"
                input name="operation" value=(query.operation) placeholder="POST /v1/refunds"
                    spellcheck="false";
            } }
            p { label { "Reference"
                input name="reference" value=(query.reference) spellcheck="false";
            } }
            p { label { "First seen at least this long ago"
                input name="older_than" value=(query.older_than) placeholder="10m" size="6"
                    pattern="\\s*[0-9]+(ms|s|m|min|h|d)?\\s*"
                    title="a number and a unit, such as 30s, 10m, 2h or 7d";
            } }
            button { "Filter" }
        }
    }
}

/// The form that finds the record of a client's key.
pub(super) fn key_form(base: &str) -> Markup {
    html! {
        details {
            summary { "Find it by the client's key" }
            form method="post" action={ (base) "find" } {
                p { label { "Idempotency-Key, as the client sent it"
                    input name="key" required autocomplete="off" spellcheck="false";
                } }
                p { label { "Operation: the name of its attribute, or method and route"
                    input name="operation" required placeholder="POST /v1/refunds"
                        spellcheck="false";
                } }
                p { label { "Scope, such as " code { "user:alice" }
                    input name="scope" required autocomplete="off" spellcheck="false";
                } }
                p { label { "Namespace, if it is not that of this application"
                    input name="namespace" spellcheck="false";
                } }
                button { "Find" }
            }
        }
    }
}
