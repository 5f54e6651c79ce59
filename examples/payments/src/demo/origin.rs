//! Refuses requests of other sites. The page can kill a process, so no other page may use its calls
//! through the visitor's browser.

use std::net::IpAddr;

use actix_web::{
    Error, HttpResponse,
    body::{EitherBody, MessageBody},
    dev::{ServiceRequest, ServiceResponse},
    http::header::{HOST, HeaderMap, ORIGIN},
    middleware::Next,
};

/// Middleware that refuses requests of other sites.
pub(crate) async fn refuse_other_sites<B: MessageBody>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    if is_own(request.headers()) {
        return Ok(next.call(request).await?.map_into_left_body());
    }
    let refusal = HttpResponse::Forbidden().body(
        "This request does not come from the page of this server. Open the page at `localhost` or \
         at the address of the server.\n",
    );
    Ok(request.into_response(refusal).map_into_right_body())
}

/// Whether the headers are those of the page's own requests.
fn is_own(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let Some(host) = text(HOST.as_str()) else { return false };
    // Another site can make its name resolve to this server, but not `localhost` or an address.
    let name = host.rsplit_once(':').filter(|(_, port)| !port.contains(']'));
    let name = name.map_or(host, |(name, _)| name);
    let is_local = name == "localhost" || name.ends_with(".localhost");
    let is_address = name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    let same_site = text("Sec-Fetch-Site").is_none_or(|site| site == "same-origin");
    let same_origin = text(ORIGIN.as_str())
        .is_none_or(|origin| origin.split_once("://").map(|o| o.1) == Some(host));
    (is_local || is_address) && same_site && same_origin
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    fn accepts(headers: &[(&'static str, &'static str)]) -> bool {
        let request = headers.iter().copied().fold(TestRequest::post(), TestRequest::insert_header);
        is_own(request.to_srv_request().headers())
    }

    #[test]
    fn requests_of_the_page_are_accepted() {
        for host in ["127.0.0.1:8080", "localhost:8080", "[::1]:8080", "[::1]", "192.168.1.5"] {
            assert!(accepts(&[("Host", host)]), "{host}");
        }
        assert!(accepts(&[
            ("Host", "127.0.0.1:8080"),
            ("Origin", "http://127.0.0.1:8080"),
            ("Sec-Fetch-Site", "same-origin"),
        ]));
    }

    #[test]
    fn requests_of_other_sites_are_refused() {
        assert!(!accepts(&[]));
        for host in ["attacker.example:8080", "localhost.attacker.example", "", "127.0.0.1.nip.io"]
        {
            assert!(!accepts(&[("Host", host)]), "{host}");
        }
        let host = ("Host", "127.0.0.1:8080");
        for origin in ["http://attacker.example", "null", "http://127.0.0.1:9090"] {
            assert!(!accepts(&[host, ("Origin", origin)]), "{origin}");
        }
        for site in ["cross-site", "same-site", "none"] {
            assert!(!accepts(&[host, ("Sec-Fetch-Site", site)]), "{site}");
        }
    }
}
