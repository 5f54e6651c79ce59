//! The digest of a request, which becomes its fingerprint once it is signed.

use std::borrow::Cow;

use idempotent_core::{Digester, RequestDigest, canonical_json};

mod head;
mod multipart;

pub use self::{
    head::{ContentTypeForm, QueryForm},
    multipart::{MultipartType, multipart},
};
pub use idempotent_core::JsonPart;

/// How the body contributes to the fingerprint. Equal bytes in different forms have different
/// digests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyForm {
    /// The bytes as sent.
    Raw,
    /// The canonical JSON form ([RFC 8785](canonical_json)).
    Json,
    /// The canonical form of [a part](JsonPart) of the JSON.
    JsonPart(JsonPart<'static>),
    /// Neither the body nor the content type contributes.
    Ignored,
    /// Bytes that the application has derived from the request. The content type does not
    /// contribute.
    Custom,
}

impl BodyForm {
    /// Returns the form in the words of the specification and of the attribute's `fingerprint`;
    /// `custom` for a function.
    #[must_use]
    pub const fn specified(self) -> &'static str {
        match self {
            Self::Raw => "body",
            Self::Json | Self::JsonPart(_) => "json",
            Self::Ignored => "none",
            Self::Custom => "custom",
        }
    }
}

/// All parts of a request that its digest consists of, except the body.
#[derive(Clone, Copy, Debug)]
pub struct RequestParts<'a> {
    /// The method.
    pub method: &'a str,
    /// What the name of the operation does not determine of the path, such as the values of dynamic
    /// segments: with the literal path, a route could not be renamed while requests are retried.
    pub path: &'a str,
    /// The query.
    pub query: &'a str,
    /// The value of `Content-Type`, or nothing.
    pub content_type: &'a [u8],
    /// The value of `Content-Encoding`, if there is one.
    pub content_encoding: Option<&'a [u8]>,
}

impl RequestParts<'_> {
    /// Starts the digest of a request whose body contributes in this form.
    ///
    /// The digest is SHA-256 over method, path, query, content type and [`BodyForm`], each with its
    /// length, and the body.
    #[must_use]
    pub fn digester(&self, form: BodyForm) -> Digester {
        let Self { method, path, query, content_type, content_encoding } = *self;
        let (tag, counts_its_type): (Cow<'_, str>, bool) = match form {
            BodyForm::Raw => ("raw".into(), true),
            BodyForm::Json => ("json".into(), true),
            BodyForm::JsonPart(part) => (part.tag().into(), true),
            BodyForm::Ignored => ("nothing".into(), false),
            BodyForm::Custom => ("custom".into(), false),
        };
        // Without an encoding nothing is added, so that existing fingerprints stay valid.
        let joined = content_encoding
            .filter(|_| counts_its_type)
            .map(|encoding| [content_type, b"\0", encoding].concat());
        let content_type = match &joined {
            Some(joined) => joined,
            None if counts_its_type => content_type,
            None => b"",
        };
        Digester::new([
            method.as_bytes(),
            path.as_bytes(),
            query.as_bytes(),
            content_type,
            tag.as_bytes(),
        ])
    }

    /// Computes the digest of a request with its canonical JSON, or a part of it. A body without a
    /// canonical form counts as it was sent, and all of it.
    #[must_use]
    pub fn digest_of_json(&self, body: &[u8], part: Option<JsonPart<'static>>) -> RequestDigest {
        let (form, canonical) = match part {
            None => (BodyForm::Json, canonical_json(body)),
            Some(part) => (BodyForm::JsonPart(part), part.canonical(body)),
        };
        let canonical = canonical.as_ref().map(|json| (form, &**json));
        let (form, bytes) = canonical.unwrap_or((BodyForm::Raw, body));
        let mut digester = self.digester(form);
        digester.update(bytes);
        digester.finish()
    }
}

#[cfg(test)]
mod tests {
    use idempotent_core::FingerprintKeys;

    use super::*;

