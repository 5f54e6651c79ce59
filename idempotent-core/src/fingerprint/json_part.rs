//! The part of a JSON document that counts.

use serde_json::{Map, Value};

use super::json::{strict_value, write};

/// Which part of a JSON document counts for "the same request". The lists are JSON pointers (RFC
/// 6901); none of them is inside another.
///
/// A pointer to nothing is no error: a value that is ignored is the same as none, and a value that
/// counts differs from none. An element of an array is named by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JsonPart<'a> {
    /// All but these values.
    Except(&'a [&'a str]),
    /// Only these values.
    Only(&'a [&'a str]),
}

impl JsonPart<'_> {
    /// Returns the canonical form of the part of a JSON text, or `None` if the whole text has no
    /// [canonical form](super::canonical_json).
    ///
    /// The form of some values is that of an object with a member for each value, which has its
    /// pointer as its name.
    ///
    /// ```
    /// use idempotent_core::JsonPart;
    ///
    /// let part = JsonPart::Only(&["/amount"]);
    /// let canonical = part.canonical(br#"{"sent_at": 1, "amount": 1e1}"#);
    /// assert_eq!(canonical.as_deref(), Some(&br#"{"/amount":10}"#[..]));
    /// ```
    #[must_use]
    pub fn canonical(self, text: &[u8]) -> Option<Vec<u8>> {
        let whole = strict_value(text)?;
        let part = match self {
            Self::Except(pointers) => without(whole, pointers),
            Self::Only(pointers) => only(&whole, pointers),
        };
        let mut canonical = Vec::with_capacity(text.len());
        write(&part, &mut canonical)?;
        Some(canonical)
    }

    /// Returns the text that stands for this part in the digest of a request. The order of the
    /// pointers does not matter.
    #[must_use]
    pub fn tag(self) -> String {
        let (word, pointers) = match self {
            Self::Except(pointers) => ("except", pointers),
            Self::Only(pointers) => ("only", pointers),
        };
        let mut pointers = pointers.to_vec();
        pointers.sort_unstable();
        format!("json {word} {}", Value::from(pointers))
    }
}

/// The document without the values at these pointers.
fn without(mut document: Value, pointers: &[&str]) -> Value {
    let mut pointers = pointers.to_vec();
    // The greater index comes first, because what follows a removed element moves up.
    pointers.sort_unstable_by_key(|pointer| std::cmp::Reverse((pointer.len(), *pointer)));
    for pointer in pointers {
        remove(&mut document, pointer);
    }
    document
}

fn remove(document: &mut Value, pointer: &str) {
    let Some((parent, name)) = pointer.rsplit_once('/') else { return };
    match document.pointer_mut(parent) {
        Some(Value::Object(members)) => {
            members.remove(&name.replace("~1", "/").replace("~0", "~"));
        }
        Some(Value::Array(values)) => {
            if let Some(index) = index(name).filter(|index| *index < values.len()) {
                values.remove(index);
            }
        }
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) | None => {}
    }
}

/// RFC 6901 §4: digits without a leading zero.
fn index(name: &str) -> Option<usize> {
    let is_index = name == "0" || !name.starts_with(['0', '+']);
    is_index.then(|| name.parse().ok())?
}

/// An object with the values at these pointers.
fn only(document: &Value, pointers: &[&str]) -> Value {
    let found = pointers
        .iter()
        .filter_map(|pointer| Some(((*pointer).to_owned(), document.pointer(pointer)?.clone())));
    Value::Object(found.collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(part: JsonPart<'_>, text: &str) -> Option<String> {
        part.canonical(text.as_bytes()).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn ignored_values_are_the_same_as_none() {
        for (pointers, text, expected) in [
            (&["/a"][..], r#"{"a":1,"b":2}"#, r#"{"b":2}"#),
            (&["/a"], r#"{"b":2}"#, r#"{"b":2}"#),
            (&["/m/at"], r#"{"m":{"at":1,"to":2}}"#, r#"{"m":{"to":2}}"#),
            (&["/m/at"], r#"{"m":{"at":1}}"#, r#"{"m":{}}"#),
            (&["/m/at"], r#"{"m":7}"#, r#"{"m":7}"#),
            (&["/a~1b", "/m~0n"], r#"{"a/b":1,"m~n":2,"c":3}"#, r#"{"c":3}"#),
            (&["/~01"], r#"{"~1":1,"/":2}"#, r#"{"/":2}"#),
            (&["/l/1"], r#"{"l":[1,2,3]}"#, r#"{"l":[1,3]}"#),
            (&["/l/0", "/l/2"], r#"{"l":[1,2,3]}"#, r#"{"l":[2]}"#),
            (&["/2", "/10"], "[0,1,2,3,4,5,6,7,8,9,10,11]", "[0,1,3,4,5,6,7,8,9,11]"),
            (&["/0", "/1/a"], r#"[9,{"a":1,"b":2},3]"#, r#"[{"b":2},3]"#),
            (&["/l/01", "/l/-", "/l/9", "/l/+1"], r#"{"l":[1,2]}"#, r#"{"l":[1,2]}"#),
            (&["/"], r#"{"":1,"a":2}"#, r#"{"a":2}"#),
        ] {
            let found = canonical(JsonPart::Except(pointers), text);
            assert_eq!(found.as_deref(), Some(expected), "{pointers:?} of {text}");
        }
    }

    #[test]
    fn values_that_count_are_named_by_their_pointers() {
        for (pointers, text, expected) in [
            (&["/a", "/b"][..], r#"{"c":1,"b":2.0,"a":[true]}"#, r#"{"/a":[true],"/b":2}"#),
            (&["/a"], r#"{"b":1}"#, "{}"),
            (&["/a"], r#"{"a":null}"#, r#"{"/a":null}"#),
            (&["/l/0/id"], r#"{"l":[{"id":7,"x":1}]}"#, r#"{"/l/0/id":7}"#),
            (&["/a~1b"], r#"{"a/b":1}"#, r#"{"/a~1b":1}"#),
            (&["/a"], "7", "{}"),
        ] {
            let found = canonical(JsonPart::Only(pointers), text);
            assert_eq!(found.as_deref(), Some(expected), "{pointers:?} of {text}");
        }
    }

    #[test]
    fn a_text_without_a_canonical_form_has_no_part() {
        for text in ["", "not json", r#"{"a":1,"a":2}"#, r#"{"a":9007199254740993}"#] {
            assert_eq!(canonical(JsonPart::Except(&["/a"]), text), None, "{text}");
            assert_eq!(canonical(JsonPart::Only(&["/b"]), text), None, "{text}");
        }
    }

    #[test]
    fn each_part_has_a_tag_of_its_own() {
        assert_eq!(JsonPart::Except(&["/b", "/a"]).tag(), r#"json except ["/a","/b"]"#);
        assert_eq!(JsonPart::Only(&["/a\",\"/b"]).tag(), r#"json only ["/a\",\"/b"]"#);
    }
}
