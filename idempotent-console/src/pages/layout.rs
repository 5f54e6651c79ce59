//! What all pages have.

use maud::{DOCTYPE, Markup, html};

use super::parts::records_table;
use crate::{access::Access, failure::Failure, gate::Visit};

/// The page to which a link of the navigation leads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Overview,
    Records,
    Log,
    /// Another page.
    Other,
}

const LINKS: [(Place, &str, &str); 3] = [
    (Place::Overview, "", "Overview"),
    (Place::Records, "records", "Records"),
    (Place::Log, "log", "Decisions"),
];

/// A page.
pub(super) fn page(visit: &Visit, place: Place, title: &str, content: &Markup) -> Markup {
    html! {
        (begin(visit, place, title))
        (content)
        (END)
    }
}

/// The part of a page before its content.
pub(super) fn begin(visit: &Visit, place: Place, title: &str) -> Markup {
    let base = visit.base.as_str();
    let rights = match &visit.access {
        Access::Act(_) => "may decide",
        Access::Read(_) => "may look",
        Access::None => "no access",
    };
    // The elements stay open; `END` closes them.
    let head = html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            title { (title) " · Idempotency keys" }
            link rel="stylesheet" href={ (base) "style.css" };
        }
    };
    let header = html! {
        a.skip href="#content" { "Skip to the content" }
        header {
            span.brand { "Idempotency keys" }
            nav aria-label="Console" {
                @for (link, path, name) in LINKS {
                    a href={ (base) (path) } aria-current=[(link == place).then_some("page")] { (name) }
                }
            }
            @if let Some(name) = visit.access.name() {
                span.who { (name) ", " (rights) }
            }
        }
    };
    html! {
        (DOCTYPE)
        (maud::PreEscaped("<html lang=\"en\">"))
        (head)
        (maud::PreEscaped("<body>"))
        (header)
        (maud::PreEscaped("<main id=\"content\">"))
        h1 { (title) }
    }
}

pub(super) const END: maud::PreEscaped<&str> = maud::PreEscaped("</main></body></html>\n");

/// The page of a failure.
pub(crate) fn failure(visit: &Visit, failure: &Failure) -> String {
    let candidates = failure.candidates();
    let content = html! {
        p role="alert" { (sentence(&failure.detail())) }
        @if !candidates.is_empty() {
            (records_table(visit, "The records that may be meant", candidates))
        }
        // The way back keeps what was filled in.
        p { "Go back with your browser, or " a href=(visit.base) { "to the overview" } "." }
    };
    page(visit, Place::Other, failure.title(), &content).into_string()
}

/// A text as a sentence.
pub(super) fn sentence(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().map(char::to_uppercase).into_iter().flatten();
    let mut sentence: String = first.chain(characters).collect();
    if !sentence.ends_with(['.', '!', '?']) {
        sentence.push('.');
    }
    sentence
}
