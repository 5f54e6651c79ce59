//! What every request passes: who asks, whether it comes from the console's own pages, and the
//! headers of every response.

use actix_web::{
    Error, HttpMessage as _,
    body::{BoxBody, MessageBody},
    dev::{ServiceRequest, ServiceResponse},
    http::{
        Method,
        header::{
            CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderMap, HeaderValue, ORIGIN,
            REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
        },
    },
    middleware::Next,
};

use crate::{
    access::{Access, Who},
    failure::Failure,
    visit::Visit,
};

/// No script, nothing of other sites, forms only to the console itself, and no frame around it.
const POLICY: &str = "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; \
                      frame-ancestors 'none'";

/// Middleware of everything in the console.
pub(crate) async fn enter(
    who: &Who,
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let path = request.match_info().unprocessed();
    let mut visit = Visit {
        access: Access::None,
        base: base(path),
        is_api: path.starts_with("/api/"),
        is_same_origin: origin(&request) == Origin::Same,
    };
    visit.access = match who(request.request().clone()).await {
        Ok(access) => access,
        Err(error) => return Ok(with_headers(request.error_response(error))),
    };
    let refusal = if visit.access == Access::None {
        Some("this console is not open to you".to_owned())
    } else {
        refusal(&request, visit.is_api)
    };
    if let Some(why) = refusal {
        let response = Failure::Forbidden(why).response(&visit);
        return Ok(with_headers(request.into_response(response)));
    }
    request.extensions_mut().insert(visit);
    let response = next.call(request).await?;
    Ok(with_headers(response.map_into_boxed_body()))
}

/// The way up from a path below the console.
fn base(path: &str) -> String {
    match path.matches('/').count() {
        0 | 1 => "./".to_owned(),
        depth => "../".repeat(depth - 1),
    }
}

/// Where a request comes from, as the browser says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// From a page of this server.
    Same,
    /// From another site, or from nowhere.
    Other,
    /// No browser says anything.
    Unknown,
}

/// `Sec-Fetch-Site` (Fetch Metadata) is the browser's own statement. Browsers send it to `https`
/// and to `localhost`; elsewhere `Origin` has to be this server.
fn origin(request: &ServiceRequest) -> Origin {
    let headers = request.headers();
    if let Some(site) = headers.get("sec-fetch-site") {
        return if site == "same-origin" { Origin::Same } else { Origin::Other };
    }
    match text(headers, ORIGIN.as_str()) {
        Some(origin) => {
            let is_own = origin
                .split_once("://")
                .is_some_and(|(_, host)| host == request.connection_info().host());
            if is_own { Origin::Same } else { Origin::Other }
        }
        None if headers.contains_key(ORIGIN) => Origin::Other,
        None => Origin::Unknown,
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Why a request that could change something is refused; `None` if it may pass. A form has to come
/// from a page of this server. A program that is no browser says nothing about its origin, and may
/// use the API with JSON, which no form of another site can send.
fn refusal(request: &ServiceRequest, is_api: bool) -> Option<String> {
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return None;
    }
    let is_json = || {
        let kind = text(request.headers(), "content-type").unwrap_or_default();
        kind.split(';').next().is_some_and(|kind| kind.trim() == "application/json")
    };
    match origin(request) {
        Origin::Same => None,
        Origin::Unknown if is_api && is_json() => None,
        Origin::Unknown if is_api => {
            Some("send JSON, with `Content-Type: application/json`".to_owned())
        }
        Origin::Unknown | Origin::Other => Some(
            "this request does not come from a page of this console; open the page and try again"
                .to_owned(),
        ),
    }
}

/// Nothing is cached, run, framed or leaked. `same-origin` keeps the header `Origin` of forms,
/// which `no-referrer` would set to `null`.
fn with_headers(mut response: ServiceResponse<BoxBody>) -> ServiceResponse<BoxBody> {
    let headers = response.headers_mut();
    for (name, value) in [
        (CACHE_CONTROL, "no-store"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "same-origin"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    fn refused(headers: &[(&'static str, &'static str)], is_api: bool) -> bool {
        let request = headers.iter().copied().fold(TestRequest::post(), TestRequest::insert_header);
        refusal(&request.to_srv_request(), is_api).is_some()
    }

    const HOST: (&str, &str) = ("host", "pay.example");

    #[test]
    fn a_form_of_the_console_passes() {
        assert!(!refused(&[HOST, ("sec-fetch-site", "same-origin")], false));
        assert!(!refused(&[HOST, ("origin", "https://pay.example")], false));
    }

    #[test]
    fn a_form_of_another_site_is_refused() {
        for site in ["cross-site", "same-site", "none"] {
            assert!(refused(&[HOST, ("sec-fetch-site", site)], false), "{site}");
            let own = ("origin", "https://pay.example");
            assert!(refused(&[HOST, ("sec-fetch-site", site), own], true), "{site}");
        }
        for origin in ["null", "https://attacker.example", "https://pay.example:8443", ""] {
            assert!(refused(&[HOST, ("origin", origin)], false), "{origin}");
            let json = ("content-type", "application/json");
            assert!(refused(&[HOST, ("origin", origin), json], true), "{origin}");
        }
        assert!(refused(&[HOST], false));
    }

    #[test]
    fn a_program_sends_json_to_the_api() {
        assert!(!refused(&[HOST, ("content-type", "application/json; charset=utf-8")], true));
        for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"] {
            assert!(refused(&[HOST, ("content-type", kind)], true), "{kind}");
        }
        assert!(refused(&[HOST, ("content-type", "application/json")], false));
    }

    #[test]
    fn the_way_up_depends_on_the_depth() {
        for (path, expected) in [
            ("", "./"),
            ("/", "./"),
            ("/records", "./"),
            ("/records/ab", "../"),
            ("/a/b/c", "../../"),
        ] {
            assert_eq!(base(path), expected, "{path}");
        }
    }
}
