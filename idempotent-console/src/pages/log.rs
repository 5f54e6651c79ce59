//! The log of decisions.

use idempotent_core::report::AuditPageView;
use maud::{Markup, html};

use crate::{
    layout::{Place, page as layout},
    tables::{or_dash, record_link, time},
    visit::Visit,
};

pub(super) fn page(visit: &Visit, page: &AuditPageView) -> Markup {
    let base = visit.base.as_str();
    let caption = "Decisions, the latest first";
    let content = html! {
        @if page.entries.is_empty() {
            p role="status" { "There are no decisions yet." }
        } @else {
            div.scroll role="region" aria-label=(caption) tabindex="0" {
                table {
                    caption { (caption) }
                    thead { tr {
                        th scope="col" { "When" }
                        th scope="col" { "Who" }
                        th scope="col" { "What" }
                        th scope="col" { "Record" }
                        th scope="col" { "Operation" }
                        th scope="col" { "Change" }
                        th scope="col" { "Why" }
                    } }
                    tbody {
                        @for entry in &page.entries {
                            tr {
                                td { (time(entry.at)) }
                                td { (entry.actor) }
                                td { (entry.action) }
                                td { (record_link(visit, &entry.id)) }
                                td { (or_dash(entry.operation.as_str())) }
                                td { (entry.before) " → " (entry.after) }
                                td { (entry.reason) }
                            }
                        }
                    }
                }
            }
        }
        @if let Some(next) = &page.next {
            p { a rel="next" href={ (base) "log?after=" (next) } { "Earlier decisions" } }
        }
    };
    layout(visit, Place::Log, "Decisions", &content)
}