    const PARTS: RequestParts<'_> = RequestParts {
        method: "POST",
        path: "/p",
        query: "q=1",
        content_type: b"text/plain",
        content_encoding: None,
    };

    fn digest(parts: RequestParts<'_>, form: BodyForm, body: &str) -> RequestDigest {
        let mut digester = parts.digester(form);
        digester.update(body.as_bytes());
        digester.finish()
    }

    #[test]
    fn every_part_counts() {
        let one = digest(PARTS, BodyForm::Raw, "b");
        assert_eq!(one, digest(PARTS, BodyForm::Raw, "b"));
        for other in [
            digest(RequestParts { method: "PUT", ..PARTS }, BodyForm::Raw, "b"),
            digest(RequestParts { path: "/pq", query: "=1", ..PARTS }, BodyForm::Raw, "b"),
            digest(RequestParts { query: "q=2", ..PARTS }, BodyForm::Raw, "b"),
            digest(RequestParts { content_type: b"text/html", ..PARTS }, BodyForm::Raw, "b"),
            digest(RequestParts { content_encoding: Some(b"gzip"), ..PARTS }, BodyForm::Raw, "b"),
            digest(PARTS, BodyForm::Json, "b"),
            digest(PARTS, BodyForm::Raw, "c"),
        ] {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn a_body_that_does_not_count_takes_its_content_type_along() {
        let html = RequestParts { content_type: b"text/html", ..PARTS };
        let zipped = RequestParts { content_encoding: Some(b"gzip"), ..PARTS };
        for other in [html, zipped] {
            assert_eq!(digest(PARTS, BodyForm::Ignored, ""), digest(other, BodyForm::Ignored, ""));
            assert_eq!(digest(PARTS, BodyForm::Custom, ""), digest(other, BodyForm::Custom, ""));
        }
    }

    #[test]
    fn which_part_of_the_json_counts_is_part_of_the_digest() {
        let of = |part| PARTS.digest_of_json(br#"{"a":1}"#, part);
        let (except, only) = (JsonPart::Except(&["/b"]), JsonPart::Only(&["/a"]));
        let digests = [of(None), of(Some(except)), of(Some(only))];
        let other = of(Some(JsonPart::Except(&["/c"])));
        assert!(digests.iter().enumerate().all(|(at, digest)| !digests[..at].contains(digest)));
        assert!(!digests.contains(&other));
        let ignored = PARTS.digest_of_json(br#"{"b":2, "a":1}"#, Some(except));
        assert_eq!(of(Some(except)), ignored);
        assert_eq!(digest(PARTS, BodyForm::Raw, "x"), PARTS.digest_of_json(b"x", Some(except)));
    }

    #[test]
    fn the_digest_of_a_request_is_fixed_for_ever() {
        // Another value here would make every key in every store a mismatch.
        let written = |content_type: &str, form: &str| {
            let mut digester = Digester::new(["POST", "/p", "q=1", content_type, form]);
            digester.update(b"b");
            digester.finish()
        };
        assert_eq!(digest(PARTS, BodyForm::Raw, "b"), written("text/plain", "raw"));
        assert_eq!(digest(PARTS, BodyForm::Json, "b"), written("text/plain", "json"));
        let part = BodyForm::JsonPart(JsonPart::Only(&["/b", "/a"]));
        assert_eq!(digest(PARTS, part, "b"), written("text/plain", r#"json only ["/a","/b"]"#));
        assert_eq!(digest(PARTS, BodyForm::Ignored, "b"), written("", "nothing"));
        assert_eq!(digest(PARTS, BodyForm::Custom, "b"), written("", "custom"));
        let fingerprint = FingerprintKeys::none().sign(digest(PARTS, BodyForm::Raw, "b"));
        let digits = fingerprint.to_bytes().map(|byte| format!("{byte:02x}")).concat();
        assert_eq!(
            digits,
            "00000000208009b4b5db7c6d639d656f1c1618eb10d4f70b120d3b2aed29d1b464cfab57"
        );
        let zipped = RequestParts { content_encoding: Some(b"gzip"), ..PARTS };
        assert_eq!(digest(zipped, BodyForm::Raw, "b"), written("text/plain\0gzip", "raw"));
    }
}
