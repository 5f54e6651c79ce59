//! What all pages have.

use maud::{DOCTYPE, Markup, html};

use crate::{access::Access, visit::Visit};

pub(crate) const HTML: &str = "text/html; charset=utf-8";

/// The page to which a link of the navigation leads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
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
pub(crate) fn page(visit: &Visit, place: Place, title: &str, content: &Markup) -> Markup {
    html! {
        (begin(visit, place, title))
        (content)
        (END)
    }
}

/// The part of a page before its content.
pub(crate) fn begin(visit: &Visit, place: Place, title: &str) -> Markup {
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
                    @let current = (link == place).then_some("page");
                    a href={ (base) (path) } aria-current=[current] { (name) }
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

pub(crate) const END: maud::PreEscaped<&str> = maud::PreEscaped("</main></body></html>\n");
