//! The specification that a server publishes.

use std::time::Duration;

use idempotent_http::specification::PublishedSpecification;
use reqwest::{Client, IntoUrl, Url};

/// What a server that uses `idempotent-actix` publishes about its operations: here, how long it
/// remembers their keys.
///
/// The draft (draft-ietf-httpapi-idempotency-key-header-07 §2) requires a resource to publish its
/// expiry policy, but no format. Of another server, set [`ttl`](crate::ClientIdempotency::ttl) by
/// hand.
#[derive(Clone, Debug)]
pub struct Specification {
    published: PublishedSpecification,
    /// The path below which the server's routes are mounted.
    base: String,
}

impl Specification {
    /// Gets the specification from its URL.
    ///
    /// # Errors
    /// Fails if it cannot be fetched, or if it is not such a specification.
    pub async fn fetch(client: &Client, url: impl IntoUrl) -> Result<Self, reqwest::Error> {
        let published = client.get(url).send().await?.error_for_status()?.json().await?;
        Ok(Self { published, base: String::new() })
    }

    /// Reads a specification from its text.
    ///
    /// # Errors
    /// Fails if the text is not such a specification.
    pub fn parse(json: &str) -> Result<Self, serde_json::Error> {
        Ok(Self { published: serde_json::from_str(json)?, base: String::new() })
    }

    /// Sets the path in front of the server's routes, such as `/api`, if a proxy or a scope of the
    /// application adds one.
    #[must_use]
    pub fn base(self, path: &str) -> Self {
        Self { base: path.trim_end_matches('/').to_owned(), ..self }
    }

    /// How long the keys of an operation are remembered.
    pub(crate) fn ttl(&self, method: &str, url: &Url) -> Option<Duration> {
        self.published.ttl(method, url.path().strip_prefix(self.base.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_is_in_front_of_the_routes() {
        let json = r#"{"operations": [
            {"routes": [{"method": "POST", "path": "/orders"}], "ttl_seconds": 60.0},
            {"routes": [{"method": "POST", "path": null}], "ttl_seconds": 1.0}
        ]}"#;
        let specification = Specification::parse(json).unwrap().base("/api/");
        let ttl = |path: &str| {
            let url = Url::parse("https://example.com").unwrap().join(path).unwrap();
            specification.ttl("POST", &url)
        };
        assert_eq!(ttl("/api/orders?a=b"), Some(Duration::from_secs(60)));
        assert_eq!(ttl("/orders"), Some(Duration::from_secs(1)));
    }
}
