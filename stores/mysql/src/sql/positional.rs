//! Statements whose parameters are numbered in their files, for a protocol in which they are not.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Arc, Mutex, PoisonError},
};

use sqlx::{AssertSqlSafe, MySql, SqlStr, mysql::MySqlArguments, query::Query};

use idempotent_core::RecordId;
use idempotent_sql::statement::{Statement, Value, shared_text};

/// The text of a statement, and which value each of its parameters has.
#[derive(Clone, Debug)]
pub(crate) struct Positional {
    text: SqlStr,
    /// The index of the value of each `?`.
    values: Vec<usize>,
}

impl Positional {
    /// Takes a text with parameters `?1`, `?2` and so on, each of which may occur several times.
    pub(crate) fn new(numbered: &str) -> Self {
        let mut parts = numbered.split('?');
        let mut text = parts.next().unwrap_or_default().to_owned();
        let mut values = Vec::new();
        for part in parts {
            let end = part.find(|next: char| !next.is_ascii_digit()).unwrap_or(part.len());
            let (number, rest) = part.split_at(end);
            let number: usize = number.parse().unwrap_or_default();
            values.push(number.saturating_sub(1));
            text.extend(["?", rest]);
        }
        Self { text: shared_text(text), values }
    }

    #[cfg(test)]
    pub(crate) fn as_str(&self) -> &str {
        self.text.as_str()
    }
}

/// A statement as the driver binds it.
pub(crate) fn prepared(
    statement: &Statement<'_, Positional>,
) -> Query<'static, MySql, MySqlArguments> {
    let Positional { text, values } = statement.text;
    let values = values.iter().filter_map(|index| statement.values.get(*index));
    values.fold(sqlx::query(text.clone()), |query, value| match value {
        Value::Bytes(Cow::Borrowed(bytes)) => query.bind(*bytes),
        Value::Bytes(Cow::Owned(bytes)) => query.bind(bytes.clone()),
        Value::Int(int) => query.bind(*int),
        Value::Text(Cow::Borrowed(text)) => query.bind(*text),
        Value::Text(Cow::Owned(text)) => query.bind(text.clone()),
        // The databases have no arrays; no statement of this store has such a value.
        Value::ByteArrays(_) | Value::Ints(_) => query,
    })
}

/// A statement as a text with its values, to be sent in one message with others.
pub(crate) fn literal(statement: &Statement<'_, Positional>) -> String {
    let Positional { text, values } = statement.text;
    let mut parts = text.as_str().split('?');
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for (part, index) in parts.zip(values) {
        if let Some(value) = statement.values.get(*index) {
            write_value(&mut filled, value);
        }
        filled.push_str(part);
    }
    filled
}

/// Appends the value as a literal of numbers and hexadecimal digits only.
fn write_value(text: &mut String, value: &Value<'_>) {
    match value {
        Value::Bytes(bytes) => write_bytes(text, bytes),
        // Writing to a `String` does not fail.
        Value::Int(int) => drop(write!(text, "{int}")),
        Value::Text(value) => {
            text.push_str("CONVERT(");
            write_bytes(text, value.as_bytes());
            text.push_str(" USING utf8mb4)");
        }
        Value::ByteArrays(_) | Value::Ints(_) => {}
    }
}

fn write_bytes(text: &mut String, bytes: &[u8]) {
    text.reserve(bytes.len() * 2 + 3);
    text.push_str("X'");
    text.extend(
        bytes
            .iter()
            .flat_map(|byte| [byte >> 4, byte & 0xf])
            .filter_map(|digit| char::from_digit(digit.into(), 16)),
    );
    text.push('\'');
}

/// A statement for several items: `{each,:…}` in its text is repeated for each of them, separated
/// by commas, and `{each :…}` by spaces. In it, `?1` is the first value of the item, and `{1}` the
/// first of those that all items share.
#[derive(Debug)]
pub(crate) struct Repeated {
    template: String,
    /// How many values all items share, and how many each item has.
    shared: usize,
    each: usize,
    /// The texts for up to [`KEPT`](Self::KEPT) items.
    texts: Mutex<BTreeMap<usize, Arc<Positional>>>,
}

impl Repeated {
    /// The largest number of items whose text is kept.
    const KEPT: usize = 64;

