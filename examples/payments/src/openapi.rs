//! `/openapi.json`, the OpenAPI document of the API, and `/openapi`, a page of it.
//!
//! `openapi/document.json` is written by hand and knows nothing of idempotency keys: the handle
//! adds what its handlers have.

use actix_web::{
    HttpResponse, get,
    http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, X_CONTENT_TYPE_OPTIONS},
    web::{Data, Path, ServiceConfig},
};
use idempotent_actix::{Idempotency, OpenApiReport};
use serde_json::Value;

use crate::accounts::Accounts;

const DOCUMENT: &str = include_str!("openapi/document.json");

/// Nothing but the files of this server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The files that the page loads.
const FILES: [(&str, &str, &str); 2] = [
    ("page.css", "text/css; charset=utf-8", include_str!("openapi/page.css")),
    ("page.js", "text/javascript; charset=utf-8", include_str!("openapi/page.js")),
];

/// The routes.
pub(crate) fn routes(config: &mut ServiceConfig) {
    config.service(serve_document).service(serve_page).service(serve_file);
}

#[get("/openapi.json")]
async fn serve_document(
    idempotency: Data<Idempotency>,
    accounts: Data<Accounts>,
) -> serde_json::Result<HttpResponse> {
    let (document, _) = described(&idempotency, &accounts)?;
    Ok(HttpResponse::Ok().json(document))
}

/// The document with what the guard adds. The report names the checkout of the demo, which is in
/// another process and another document.
fn described(
    idempotency: &Idempotency,
    accounts: &Accounts,
) -> serde_json::Result<(Value, OpenApiReport)> {
    let mut document: Value = serde_json::from_str(DOCUMENT)?;
    if let (Accounts::Unsupported, Some(paths)) =
        (accounts, document.get_mut("paths").and_then(Value::as_object_mut))
    {
        let of_accounts = ["/v1/accounts", "/v1/transfers", "/v1/transfers/leased"];
        paths.retain(|path, _| !of_accounts.contains(&path.as_str()));
    }
    let report = idempotency.describe_openapi(&mut document);
    Ok((document, report))
}

#[get("/openapi")]
async fn serve_page() -> HttpResponse {
    respond("text/html; charset=utf-8", include_str!("openapi/page.html"))
}

#[get("/openapi/{file}")]
async fn serve_file(name: Path<String>) -> HttpResponse {
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
        .insert_header((CACHE_CONTROL, "no-store"))
        .body(text)
}

#[cfg(test)]
mod tests {
    use idempotent_actix::store::MemoryStore;
    use sqlx::SqlitePool;

    use super::*;

    /// The operations with a policy.
    fn guarded(document: &Value) -> Vec<String> {
        let paths = document["paths"].as_object().unwrap().iter();
        let operations = paths.flat_map(|(path, item)| {
            let operations = item.as_object().unwrap().iter();
            operations
                .filter(|(_, operation)| operation.get("x-idempotency").is_some())
                .map(move |(method, _)| format!("{method} {path}"))
        });
        operations.collect()
    }

    #[tokio::test]
    async fn each_guarded_operation_is_described_and_no_other_one() {
        let idempotency = Idempotency::new(MemoryStore::new());
        let _lookup = Idempotency::lookup_resource("/idempotency/keys/{key}");
        let pool = SqlitePool::connect_lazy("sqlite::memory:").unwrap();
        let (document, report) = described(&idempotency, &Accounts::Sqlite(pool)).unwrap();
        assert_eq!((&*report.ambiguous, &*report.kept), (&[][..], &[][..]));
        let [missing] = &*report.missing else { panic!("{report}") };
        assert!(missing.starts_with("POST /checkout ("), "{missing}");
        let expected = [
            "post /v1/payment_intents",
            "post /v1/refunds",
            "post /v1/transfers",
            "post /v1/transfers/leased",
        ];
        assert_eq!(guarded(&document), expected);

        let (document, report) = described(&idempotency, &Accounts::Unsupported).unwrap();
        assert_eq!(guarded(&document), expected[..2]);
        assert_eq!(report.missing.len(), 3, "{report}");
    }

    #[test]
    fn the_document_says_nothing_of_keys_before_it_is_described() {
        let document: Value = serde_json::from_str(DOCUMENT).unwrap();
        assert!(guarded(&document).is_empty());
        assert!(!DOCUMENT.contains("Idempotency-"));
    }

    #[test]
    fn the_page_names_only_files_of_this_server() {
        let page = include_str!("openapi/page.html");
        for text in [page, FILES[0].2, FILES[1].2] {
            assert!(!text.contains("http://") && !text.contains("https://"));
            assert!(!text.contains("innerHTML"));
        }
        for name in page.split("/openapi/").skip(1).filter_map(|rest| rest.split('"').next()) {
            assert!(FILES.iter().any(|(known, ..)| *known == name), "{name}");
        }
    }
}
