//! What is read: lists, one record, and the record of a client's key.

use std::time::{Duration, Instant};

use idempotent_core::{
    Key, RecordId, ScopeId, ShortText,
    protocol::{ListedState, PagePosition, RecordFilter, Snapshot},
    report::{AuditPageView, RecordPageView, RecordView, ShownDuration, Story, explain},
    runtime::FoundRecord,
};
use idempotent_http::report::RecordingView;
use serde::{Deserialize, Serialize};

use crate::{failure::Failure, parts::ConsoleParts};

/// How many records a page has.
const PAGE: u32 = 50;
/// How long a request reads pages of the whole store, before it returns what it has found.
const MAX_SCAN: Duration = Duration::from_secs(3);

/// Which records are listed.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Listed {
    /// Those that may need somebody: held ones, and those in flight that are watched.
    #[default]
    Watched,
    Held,
    InFlight,
    /// Reads the whole store, as `Any` does.
    Completed,
    Any,
}

impl Listed {
    pub(crate) const ALL: [(Self, &'static str, &'static str); 5] = [
        (Self::Watched, "watched", "held and in flight"),
        (Self::Held, "held", "held"),
        (Self::InFlight, "in_flight", "in flight"),
        (Self::Completed, "completed", "completed (reads the whole store)"),
        (Self::Any, "any", "all (reads the whole store)"),
    ];

    const fn reads_all(self) -> bool {
        matches!(self, Self::Completed | Self::Any)
    }

    const fn state(self) -> Option<ListedState> {
        match self {
            Self::Watched | Self::Any => None,
            Self::Held => Some(ListedState::Held),
            Self::InFlight => Some(ListedState::InFlight),
            Self::Completed => Some(ListedState::Completed),
        }
    }
}

/// The filters of a list. An empty text is no filter.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ListQuery {
    pub(crate) state: Listed,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) operation: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) reference: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) older_than: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) after: String,
}

impl ListQuery {
    pub(crate) fn filter(&self) -> Result<RecordFilter, Failure> {
        let short = |text: &str| match text {
            "" => Ok(None),
            text => ShortText::new(text).map(Some).map_err(|error| invalid(&error)),
        };
        let mut filter = RecordFilter::default();
        filter.state = self.state.state();
        filter.operation = short(self.operation.trim())?;
        filter.reference = short(self.reference.trim())?;
        filter.older_than = match self.older_than.trim() {
            "" => None,
            text => {
                let ShownDuration(duration) = text.parse().map_err(|error| invalid(&error))?;
                Some(duration)
            }
        };
        Ok(filter)
    }

    /// The query of a URL.
    pub(crate) fn url(&self) -> String {
        // Texts can always be written.
        serde_urlencoded::to_string(self).unwrap_or_default()
    }
}

pub(crate) fn invalid(error: &dyn std::error::Error) -> Failure {
    Failure::Invalid(error.to_string())
}

/// A page of a list.
pub(crate) async fn list(
    console: &ConsoleParts,
    query: &ListQuery,
) -> Result<RecordPageView, Failure> {
    let filter = query.filter()?;
    let after: Option<PagePosition> = match query.after.as_str() {
        "" => None,
        text => Some(text.parse().map_err(|error| invalid(&error))?),
    };
    let administrator = &console.administrator;
    if !query.state.reads_all() {
        let page = administrator.watched(&filter, after.as_ref(), PAGE).await?;
        return Ok(RecordPageView::from(&page));
    }
    let (started, mut after) = (Instant::now(), after);
    let mut found: Option<RecordPageView> = None;
    loop {
        let count = found.as_ref().map_or(0, |found| found.records.len());
        let left = PAGE.saturating_sub(u32::try_from(count).unwrap_or(PAGE));
        let page = administrator.scan(&filter, after.as_ref(), left).await?;
        let page = RecordPageView::from(&page);
        after.clone_from(&page.next);
        let all = match found.take() {
            None => page,
            Some(mut all) => {
                all.records.extend(page.records);
                all.unreadable.extend(page.unreadable);
                all.next = page.next;
                all
            }
        };
        let is_full = all.records.len() >= usize::try_from(PAGE).unwrap_or(usize::MAX);
        if after.is_none() || is_full || started.elapsed() > MAX_SCAN {
            return Ok(all);
        }
        found = Some(all);
    }
}

