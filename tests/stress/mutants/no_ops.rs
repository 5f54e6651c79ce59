//! Changes to statements and scripts that do not change their behavior. A detector that reports one
//! of them reports noise.

/// One way to write the same statement or script differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoOp {
    /// More white space at the end of each line.
    WhiteSpace,
    /// A comment at the end of each line.
    Comment,
    /// Another name for the table or for a local variable.
    Alias,
    /// A condition that always holds, before each condition.
    Condition,
}

impl NoOp {
    pub(super) const ALL: [Self; 4] =
        [Self::WhiteSpace, Self::Comment, Self::Alias, Self::Condition];

    pub(super) fn alter(self, file: &str, text: &str) -> String {
        match (self, file.ends_with(".lua")) {
            (Self::WhiteSpace, _) => each_line(text, |line| format!("{line}  \n")),
            (Self::Comment, true) => each_line(text, |line| format!("{line} -- no guard\n")),
            // The text after a comment belongs to that comment.
            (Self::Comment, false) => each_line(text, |line| match line.contains("--") {
                true => format!("{line}\n"),
                false => format!("{line} /* no guard */\n"),
            }),
            (Self::Alias, true) => renamed(text, &["r", "head", "value"]),
            (Self::Alias, false) => {
                let other = renamed(text, &["r"]);
                if other == text { with_alias(text) } else { other }
            }
            (Self::Condition, true) => text.replace("if ", "if true and "),
            (Self::Condition, false) => {
                text.replace("WHERE ", "WHERE 1 = 1 AND ").replace(" IF(", " IF(1 = 1 AND ")
            }
        }
    }
}

/// The text with another name for its table; MySQL has none in an insertion, where a word can be
/// left out.
fn with_alias(text: &str) -> String {
    let deleted = "DELETE FROM {schema}`{table}`";
    text.replace("\"\n", "\" AS renamed\n")
        .replace("INSERT INTO {schema}`", "INSERT {schema}`")
        .replace(deleted, "DELETE renamed FROM {schema}`{table}` AS renamed")
        .replace("FROM {schema}`{table}`\n", "FROM {schema}`{table}` AS renamed\n")
        .replace("FROM {schema}`{table}` FORCE", "FROM {schema}`{table}` AS renamed FORCE")
        .replace("UPDATE {schema}`{table}`\n", "UPDATE {schema}`{table}` AS renamed\n")
}

fn each_line(text: &str, with: impl Fn(&str) -> String) -> String {
    text.lines().map(with).collect()
}

/// The text with these words replaced, except those that are literals.
fn renamed(text: &str, words: &[&str]) -> String {
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let (mut renamed, mut rest) = (String::new(), text);
    while !rest.is_empty() {
        let (word, after) =
            rest.split_at(rest.find(|letter| !is_word(letter)).unwrap_or(rest.len()));
        let is_literal = renamed.ends_with('\'');
        renamed.push_str(word);
        if words.contains(&word) && !is_literal {
            renamed.push_str("_renamed");
        }
        let (between, after) = after.split_at(after.find(is_word).unwrap_or(after.len()));
        renamed.push_str(between);
        rest = after;
    }
    renamed
}
