//! Expressions with their names and values.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;

/// The expressions of one write. The service refuses a name or a value that no expression uses, so
/// those of guards that a test has removed are left out.
#[derive(Clone, Debug)]
pub(crate) struct Expression {
    pub(crate) update: Option<String>,
    pub(crate) condition: Option<String>,
    pub(crate) names: Option<HashMap<String, String>>,
    pub(crate) values: Option<HashMap<String, AttributeValue>>,
}

/// A value and its name in expressions, with the colon.
pub(crate) type Value = (&'static str, AttributeValue);

impl Expression {
    pub(crate) fn new(
        update: Option<String>,
        condition: Option<String>,
        values: Vec<Value>,
    ) -> Self {
        let text = [update.as_deref(), condition.as_deref()].map(Option::unwrap_or_default);
        let text = text.join(" ");
        let names: HashMap<_, _> =
            tokens(&text, '#').map(|name| (format!("#{name}"), name.to_owned())).collect();
        let used =
            |name: &str| tokens(&text, ':').any(|token| name.strip_prefix(':') == Some(token));
        let values: HashMap<_, _> = values
            .into_iter()
            .filter(|(name, _)| used(name))
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        Self {
            update,
            condition,
            names: Some(names).filter(|names| !names.is_empty()),
            values: Some(values).filter(|values| !values.is_empty()),
        }
    }
}

/// The words of a text that begin with this mark.
fn tokens(text: &str, mark: char) -> impl Iterator<Item = &str> {
    text.split(mark).skip(1).map(|rest| {
        let is_part = |each: char| each.is_ascii_alphanumeric() || each == '_';
        rest.split(|each| !is_part(each)).next().unwrap_or_default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_names_exactly_what_it_uses() {
        let number = |text: &str| AttributeValue::N(text.to_owned());
        let expression = Expression::new(
            Some("SET #st = :done, #exp = :exp".to_owned()),
            Some("#o = :o AND #st = :done".to_owned()),
            vec![
                (":done", number("2")),
                (":exp", number("5")),
                (":o", number("1")),
                (":oo", number("0")),
            ],
        );
        let names = expression.names.unwrap();
        assert_eq!(names.len(), 3);
        assert_eq!(names.get("#exp").map(String::as_str), Some("exp"));
        let values = expression.values.unwrap();
        assert_eq!(values.len(), 3);
        assert!(!values.contains_key(":oo"));
        assert!(Expression::new(None, None, Vec::new()).names.is_none());
    }
}