/// All that is shown of one key.
#[derive(Debug, Serialize)]
pub(crate) struct Whole {
    pub(crate) record: Option<RecordView>,
    pub(crate) recording: Option<RecordingView>,
    pub(crate) story: Story,
}

/// The record with this whole id, its recording, and its story. The story outlives the record.
pub(crate) async fn whole(console: &ConsoleParts, id: &RecordId) -> Result<Whole, Failure> {
    let administrator = &console.administrator;
    let found = administrator.look_up(id).await?;
    let audited = match administrator.audit_of(id).await {
        Ok(audited) => audited,
        // A store without lists has records all the same.
        Err(error) if error.is_unsupported() => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    if found.is_none() && audited.is_empty() {
        return Err(Failure::NotFound(format!(
            "there is no record {id}, and no operator has decided about one"
        )));
    }
    let view = |Snapshot { record, at, .. }: &Snapshot| RecordView::new(id, record, *at);
    let recording = found
        .as_ref()
        .and_then(|found| RecordingView::of_record(&found.record, console.shows_bodies));
    Ok(Whole {
        record: found.as_ref().map(view),
        recording,
        story: explain(id, found.as_ref(), &audited),
    })
}

/// The whole id that begins with these digits.
pub(crate) async fn id_of(console: &ConsoleParts, digits: &str) -> Result<RecordId, Failure> {
    if let Ok(id) = digits.parse() {
        return Ok(id);
    }
    let administrator = &console.administrator;
    match administrator.find(digits).await.map_err(|error| invalid(&error))?? {
        FoundRecord::One(found) => Ok(found.id),
        FoundRecord::Absent => {
            Err(Failure::NotFound(format!("no record has an id that begins with {digits}")))
        }
        FoundRecord::Ambiguous(found) => {
            let mut views = Vec::new();
            for listed in &found {
                if let Some(Snapshot { record, at, .. }) = administrator.look_up(&listed.id).await?
                {
                    views.push(RecordView::new(&listed.id, &record, at));
                }
            }
            let message = format!("several records have ids that begin with {digits}");
            Err(Failure::Ambiguous(message, views))
        }
    }
}

/// The client's own key. It is sent in the body of a request, so that no log has it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClientKey {
    key: String,
    operation: String,
    scope: String,
    /// By default the namespace of the application.
    #[serde(default)]
    namespace: String,
}

/// The id of the record of a client's key, which may be absent.
pub(crate) fn id_of_key(console: &ConsoleParts, given: &ClientKey) -> Result<RecordId, Failure> {
    let key = Key::from_text(given.key.trim()).map_err(|error| invalid(&error))?;
    let scope: ScopeId = given.scope.trim().parse().map_err(|error| invalid(&error))?;
    let operation = given.operation.trim();
    match given.namespace.trim() {
        "" => {
            let id = console.idempotency.record_id(&scope, operation, &key);
            id.map_err(|error| invalid(&error))
        }
        namespace => Ok(RecordId::new(namespace, &scope, operation, &key)),
    }
}

/// How many entries a page of the log has.
const LOG_PAGE: u32 = 50;

pub(crate) async fn audit_page(
    console: &ConsoleParts,
    after: &str,
) -> Result<AuditPageView, Failure> {
    let after: Option<PagePosition> = match after {
        "" => None,
        text => Some(text.parse().map_err(|error| invalid(&error))?),
    };
    let page = console.administrator.audit(after.as_ref(), LOG_PAGE).await?;
    Ok(AuditPageView::from(&page))
}
