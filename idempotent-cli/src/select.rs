//! The record that a command line names.

use std::path::Path;

use idempotent_core::{
    Key, RecordId, ScopeId, ShortText,
    protocol::{ListedRecord, RecordFilter, Snapshot},
    report::RecordView,
    runtime::FoundRecord,
};

use crate::{
    args::{ScopeArguments, SelectionArguments},
    ask,
    failure::Failure,
    session::{Session, read},
};

/// How many candidates an ambiguous selection lists at most.
const CANDIDATES: usize = 10;
/// How many records a scan reads at a time.
pub(crate) const SCANNED_AT_ONCE: u32 = 500;

/// The whole id of the record that is named. It may be absent, if it was named by a whole id or by
/// a key.
pub(crate) async fn id(
    session: &Session,
    selection: &SelectionArguments,
) -> Result<RecordId, Failure> {
    match selection {
        SelectionArguments { id: Some(digits), .. } => by_digits(session, digits).await,
        SelectionArguments { reference: Some(reference), .. } => {
            by_reference(session, reference).await
        }
        _ => by_key(selection),
    }
}

/// The record that is named, as it is now.
pub(crate) async fn record(
    session: &Session,
    selection: &SelectionArguments,
) -> Result<(RecordId, Snapshot), Failure> {
    let id = id(session, selection).await?;
    let found = session.call(session.administrator.look_up(&id)).await?;
    if let Some(snapshot) = found {
        return Ok((id, snapshot));
    }
    Err(Failure::NotFound(if selection.id.is_some() || selection.reference.is_some() {
        format!("there is no record {id}")
    } else {
        format!(
            "there is no record {id} of this key: check the namespace, the operation, the scope \
             and the key, each to the letter; a record is also removed some time after its ttl"
        )
    }))
}

/// The scope that is named, if there is one.
pub(crate) fn scope(arguments: &ScopeArguments) -> Result<Option<ScopeId>, Failure> {
    let ScopeArguments { scope, scope_file } = arguments;
    let text = given_or_read(scope.as_ref(), scope_file.as_deref())?;
    let scope = text.map(|text| text.parse::<ScopeId>()).transpose();
    scope.map_err(|error| Failure::Usage(error.to_string()))
}

/// A text of the command line, or that of a file without its last line break.
fn given_or_read(given: Option<&String>, file: Option<&Path>) -> Result<Option<String>, Failure> {
    match (given, file) {
        (Some(given), _) => Ok(Some(given.clone())),
        (None, Some(file)) => Ok(Some(read(file)?.trim_end_matches(['\r', '\n']).to_owned())),
        (None, None) => Ok(None),
    }
}

fn by_key(selection: &SelectionArguments) -> Result<RecordId, Failure> {
    let SelectionArguments { key, key_file, operation, namespace, whose, .. } = selection;
    let key = given_or_read(key.as_ref(), key_file.as_deref())?;
    let (Some(key), Some(operation), Some(scope), Some(namespace)) =
        (key, operation, scope(whose)?, namespace)
    else {
        return Err(Failure::Usage(
            "name the record by its id, by --reference, or by --key with --operation, --scope and \
             --namespace"
                .into(),
        ));
    };
    let key = Key::from_text(key).map_err(|error| Failure::Usage(error.to_string()))?;
    Ok(RecordId::new(namespace, &scope, operation, &key))
}

async fn by_digits(session: &Session, digits: &str) -> Result<RecordId, Failure> {
    if let Ok(id) = digits.parse() {
        return Ok(id);
    }
    RecordId::range(digits).map_err(|error| Failure::Usage(error.to_string()))?;
    let administrator = &session.administrator;
    let found = session.call(async {
        match administrator.find(digits).await {
            Ok(found) => found,
            // The digits were verified above.
            Err(_) => Ok(FoundRecord::Absent),
        }
    });
    match found.await? {
        FoundRecord::One(found) => Ok(found.id),
        FoundRecord::Absent => {
            Err(Failure::NotFound(format!("no record has an id that begins with {digits}")))
        }
        FoundRecord::Ambiguous(found) => {
            let message = format!("several records have ids that begin with {digits}");
            Err(Failure::Ambiguous(message, views(session, &found).await?))
        }
    }
}

async fn by_reference(session: &Session, reference: &str) -> Result<RecordId, Failure> {
    let text = ShortText::new(reference).map_err(|error| Failure::Usage(error.to_string()))?;
    let mut filter = RecordFilter::default();
    filter.reference = Some(text);
    let (mut found, mut after) = (Vec::<ListedRecord>::new(), None);
    let spinner = ask::spinner("pages read");
    loop {
        let page = session.administrator.scan(&filter, after.as_ref(), SCANNED_AT_ONCE);
        let page = session.call(page).await?;
        // A record may be on several pages.
        let new = |listed: &ListedRecord| found.iter().all(|known| known.id != listed.id);
        let new: Vec<_> = page.records.into_iter().filter(new).collect();
        found.extend(new);
        spinner.inc(1);
        after = page.next;
        if after.is_none() || found.len() > CANDIDATES {
            break;
        }
    }
    spinner.finish_and_clear();
    found.truncate(CANDIDATES);
    match found.as_slice() {
        [] => Err(Failure::NotFound(format!("no record has the reference {reference}"))),
        [one] => Ok(one.id),
        several => {
            let message = format!("several records have the reference {reference}");
            Err(Failure::Ambiguous(message, views(session, several).await?))
        }
    }
}

/// The views of some records, as they are now.
async fn views(session: &Session, found: &[ListedRecord]) -> Result<Vec<RecordView>, Failure> {
    let mut views = Vec::new();
    for ListedRecord { id, .. } in found {
        if let Some(Snapshot { record, at, .. }) =
            session.call(session.administrator.look_up(id)).await?
        {
            views.push(RecordView::new(id, &record, at));
        }
    }
    Ok(views)
}
