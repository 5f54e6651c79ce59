//! The list of records.

use idempotent_core::{
    ShortText,
    protocol::{ListedState, PagePosition, RecordFilter, RecordPage},
    report::RecordPageView,
};

use crate::{
    args::{ListArguments, ListedStateArgument},
    ask,
    failure::Failure,
    report::Report,
    select::scope,
    session::Session,
    text::{DIM, count, records_table, unreadable_text},
};

/// Lists a page of records.
pub(super) async fn list(session: &Session, list: &ListArguments) -> Result<Report, Failure> {
    let filter = filter(session, list)?;
    let after: Option<PagePosition> = list.after.as_deref().map(str::parse).transpose().map_err(
        |error: idempotent_core::protocol::InvalidPosition| Failure::Usage(error.to_string()),
    )?;
    let administrator = &session.administrator;
    let page = if reads_all(list) {
        scanned(session, &filter, after, list.limit).await?
    } else {
        session.call(administrator.watched(&filter, after.as_ref(), list.limit)).await?
    };
    let view = RecordPageView::from(&page);
    let mut text = if view.records.is_empty() {
        "no records\n".to_owned()
    } else {
        records_table(&view.records)
    };
    text += &unreadable_text(&view.unreadable);
    if let Some(next) = &view.next {
        text += &format!("{DIM}There may be more: --after {next}{DIM:#}\n");
    } else if !view.records.is_empty() {
        let records = u64::try_from(view.records.len()).unwrap_or(u64::MAX);
        text += &format!("{DIM}{}{DIM:#}\n", count(records, "record"));
    }
    Report::new(&view, text)
}

/// Whether the list needs records that are not watched.
fn reads_all(list: &ListArguments) -> bool {
    list.all
        || list.state == Some(ListedStateArgument::Completed)
        || list.whose.scope.is_some()
        || list.whose.scope_file.is_some()
}

fn filter(session: &Session, list: &ListArguments) -> Result<RecordFilter, Failure> {
    let short = |text: &Option<String>| {
        let text = text.as_deref().map(ShortText::new).transpose();
        text.map_err(|error| Failure::Usage(error.to_string()))
    };
    let mut filter = RecordFilter::default();
    filter.state = list.state.map(|state| match state {
        ListedStateArgument::InFlight => ListedState::InFlight,
        ListedStateArgument::Held => ListedState::Held,
        ListedStateArgument::Completed => ListedState::Completed,
    });
    filter.operation = short(&list.operation)?;
    filter.reference = short(&list.reference)?;
    filter.older_than = list.older_than;
    if let Some(scope) = scope(&list.whose)? {
        filter.principals = session.administrator.principals(&scope);
    }
    Ok(filter)
}

/// Reads pages of the whole store until there are `limit` records.
async fn scanned(
    session: &Session,
    filter: &RecordFilter,
    mut after: Option<PagePosition>,
    limit: u32,
) -> Result<RecordPage, Failure> {
    let (mut records, mut unreadable) = (Vec::new(), Vec::new());
    let spinner = ask::spinner("pages read");
    loop {
        let found = u32::try_from(records.len()).unwrap_or(u32::MAX);
        let left = limit.saturating_sub(found);
        let page = session.administrator.scan(filter, after.as_ref(), left);
        let page = session.call(page).await?;
        records.extend(page.records);
        unreadable.extend(page.unreadable);
        spinner.inc(1);
        after = page.next;
        let found = u32::try_from(records.len()).unwrap_or(u32::MAX);
        if after.is_none() || found >= limit {
            spinner.finish_and_clear();
            let mut all = RecordPage::new(records, page.at, after);
            all.unreadable = unreadable;
            return Ok(all);
        }
    }
}
