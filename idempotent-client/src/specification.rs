//! The specification that a server publishes.

use std::time::Duration;

use reqwest::{Client, IntoUrl, Url};
use serde::Deserialize;

/// What a server that uses `idempotent-actix` publishes about its operations: here, how long it
/// remembers their keys.
///
/// The draft (draft-ietf-httpapi-idempotency-key-header-07 §2) requires a resource to publish its
/// expiry policy, but no format. Of another server, set [`ttl`](crate::ClientIdempotency::ttl) by
/// hand.
#[derive(Clone, Debug, Deserialize)]
pub struct Specification {
    operations: Vec<OperationPolicy>,
    /// The path below which the server's routes are mounted.
    #[serde(skip)]
    base: String,
}

#[derive(Clone, Debug, Deserialize)]
struct OperationPolicy {
    routes: Vec<Route>,
    ttl_seconds: f64,
}

#[derive(Clone, Debug, Deserialize)]
struct Route {
    method: String,
    path: Option<String>,
}

impl Specification {
    /// Gets the specification from its URL.
    ///
    /// # Errors
    /// Fails if it cannot be fetched, or if it is not such a specification.
    pub async fn fetch(client: &Client, url: impl IntoUrl) -> Result<Self, reqwest::Error> {
        client.get(url).send().await?.error_for_status()?.json().await
    }

    /// Reads a specification from its text.
    ///
    /// # Errors
    /// Fails if the text is not such a specification.
    pub fn parse(json: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(json)
    }

    /// Sets the path in front of the server's routes, such as `/api`, if a proxy or a scope of the
    /// application adds one.
    #[must_use]
    pub fn base(self, path: &str) -> Self {
        Self { base: path.trim_end_matches('/').to_owned(), ..self }
    }

    /// How long the keys of an operation are remembered. The shortest time, if several operations
    /// match; that of all operations, if none does.
    pub(crate) fn ttl(&self, method: &str, url: &Url) -> Option<Duration> {
        let path = url.path().strip_prefix(self.base.as_str());
        let is_match = |operation: &&OperationPolicy| {
            operation.routes.iter().any(|route| {
                let pattern = route.path.as_deref();
                route.method == method
                    && pattern.zip(path).is_some_and(|(pattern, path)| matches(pattern, path))
            })
        };
        let ttl =
            |operation: &OperationPolicy| Duration::try_from_secs_f64(operation.ttl_seconds).ok();
        let matching = self.operations.iter().filter(is_match).filter_map(ttl).min();
        matching.or_else(|| self.operations.iter().filter_map(ttl).min())
    }
}

/// Whether a path matches a pattern of actix-web: `{name}` is one segment, and `{name:regex}` is
/// taken for the rest of the path.
fn matches(pattern: &str, path: &str) -> bool {
    let mut segments = path.split('/');
    for part in pattern.split('/') {
        if part.contains('{') && part.contains(':') {
            return segments.next().is_some();
        }
        let is_parameter = part.starts_with('{') && part.ends_with('}');
        match segments.next() {
            Some(segment) if segment == part || (is_parameter && !segment.is_empty()) => {}
            _ => return false,
        }
    }
    segments.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_paths_with_its_segments() {
        for (pattern, path, expected) in [
            ("/orders", "/orders", true),
            ("/orders", "/orders/1", false),
            ("/orders/{id}", "/orders/1", true),
            ("/orders/{id}", "/orders/", false),
            ("/orders/{id}/refunds", "/orders/1/refunds", true),
            ("/orders/{id}/refunds", "/orders/1", false),
            ("/files/{path:.*}", "/files/a/b", true),
        ] {
            assert_eq!(matches(pattern, path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn the_ttl_is_that_of_the_operation() {
        let json = r#"{"header": "idempotency-key", "operations": [
            {"routes": [{"method": "POST", "path": "/orders"}], "ttl_seconds": 60.0},
            {"routes": [{"method": "POST", "path": null}], "ttl_seconds": 1.0},
            {"routes": [{"method": "PUT", "path": "/orders/{id}"}], "ttl_seconds": 30.5}
        ]}"#;
        let specification = Specification::parse(json).unwrap().base("/api/");
        let ttl = |method, path: &str| {
            specification
                .ttl(method, &Url::parse("https://example.com").unwrap().join(path).unwrap())
        };
        assert_eq!(ttl("POST", "/api/orders"), Some(Duration::from_secs(60)));
        assert_eq!(ttl("PUT", "/api/orders/7?a=b"), Some(Duration::from_millis(30_500)));
        let shortest = Some(Duration::from_secs(1));
        assert_eq!(ttl("POST", "/orders"), shortest);
        assert_eq!(ttl("DELETE", "/api/orders/7"), shortest);
        let none = Specification::parse(r#"{"operations": []}"#).unwrap();
        assert_eq!(none.ttl("POST", &"https://example.com/orders".parse().unwrap()), None);
    }
}
