//! The log of operators' decisions.

use idempotent_core::{
    RecordId,
    protocol::{InvalidPosition, PagePosition},
    report::AuditPageView,
};

use crate::{
    args::LogArguments,
    failure::Failure,
    report::Report,
    session::Session,
    text::{BOLD, DIM, Row, or_dash, table},
};

/// Lists a page of the log.
pub(super) async fn log(session: &Session, log: &LogArguments) -> Result<Report, Failure> {
    let after: Option<PagePosition> = log
        .after
        .as_deref()
        .map(str::parse)
        .transpose()
        .map_err(|error: InvalidPosition| Failure::Usage(error.to_string()))?;
    let range = log.id.as_deref().map(RecordId::range).transpose();
    let range = range.map_err(|error| Failure::Usage(error.to_string()))?;
    let page = session.call(session.administrator.audit(after.as_ref(), log.limit)).await?;
    let mut view = AuditPageView::from(&page);
    if let Some((first, last)) = range {
        view.entries.retain(|entry| (first..=last).contains(&entry.id));
    }
    let row = |entry: &idempotent_core::report::AuditView| Row {
        style: BOLD,
        cells: vec![
            entry.action.to_string(),
            entry.at.to_string(),
            or_dash(entry.actor.as_str()),
            format!("{} → {}", entry.before, entry.after),
            or_dash(entry.operation.as_str()),
            entry.id.to_string(),
            or_dash(entry.reason.as_str()),
        ],
    };
    let header = ["ACTION", "TIME", "ACTOR", "STATE", "OPERATION", "ID", "REASON"];
    let mut text = if view.entries.is_empty() {
        "no decisions\n".to_owned()
    } else {
        table(&header, view.entries.iter().map(row).collect())
    };
    if let Some(next) = &view.next {
        text += &format!("{DIM}There are more: --after {next}{DIM:#}\n");
    }
    Report::new(&view, text)
}
