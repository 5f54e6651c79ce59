//! Keys that have an effect only with certain fingerprints. `ignore` and `only` are JSON pointers
//! (RFC 6901) to what counts of a body.

use syn::LitStr;

use super::entry::{Setting, Written};
use super::key_from::pointer;
use super::keys::Args;
use super::values::Comparison;
use crate::errors::Errors;

impl Args {
    /// The pointers, and the runtime's variant for them.
    pub(crate) fn json_part(&self) -> Option<(&'static str, &[LitStr])> {
        let except = self.ignore.value().map(|pointers| ("Except", &**pointers));
        except.or_else(|| self.only.value().map(|pointers| ("Only", &**pointers)))
    }

    /// Reports a rule for a content type that does not count.
    pub(super) fn check_content_type(&self, errors: &mut Errors) {
        let counts = match self.fingerprint.value() {
            None | Some(Comparison::Supplied("Raw" | "Json")) => true,
            Some(_) => false,
        };
        if let (Some(key), false) = (self.content_type.key(), counts) {
            let what = "`content_type` has an effect only with `fingerprint = \"body\"` or \
                `\"json\"`; remove it";
            let help = "write `fingerprint = \"json\", content_type = \"equivalent\"`";
            errors.at(key, what, help);
        }
    }

    /// Reports pointers that are wrong or have no effect.
    pub(super) fn check_json_part(&self, errors: &mut Errors) {
        let fingerprint = match &self.fingerprint {
            Setting::Unset => Some("body"),
            Setting::Set(Written { value: Comparison::Supplied("Json"), .. })
            | Setting::Invalid { .. } => None,
            Setting::Set(_) => Some("another"),
        };
        for (setting, example) in [
            (&self.ignore, "[\"/metadata/sent_at\"]"),
            (&self.only, "[\"/amount\", \"/currency\"]"),
        ] {
            if let (Some(key), Some(_)) = (setting.key(), fingerprint) {
                let what = format!(
                    "`{key}` has an effect only with `fingerprint = \"json\"`; write both, or \
                        remove `{key}`"
                );
                let help = format!("write `fingerprint = \"json\", {key} = {example}`");
                errors.at(key, what, help);
            }
            if let Some(pointers) = setting.value() {
                check(pointers, example, errors);
            }
        }
        if let (Some(_), Some(only)) = (self.ignore.key(), self.only.key()) {
            let what = "`only` already leaves out what `ignore` names; remove one of them";
            errors.at(only, what, "write `only = [\"/amount\", \"/currency\"]`");
        }
    }
}

/// Reports each pointer that is malformed, or names what another one names.
fn check(pointers: &[LitStr], example: &str, errors: &mut Errors) {
    let mut earlier: Vec<String> = Vec::new();
    for literal in pointers {
        let text = literal.value();
        if let Err((what, help)) = against(&earlier, &text) {
            errors.at(literal, what, help.unwrap_or_else(|| format!("write `{example}`")));
        }
        if pointer(&text).is_ok() {
            earlier.push(text);
        }
    }
}

/// What is wrong with a pointer after these, and the help if it is a special one.
fn against(earlier: &[String], text: &str) -> Result<(), (String, Option<String>)> {
    if text.is_empty() {
        let what = "an empty JSON pointer is the whole body; name a member of it";
        return Err((what.to_owned(), None));
    }
    pointer(text).map_err(|wrong| {
        let slash = format!("/{text}");
        let meant = pointer(&slash).is_ok().then(|| format!("write `\"{slash}\"`"));
        (format!("`{text}` {wrong}"), meant)
    })?;
    for other in earlier {
        if other == text {
            let what = format!("`{text}` is listed twice; write it once");
            return Err((what, Some(format!("write `[\"{text}\"]`"))));
        }
        let [outer, inner] = if text.len() > other.len() { [other, text] } else { [text, other] };
        if inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/')) {
            let what = format!("`{inner}` is inside `{outer}`; remove one of them");
            return Err((what, Some(format!("write `[\"{outer}\"]`"))));
        }
    }
    Ok(())
}
