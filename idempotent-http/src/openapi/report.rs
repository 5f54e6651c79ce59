//! What was described, and what was not.

use std::fmt;

/// What [`describe`](super::describe) has done with a document. Each entry is a line for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenApiReport {
    /// The operations that are described, each with its handler.
    pub described: Vec<String>,
    /// What the server has and the document lacks: the routes of guarded handlers, and the lookup
    /// of keys.
    pub missing: Vec<String>,
    /// The operations of the document that may belong to several handlers, or not to the handler
    /// that their path fits. Give them the name of their handler as `operationId`.
    pub ambiguous: Vec<String>,
    /// What could not be added because of what the document has in its place.
    pub kept: Vec<String>,
}

impl OpenApiReport {
    /// Returns whether the document describes each guarded handler, and nothing was left out.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty() && self.ambiguous.is_empty() && self.kept.is_empty()
    }
}

/// Writes a line for each entry but those that are described.
impl fmt::Display for OpenApiReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lists = [
            ("not in the document", &self.missing),
            ("ambiguous", &self.ambiguous),
            ("kept as it is", &self.kept),
        ];
        let lines =
            lines_of(lists).map(|(title, entry)| format!("{title}: {entry}")).collect::<Vec<_>>();
        f.write_str(&lines.join("\n"))
    }
}

fn lines_of<'a>(
    lists: [(&'static str, &'a Vec<String>); 3],
) -> impl Iterator<Item = (&'static str, &'a String)> {
    lists.into_iter().flat_map(|(title, entries)| entries.iter().map(move |entry| (title, entry)))
}
