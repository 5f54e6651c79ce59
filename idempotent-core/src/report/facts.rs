//! The view of what a store tells of itself.

use serde::Serialize;

use super::{Time, as_text};
use crate::{protocol::StoreFacts, short_text::ShortText};

/// What a store tells of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StoreFactsView {
    /// The time of the store's clock.
    pub at: Time,
    /// The name and the version of the database.
    #[serde(serialize_with = "as_text")]
    pub server: ShortText,
    /// How much space what belongs to the store takes.
    pub sizes: Vec<SizeView>,
    /// What somebody should look at.
    pub findings: Vec<FindingView>,
}

/// How much space a part of a store takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SizeView {
    /// The name of the part.
    pub name: &'static str,
    /// The space in bytes.
    pub bytes: u64,
}

/// Something that is not an error, but that costs space, time or records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FindingView {
    /// What was found, in a sentence.
    pub found: String,
    /// What to set or to do, in a sentence.
    pub advice: String,
}

impl From<&StoreFacts> for StoreFactsView {
    fn from(facts: &StoreFacts) -> Self {
        let sizes = facts.sizes.iter().map(|size| SizeView { name: size.name, bytes: size.bytes });
        let findings = facts.findings.iter().map(|finding| FindingView {
            found: finding.found.clone(),
            advice: finding.advice.clone(),
        });
        Self {
            at: facts.at.into(),
            server: facts.server.clone(),
            sizes: sizes.collect(),
            findings: findings.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::clock::Timestamp;

    #[test]
    fn facts_have_a_fixed_shape() {
        let at = Timestamp::from_millis(1_795_780_981_250);
        let facts = StoreFacts::new(at, ShortText::truncated("SQLite 3.51.3"))
            .with_size("table", 4096)
            .with_finding("A half of the file is free.", "Execute VACUUM.");
        let expected = json!({
            "at": "2026-11-27T12:03:01.250Z",
            "server": "SQLite 3.51.3",
            "sizes": [{ "name": "table", "bytes": 4096 }],
            "findings": [{ "found": "A half of the file is free.", "advice": "Execute VACUUM." }],
        });
        assert_eq!(serde_json::to_value(StoreFactsView::from(&facts)).unwrap(), expected);
    }
}
