//! Parameters as Stripe's client libraries send them: `application/x-www-form-urlencoded` with
//! bracketed names, such as `metadata[order]=7`; or as JSON; or in the query string of a GET.
//!
//! An extractor reads and checks them, so an invalid request is refused before its key is claimed.
//!
//! `serde_qs` or `serde_html_form` with a derived `Deserialize` would not do: like Stripe's, the
//! errors name the parameter, malformed escapes and repeated parameters are refused, and a form and
//! the equivalent JSON are read alike.

use std::{collections::BTreeMap, future::Future, pin::Pin};

use actix_web::{FromRequest, HttpMessage, HttpRequest, dev::Payload, http::Method, web};
use idempotent_actix::scope::IgnoresCaller;
use serde_json::Value;

use crate::error::ApiError;

/// Extracts a `T` from the parameters of a request. Unknown parameters are ignored, unless `T`
/// [refuses](Fields::refuse_unknown) them.
pub(crate) struct Params<T>(pub(crate) T);

/// A type that can be read from parameters.
pub(crate) trait FromFields: Sized {
    /// Reads the fields. The error names the invalid one.
    fn from_fields(fields: &Fields) -> Result<Self, ApiError>;
}

/// A lookup has no body, and needs none.
impl<T> IgnoresCaller for Params<T> {}

impl<T: FromFields> FromRequest for Params<T> {
    type Error = ApiError;
    type Future = Pin<Box<dyn Future<Output = Result<Self, ApiError>>>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        if request.method() == Method::GET {
            let fields = Fields::from_form(request.query_string().as_bytes());
            return Box::pin(async move { T::from_fields(&fields?).map(Self) });
        }
        let json = request.content_type() == "application/json";
        let body = web::Bytes::from_request(request, payload);
        Box::pin(async move {
            let body = body.await.map_err(|_| ApiError::too_large())?;
            let fields = if json { Fields::from_json(&body) } else { Fields::from_form(&body) };
            T::from_fields(&fields?).map(Self)
        })
    }
}

/// A flat list of names and values: the field `order` of the object `metadata` is called
/// `metadata[order]`. A value of JSON that is no text, such as `null` or a list, is empty.
pub(crate) struct Fields(Vec<(String, String)>);

impl Fields {
    fn from_form(body: &[u8]) -> Result<Self, ApiError> {
        let malformed =
            || ApiError::invalid("form_malformed", "The request is not a well-formed form.");
        let is_encoded = |part: &[u8]| {
            part.get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
        };
        if !body.split(|byte| *byte == b'%').skip(1).all(is_encoded) {
            return Err(malformed());
        }
        let fields: Vec<(String, String)> =
            serde_urlencoded::from_bytes(body).map_err(|_| malformed())?;
        // The decoder replaces invalid UTF-8 by U+FFFD.
        if fields
            .iter()
            .any(|(name, value)| name.contains('\u{FFFD}') || value.contains('\u{FFFD}'))
        {
            return Err(malformed());
        }
        Ok(Self(fields))
    }

    fn from_json(body: &[u8]) -> Result<Self, ApiError> {
        let malformed = || ApiError::invalid("json_malformed", "The body is not a JSON object.");
        let Ok(Value::Object(object)) = serde_json::from_slice(body) else {
            return Err(malformed());
        };
        let mut fields = Vec::new();
        for (name, value) in object {
            let before = fields.len();
            if let Value::Object(inner) = value {
                let inner = inner.into_iter();
                let named =
                    inner.filter_map(|(key, v)| Some((format!("{name}[{key}]"), scalar(v)?)));
                fields.extend(named);
            } else {
                fields.extend(scalar(value).map(|text| (name.clone(), text)));
            }
            // So that it is not taken for absent.
            if fields.len() == before {
                fields.push((name, String::new()));
            }
        }
        Ok(Self(fields))
    }

