//! The URL of a table.

use idempotent_core::{StoreError, store::url::verify_server};

use crate::error::NAME;

/// What a URL names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// The Region, or that of the environment.
    pub(crate) region: Option<String>,
    pub(crate) table: String,
    /// Where the service is, if not at its usual address.
    pub(crate) endpoint: Option<String>,
}

/// Why a URL is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum InvalidAddress {
    #[error("the URL of a table is `dynamodb://REGION/TABLE`, or `dynamodb:///TABLE`")]
    NoTable,
    #[error("the URL has credentials; they belong into the environment or a profile")]
    Credentials,
    #[error("`endpoint` is a URL that begins with `http://` or `https://`")]
    Endpoint,
}

impl Address {
    /// Parses `dynamodb://REGION/TABLE?endpoint=URL`.
    pub(crate) fn parse(url: &str) -> Result<Self, StoreError> {
        let refused = |invalid: InvalidAddress| StoreError::permanent(NAME, "connect", invalid);
        if url.split(['/', '?']).nth(2).is_some_and(|host| host.contains('@')) {
            return Err(refused(InvalidAddress::Credentials));
        }
        verify_server(NAME, url, &["endpoint"])?;
        Self::parts(url).map_err(refused)
    }

    fn parts(url: &str) -> Result<Self, InvalidAddress> {
        let rest = url.strip_prefix("dynamodb://").ok_or(InvalidAddress::NoTable)?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (region, table) = path.split_once('/').ok_or(InvalidAddress::NoTable)?;
        let is_name = |text: &str| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            text.bytes().all(plain)
        };
        if table.is_empty() || !is_name(table) || !is_name(region) {
            return Err(InvalidAddress::NoTable);
        }
        let endpoint = query.split('&').find_map(|pair| pair.strip_prefix("endpoint="));
        let endpoint = endpoint.map(decoded).transpose()?;
        let is_url = |url: &String| url.starts_with("http://") || url.starts_with("https://");
        if endpoint.as_ref().is_some_and(|url| !is_url(url)) {
            return Err(InvalidAddress::Endpoint);
        }
        let region = Some(region.to_owned()).filter(|region| !region.is_empty());
        Ok(Self { region, table: table.to_owned(), endpoint })
    }
}

/// Decodes `%3A` and the like.
fn decoded(text: &str) -> Result<String, InvalidAddress> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at_checked(2).ok_or(InvalidAddress::Endpoint)?;
        bytes.push(u8::from_str_radix(code, 16).map_err(|_| InvalidAddress::Endpoint)?);
        bytes.extend(rest.as_bytes());
    }
    String::from_utf8(bytes).map_err(|_| InvalidAddress::Endpoint)
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    fn parsed(url: &str) -> Address {
        Address::parse(url).unwrap()
    }

    #[test]
    fn a_url_names_a_region_a_table_and_an_endpoint() {
        let address = parsed("dynamodb://eu-central-1/payments");
        let expected = Address {
            region: Some("eu-central-1".to_owned()),
            table: "payments".to_owned(),
            endpoint: None,
        };
        assert_eq!(address, expected);
        assert_eq!(parsed("dynamodb:///payments").region, None);
        for endpoint in ["http://127.0.0.1:8000", "http%3A%2F%2F127.0.0.1%3A8000"] {
            let address = parsed(&format!("dynamodb://us-east-1/t?endpoint={endpoint}"));
            assert_eq!(address.endpoint.as_deref(), Some("http://127.0.0.1:8000"));
        }
    }

    #[test]
    fn another_url_is_refused_without_being_shown() {
        for url in [
            "dynamodb:payments",
            "dynamodb://eu-central-1",
            "dynamodb://eu-central-1/",
            "dynamodb://eu-central-1/a/b",
            "dynamodb://eu-central-1/hunter2%zz",
            "dynamodb://AKIA:hunter2@eu-central-1/payments",
            "dynamodb://eu-central-1/payments?endpoint=hunter2",
            "dynamodb://eu-central-1/payments?endpoint=%f",
            "dynamodb://eu-central-1/payments?endpont=http://h",
        ] {
            let error = Address::parse(url).unwrap_err();
            let shown = format!("{error:?} {}", error.source().unwrap());
            assert!(!error.is_transient() && !shown.contains("hunter2"), "{url}: {shown}");
        }
    }
}
