//! The files of the page, compiled into the program.

use std::sync::LazyLock;

use actix_web::{
    HttpResponse,
    http::header::{
        CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
    },
    route,
    web::{Path, ServiceConfig},
};

use crate::demo::{Side, checkout};

/// Nothing but the files of this server, no inline code, and no frame around the page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

macro_rules! files {
    ($($name:literal: $kind:expr),* $(,)?) => {
        &[$(($name, $kind, include_str!(concat!("page/", $name)))),*]
    };
}

/// The files that the page loads.
const FILES: &[(&str, &str, &str)] = files! {
    "style.css": CSS,
    "layout.css": CSS,
    "icon.svg": SVG,
    "main.js": JAVASCRIPT,
    "server.js": JAVASCRIPT,
    "model.js": JAVASCRIPT,
    "columns.js": JAVASCRIPT,
    "key.js": JAVASCRIPT,
    "player.js": JAVASCRIPT,
    "stories.js": JAVASCRIPT,
    "buttons.js": JAVASCRIPT,
    "dom.js": JAVASCRIPT,
};

/// The page, with the source of both handlers.
static PAGE: LazyLock<String> = LazyLock::new(|| {
    include_str!("page/index.html")
        .replace("{{bare}}", &code(checkout::source(Side::Bare)))
        .replace("{{guarded}}", &code(checkout::source(Side::Guarded)))
});

/// The routes of the page.
pub(crate) fn routes(config: &mut ServiceConfig) {
    config.service(index).service(file);
}

#[route("/", method = "GET", method = "HEAD")]
async fn index() -> HttpResponse {
    respond(HTML, PAGE.as_str())
}

#[route("/demo/files/{name}", method = "GET", method = "HEAD")]
async fn file(name: Path<String>) -> HttpResponse {
    match FILES.iter().find(|(known, ..)| *known == name.as_str()) {
        Some((_, kind, text)) => respond(kind, text),
        None => HttpResponse::NotFound().body("there is no such file"),
    }
}

fn respond(kind: &'static str, text: &'static str) -> HttpResponse {
    HttpResponse::Ok()
        .content_type(kind)
        .insert_header((CONTENT_SECURITY_POLICY, POLICY))
        .insert_header((X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .insert_header((REFERRER_POLICY, "no-referrer"))
        // A new version of the program has new files under the same names.
        .insert_header((CACHE_CONTROL, "no-store"))
        .body(text)
}

/// The HTML of a source text. The attribute's line is marked.
fn code(source: &str) -> String {
    let escaped = source.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let line = |line: &str| match line.starts_with("#[idempotent(") {
        true => format!("<mark>{line}\n</mark>"),
        false => format!("{line}\n"),
    };
    escaped.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_shows_both_handlers_and_marks_one_line() {
        assert_eq!(PAGE.matches("async fn checkout(").count(), 2);
        assert_eq!(PAGE.matches("<mark>#[idempotent(").count(), 1);
        assert!(!PAGE.contains("{{") && PAGE.contains("Json&lt;Order&gt;"));
    }

    #[test]
    fn the_page_has_no_inline_code_and_names_only_its_own_files() {
        for forbidden in ["<style", "style=", "javascript:", "http://", "https://"] {
            assert!(!PAGE.contains(forbidden), "{forbidden}");
        }
        for tag in PAGE.split("<script").skip(1) {
            assert!(tag.contains("src=") && tag.contains("></script>"), "{tag:.60}");
        }
        let handlers = PAGE.split_whitespace().filter(|word| word.starts_with("on"));
        assert!(!handlers.into_iter().any(|word| word.contains("=\"")));
        let names = PAGE.split("/demo/files/").skip(1).filter_map(|rest| rest.split('"').next());
        for name in names {
            assert!(FILES.iter().any(|(known, ..)| *known == name), "{name}");
        }
    }

    #[test]
    fn each_module_that_is_imported_is_served() {
        for (importer, _, text) in FILES {
            for import in text.split("from \"./").skip(1).filter_map(|rest| rest.split('"').next())
            {
                assert!(FILES.iter().any(|(known, ..)| *known == import), "{importer}: {import}");
            }
        }
    }
}