    pub(crate) fn new(template: &str) -> Self {
        let (mut shared, mut each) = (0, 0);
        for (index, part) in template.split("{each").enumerate() {
            let (repeated, rest) =
                if index == 0 { ("", part) } else { split_at_end(part).unwrap_or((part, "")) };
            each = highest(repeated).max(each);
            shared = highest(rest).max(usize::from(repeated.contains("{1}"))).max(shared);
        }
        Self { template: template.to_owned(), shared, each, texts: Mutex::default() }
    }

    /// The text for this number of items.
    pub(crate) fn text(&self, items: usize) -> Arc<Positional> {
        if items > Self::KEPT {
            return Arc::new(self.repeated(items));
        }
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        texts.entry(items).or_insert_with(|| Arc::new(self.repeated(items))).clone()
    }

    fn repeated(&self, items: usize) -> Positional {
        let mut text = String::new();
        for (index, part) in self.template.split("{each").enumerate() {
            let Some((repeated, rest)) = (index > 0).then(|| split_at_end(part)).flatten() else {
                text.push_str(part);
                continue;
            };
            let (separator, repeated) = repeated.split_once(':').unwrap_or((" ", repeated));
            for item in 0..items {
                if item > 0 {
                    text.push_str(separator);
                }
                text.push_str(&self.of_item(repeated, item));
            }
            text.push_str(rest);
        }
        Positional::new(&text)
    }

    /// Replaces the numbers of an item's values.
    fn of_item(&self, repeated: &str, item: usize) -> String {
        let mut parts = repeated.split('?');
        let mut text = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let end = part.find(|next: char| !next.is_ascii_digit()).unwrap_or(part.len());
            let (number, rest) = part.split_at(end);
            let number: usize = number.parse().unwrap_or_default();
            let _ = write!(text, "?{}{rest}", self.shared + item * self.each + number);
        }
        text.replace("{1}", "?1")
    }
}

/// Splits behind `{each` at the brace that closes it.
fn split_at_end(part: &str) -> Option<(&str, &str)> {
    let mut depth = 1_u32;
    let end = part.find(|next: char| {
        match next {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        depth == 0
    })?;
    Some((part.get(..end)?, part.get(end + 1..)?))
}

/// The highest number of a parameter.
fn highest(text: &str) -> usize {
    let numbers = text.split('?').skip(1).filter_map(|part| {
        let end = part.find(|next: char| !next.is_ascii_digit()).unwrap_or(part.len());
        part.get(..end)?.parse().ok()
    });
    numbers.max().unwrap_or_default()
}

/// The values of statements for several ids.
pub(crate) fn ids<'a>(ids: impl IntoIterator<Item = &'a RecordId>) -> Vec<Value<'a>> {
    ids.into_iter().map(|id| Value::bytes(id.as_bytes())).collect()
}

/// A text without values, in one message.
pub(crate) fn message(text: impl Into<String>) -> sqlx::RawSql {
    sqlx::raw_sql(AssertSqlSafe(text.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_can_occur_several_times() {
        let text = Positional::new("SET a = ?2, b = IF(?1 = '', ?2, ?10)");
        assert_eq!(text.as_str(), "SET a = ?, b = IF(? = '', ?, ?)");
        assert_eq!(text.values, [1, 0, 1, 9]);
    }

    #[test]
    fn a_literal_has_digits_only() {
        let text = Positional::new("SELECT ?1, ?2, ?3, ?1");
        let values = vec![Value::bytes(b"'"), Value::Int(-7), Value::text("é")];
        let shown = literal(&Statement::new(&text, values));
        assert_eq!(shown, "SELECT X'27', -7, CONVERT(X'c3a9' USING utf8mb4), X'27'");
    }

    #[test]
    fn the_values_of_items_follow_those_that_they_share() {
        let repeated = Repeated::new(
            "SET a = ?1, b = CASE id {each :WHEN ?1 THEN {1} + ?2} END \
                                      WHERE id IN ({each,:?1})",
        );
        let text = repeated.text(2);
        assert_eq!(
            text.as_str(),
            "SET a = ?, b = CASE id WHEN ? THEN ? + ? WHEN ? THEN ? + ? END WHERE id IN (?,?)"
        );
        assert_eq!(text.values, [0, 1, 0, 2, 3, 0, 4, 1, 3]);
    }

    #[test]
    fn a_value_that_items_share_may_occur_in_items_only() {
        let text = Repeated::new("VALUES {each,:(?1, {1} + ?2)}").text(2);
        assert_eq!(text.as_str(), "VALUES (?, ? + ?),(?, ? + ?)");
        assert_eq!(text.values, [1, 0, 2, 3, 0, 4]);
    }
}
