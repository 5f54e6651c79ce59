//! The request under test, which can be sent again and again.

use actix_web::{
    http::{
        Method, Uri,
        header::{HeaderMap, HeaderName, HeaderValue},
    },
    test::TestRequest,
};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;

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

    /// The request with this key.
    pub(crate) fn with_key(&self, header: &HeaderName, key: &str) -> actix_http::Request {
        let mut request = TestRequest::with_uri(&self.uri.to_string()).method(self.method.clone());
        for (name, value) in &self.headers {
            if name != header {
                request = request.append_header((name.clone(), value.clone()));
            }
        }
        if let Ok(value) = HeaderValue::from_str(key) {
            request = request.insert_header((header.clone(), value));
        }
        request.set_payload(self.body.clone()).to_request()
    }

    /// The same request with another body: with a number or a text of a JSON body changed, or with
    /// one byte more.
    pub(crate) fn with_other_body(&self) -> Self {
        let json = serde_json::from_slice(&self.body).ok().and_then(|mut json| {
            changed(&mut json).then(|| serde_json::to_vec(&json).unwrap_or_default())
        });
        let body = json.unwrap_or_else(|| [&self.body[..], b"x"].concat());
        Self { body: body.into(), ..self.clone() }
    }
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