    /// The text of a parameter. An empty parameter counts as absent; a repeated one is an error.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&str>, ApiError> {
        let mut values =
            self.0.iter().filter(|(n, v)| n == name && !v.is_empty()).map(|(_, v)| v.as_str());
        match (values.next(), values.next()) {
            (value, None) => Ok(value),
            _ => Err(ApiError::invalid(
                "parameter_invalid",
                format!("Received {name} more than once."),
            )
            .with_param(name)),
        }
    }

    /// The text of a required parameter.
    pub(crate) fn required(&self, name: &str) -> Result<&str, ApiError> {
        let missing = || {
            ApiError::invalid("parameter_missing", format!("Missing required param: {name}."))
                .with_param(name)
        };
        self.text(name)?.ok_or_else(missing)
    }

    /// A whole number between `least` and `most`.
    pub(crate) fn integer(
        &self,
        name: &str,
        least: i64,
        most: i64,
    ) -> Result<Option<i64>, ApiError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        match text.parse() {
            Ok(number) if (least..=most).contains(&number) => Ok(Some(number)),
            Ok(_) => {
                let message = format!("Invalid {name}: it must be from {least} to {most}.");
                Err(ApiError::invalid("parameter_invalid_integer", message).with_param(name))
            }
            Err(_) => {
                let message = format!("Invalid integer: {}", shortened(text));
                Err(ApiError::invalid("parameter_invalid_integer", message).with_param(name))
            }
        }
    }

    /// A whole number as above, or `None` if the parameter is absent: an empty one and a list are
    /// errors. For an amount whose absence means "everything".
    pub(crate) fn integer_if_given(
        &self,
        name: &str,
        least: i64,
        most: i64,
    ) -> Result<Option<i64>, ApiError> {
        let mut given = self.0.iter().filter(|(full, _)| parameter(full) == name).peekable();
        if given.peek().is_none() {
            return Ok(None);
        }
        let number = if given.all(|(full, _)| full == name) {
            self.integer(name, least, most)?
        } else {
            None
        };
        let message = format!("Invalid {name}: send a whole number, or leave it out.");
        let error = ApiError::invalid("parameter_invalid_integer", message).with_param(name);
        number.ok_or(error).map(Some)
    }

    /// Refuses parameters that are not in the list: one of them may be misspelled.
    pub(crate) fn refuse_unknown(&self, known: &[&str]) -> Result<(), ApiError> {
        let mut names = self.0.iter().map(|(full, _)| parameter(full));
        match names.find(|name| !known.contains(name)) {
            None => Ok(()),
            Some(name) => {
                let message = format!("Received unknown parameter: {}", shortened(name));
                Err(ApiError::invalid("parameter_unknown", message).with_param(name))
            }
        }
    }

    /// A boolean, `false` if absent.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, ApiError> {
        match self.text(name)? {
            Some("true") => Ok(true),
            None | Some("false") => Ok(false),
            Some(text) => {
                let message = format!("Invalid boolean: {}", shortened(text));
                Err(ApiError::invalid("parameter_invalid_boolean", message).with_param(name))
            }
        }
    }

    /// The fields of an object: `name[key]` for each `key`.
    pub(crate) fn object(&self, name: &str) -> BTreeMap<String, String> {
        let key = |full: &str| {
            Some(full.strip_prefix(name)?.strip_prefix('[')?.strip_suffix(']')?.to_owned())
        };
        self.0.iter().filter_map(|(full, value)| Some((key(full)?, value.clone()))).collect()
    }
}

/// The name of a parameter without its key or index: `metadata` of `metadata[order]`.
fn parameter(full: &str) -> &str {
    full.split_once('[').map_or(full, |(name, _)| name)
}

/// The text of a scalar JSON value; nested values and `null` have none.
fn scalar(value: Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(body: &str) -> Fields {
        Fields::from_form(body.as_bytes()).unwrap()
    }

    #[test]
    fn a_form_of_the_stripe_libraries_is_read() {
        let fields = form(
            "amount=2000&confirm=true&payment_method_types[0]=card&metadata[order]=7\
             &metadata%5Bto%5D=B%C3%A4r",
        );
        assert_eq!(fields.integer("amount", 1, 9_999).unwrap(), Some(2000));
        assert!(fields.flag("confirm").unwrap());
        let metadata =
            BTreeMap::from([("order".into(), "7".into()), ("to".into(), "B\u{e4}r".into())]);
        assert_eq!(fields.object("metadata"), metadata);
    }

    #[test]
    fn json_and_a_form_have_the_same_fields() {
        let json = br#"{"amount": 2000, "confirm": true, "description": null,
                 "expand": ["x"], "metadata": {"order": 7}}"#;
        let mut fields = Fields::from_json(json).unwrap().0;
        fields.sort();
        let expected = "amount=2000&confirm=true&description=&expand=&metadata[order]=7";
        assert_eq!(fields, form(expected).0);
    }

    #[test]
    fn malformed_bodies_are_refused() {
        for body in ["a=%", "a=%2", "a=%zz", "a=%FF"] {
            assert!(Fields::from_form(body.as_bytes()).is_err(), "{body}");
        }
        for body in ["", "{", "[1]", "1", "{\"a\":1}x"] {
            assert!(Fields::from_json(body.as_bytes()).is_err(), "{body}");
        }
    }

    #[test]
    fn a_wrong_value_is_refused_and_an_empty_one_is_absent() {
        let fields =
            form("amount=1.5&big=10&big2=99999999999999999999&twice=1&twice=1&empty=&flag=yes");
        for name in ["amount", "big", "big2", "twice"] {
            assert!(fields.integer(name, 1, 9).is_err(), "{name}");
        }
        assert!(fields.flag("flag").is_err());
        assert!(fields.required("empty").is_err());
        assert_eq!(fields.text("empty").unwrap(), None);
    }

    #[test]
    fn an_amount_that_may_be_absent_is_never_taken_for_absent() {
        let amount = |fields: &Fields| fields.integer_if_given("amount", 1, 9);
        assert_eq!(amount(&form("payment_intent=pi_1")).unwrap(), None);
        assert_eq!(amount(&form("amount=5")).unwrap(), Some(5));
        for body in ["amount=", "amount=%20", "amount[]=5", "amount[0]=5", "amount=5&amount[]=5"] {
            assert!(amount(&form(body)).is_err(), "{body}");
        }
        for value in ["null", "[5]", "{\"x\": 5}", "{}", "\"\"", "5.5", "true"] {
            let body = format!("{{\"amount\": {value}}}");
            let fields = Fields::from_json(body.as_bytes()).unwrap();
            assert!(amount(&fields).is_err(), "{body}");
        }
        let known = ["payment_intent", "amount", "metadata"];
        assert!(form("amount=5&metadata[a]=b").refuse_unknown(&known).is_ok());
        for body in ["amout=5", "Amount=5", "amount%20=5", "amout[]=5"] {
            assert!(form(body).refuse_unknown(&known).is_err(), "{body}");
        }
    }
}
