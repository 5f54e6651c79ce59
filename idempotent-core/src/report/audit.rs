//! Views of the log of operators' decisions.

use serde::Serialize;

use super::{Time, as_optional_text, as_text};
use crate::{
    protocol::{AuditAction, AuditPage, Audited, AuditedState, PagePosition},
    record_id::RecordId,
    short_text::ShortText,
};

/// A decision of an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AuditView {
    /// When it was made, by the store's clock.
    pub at: Time,
    /// What was done: `complete`, `release`, `forget` or `erase`.
    #[serde(serialize_with = "as_text")]
    pub action: AuditAction,
    /// The whole id of the record.
    #[serde(serialize_with = "as_text")]
    pub id: RecordId,
    /// The name of its operation. Empty if it had none.
    #[serde(serialize_with = "as_text")]
    pub operation: ShortText,
    /// Its state before: `held`, `in flight`, `completed`, or `completed 201` with its status.
    #[serde(serialize_with = "as_text")]
    pub before: AuditedState,
    /// Its state afterwards; also `absent`.
    #[serde(serialize_with = "as_text")]
    pub after: AuditedState,
    /// Who decided.
    #[serde(serialize_with = "as_text")]
    pub actor: ShortText,
    /// Why, in the actor's words.
    #[serde(serialize_with = "as_text")]
    pub reason: ShortText,
}

impl From<&Audited> for AuditView {
    fn from(Audited { entry, at }: &Audited) -> Self {
        Self {
            at: (*at).into(),
            action: entry.action,
            id: entry.id,
            operation: entry.operation.clone(),
            before: entry.before,
            after: entry.after,
            actor: entry.actor.name.clone(),
            reason: entry.actor.reason.clone(),
        }
    }
}

/// A page of the log, the latest decision first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AuditPageView {
    /// The decisions.
    pub entries: Vec<AuditView>,
    /// Where the next page begins. `None`: there is no other page.
    #[serde(serialize_with = "as_optional_text")]
    pub next: Option<PagePosition>,
}

impl From<&AuditPage> for AuditPageView {
    fn from(page: &AuditPage) -> Self {
        let entries = page.entries.iter().map(AuditView::from).collect();
        Self { entries, next: page.next.clone() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        clock::Timestamp,
        protocol::{Actor, AuditEntry},
    };

    #[test]
    fn a_page_of_the_log_has_a_fixed_shape() {
        let id = RecordId::from_bytes([0xab; 32]);
        let actor = Actor::new("ada", "as the bank's books say");
        let entry = AuditEntry {
            operation: ShortText::truncated("POST /refunds"),
            after: AuditedState::Completed(Some(201)),
            ..AuditEntry::new(AuditAction::Complete, id, AuditedState::Held, actor)
        };
        let at = Timestamp::from_millis(1_795_780_981_250);
        let next = Some(PagePosition::after_number(7));
        let page = AuditPage::new(vec![Audited::new(entry, at)], next);
        let expected = json!({
            "entries": [{
                "at": "2026-11-27T12:03:01.250Z",
                "action": "complete",
                "id": "ab".repeat(32),
                "operation": "POST /refunds",
                "before": "held",
                "after": "completed 201",
                "actor": "ada",
                "reason": "as the bank's books say",
            }],
            "next": "7",
        });
        assert_eq!(serde_json::to_value(AuditPageView::from(&page)).unwrap(), expected);
    }
}
