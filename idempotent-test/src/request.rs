//! The request under test, which can be sent again and again.

use actix_web::{
    http::{
        Method, Uri,
        header::{HeaderMap, HeaderName},
    },
    test::TestRequest,
};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;

/// The request under test, which can be sent any number of times.
pub(crate) enum RequestUnderTest {
    /// Always the same, with a key in a header.
    Template(Template, HeaderName),
    /// Made by the test for each key.
    Made(Box<dyn Fn(&str) -> TestRequest>),
}

impl RequestUnderTest {
    /// The request with this key.
    pub(crate) fn with_key(&self, key: &str) -> actix_http::Request {
        match self {
            Self::Template(template, header) => template.with_key(header, key),
            Self::Made(make) => make(key).to_request(),
        }
    }

    /// The request with this key and another body, if it is not the test that makes requests.
    pub(crate) fn with_other_body(
        &self,
        key: &str,
        body: Option<Bytes>,
    ) -> Option<actix_http::Request> {
        match self {
            Self::Template(template, header) => {
                Some(template.with_other_body(body).with_key(header, key))
            }
            Self::Made(_) => None,
        }
    }
}

/// A request that can be sent any number of times.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
}

impl Template {
    /// Reads a request with its body.
    pub(crate) async fn read(request: TestRequest) -> Self {
        let mut request = request.to_request();
        let (mut payload, mut body) = (request.take_payload(), BytesMut::new());
        while let Some(Ok(chunk)) = payload.next().await {
            body.extend_from_slice(&chunk);
        }
        let head = request.head();
        Self {
            method: head.method.clone(),
            uri: head.uri.clone(),
            headers: head.headers.clone(),
            body: body.freeze(),
        }
    }

    fn with_key(&self, header: &HeaderName, key: &str) -> actix_http::Request {
        let mut request = TestRequest::with_uri(&self.uri.to_string()).method(self.method.clone());
        for (name, value) in &self.headers {
            if name != header {
                request = request.append_header((name.clone(), value.clone()));
            }
        }
        request = request.insert_header((header.clone(), key));
        request.set_payload(self.body.clone()).to_request()
    }

    /// The same request with this body, or with a changed one: a number or a text of a JSON body,
    /// or a digit of another one; without digits, with one byte more.
    fn with_other_body(&self, body: Option<Bytes>) -> Self {
        if let Some(body) = body {
            return Self { body, ..self.clone() };
        }
        let json = serde_json::from_slice(&self.body).ok().and_then(|mut json| {
            changed(&mut json).then(|| serde_json::to_vec(&json).unwrap_or_default())
        });
        let body = json.unwrap_or_else(|| with_other_digit(&self.body));
        Self { body: body.into(), ..self.clone() }
    }
}

/// Changes the first digit, or adds a byte.
fn with_other_digit(body: &[u8]) -> Vec<u8> {
    let mut other = body.to_vec();
    match other.iter_mut().find(|byte| byte.is_ascii_digit()) {
        Some(digit @ b'9') => *digit = b'8',
        Some(digit) => *digit += 1,
        None => other.push(b'x'),
    }
    other
}

/// Changes one value of a JSON document, and keeps its type. Returns whether it has one.
fn changed(json: &mut serde_json::Value) -> bool {
    use serde_json::Value;
    match json {
        Value::Null => false,
        Value::Bool(value) => {
            *value = !*value;
            true
        }
        Value::Number(number) => {
            let Some(other) = number.as_u64().and_then(|number| number.checked_add(1)) else {
                return false;
            };
            *number = other.into();
            true
        }
        Value::String(text) => {
            text.push('x');
            true
        }
        Value::Array(values) => values.iter_mut().any(changed),
        Value::Object(members) => {
            // A number keeps more documents valid than a text.
            let (numbers, others): (Vec<_>, Vec<_>) =
                members.values_mut().partition(|value| value.is_number());
            numbers.into_iter().chain(others).any(changed)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_digit_of_another_body_is_changed() {
        for (body, other) in [("a=10&b=2", "a=20&b=2"), ("9", "8"), ("tea", "teax"), ("", "x")] {
            assert_eq!(with_other_digit(body.as_bytes()), other.as_bytes());
        }
    }

    #[test]
    fn one_value_of_a_document_is_changed() {
        for (document, expected) in [
            (
                json!({"currency": "eur", "amount": 5}),
                Some(json!({"currency": "eur", "amount": 6})),
            ),
            (json!({"note": "a"}), Some(json!({"note": "ax"}))),
            (
                json!({"lines": [{"n": null}, {"n": 1}]}),
                Some(json!({"lines": [{"n": null}, {"n": 2}]})),
            ),
            (json!([true]), Some(json!([false]))),
            (json!({}), None),
            (json!(null), None),
        ] {
            let mut other = document.clone();
            let is_changed = changed(&mut other);
            assert_eq!(is_changed.then_some(other), expected, "{document}");
        }
    }
}
