//! The erasure of a principal.

use std::collections::{BTreeSet, HashSet};

use idempotent_core::{
    Principal, RecordId, StoreError,
    protocol::{ListedRecord, ListedState, RecordFilter},
    report::RecordView,
};
use serde::Serialize;

use super::decide::actor;
use crate::{
    args::EraseArguments,
    ask::{confirm, progress, spinner},
    failure::Failure,
    report::Report,
    select::{SCANNED_AT_ONCE, scope},
    session::Session,
    text::{ERROR, GOOD, WARNING, count, records_table},
};

/// What an erasure has done.
#[derive(Default, Serialize)]
struct Erasure {
    erased: u64,
    left: Vec<RecordView>,
    /// The ids of records that cannot be read, and were not removed.
    unreadable: BTreeSet<String>,
}

/// How many records of a principal there are.
#[derive(Default)]
struct Found {
    all: u64,
    held: u64,
    in_flight: u64,
}

/// Removes all records of a principal, in batches.
pub(super) async fn erase(session: &Session, erase: &EraseArguments) -> Result<Report, Failure> {
    let administrator = &session.administrator;
    let actor = actor(&erase.decision)?;
    let scope = scope(&erase.whose)?;
    let scope = scope.ok_or_else(|| Failure::Usage("say whose records, with --scope".into()))?;
    let principals = administrator.principals(&scope);
    let found = find(session, &principals).await?;
    if found.all == 0 {
        let message = "no record belongs to this principal. Check the scope, and the fingerprint \
                       keys if the application signs fingerprints";
        return Err(Failure::NotFound(message.into()));
    }
    let (what, question) = summary(&found, erase.live);
    confirm(&what, &question, erase.decision.yes)?;
    let bar = progress("records removed", found.all);
    let (mut erasure, mut after) = (Erasure::default(), None);
    loop {
        let page = administrator.erase(&principals, erase.live, after.as_ref(), &actor).await;
        let page = page.map_err(|error| stopped(erasure.erased, &error))?;
        erasure.erased += page.erased;
        for ListedRecord { id, .. } in &page.left {
            if erasure.left.iter().any(|known| known.id == *id) {
                continue;
            }
            if let Some(now) = session.call(administrator.look_up(id)).await? {
                erasure.left.push(RecordView::new(id, &now.record, now.at));
            }
        }
        erasure.unreadable.extend(page.unreadable.iter().map(RecordId::to_string));
        bar.set_position(erasure.erased);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    bar.finish_and_clear();
    let text = text(&erasure);
    Report::new(&erasure, text)
}

/// An erasure that ended early.
fn stopped(erased: u64, error: &StoreError) -> Failure {
    let erased = count(erased, "record");
    Failure::error(&format!("the erasure stopped after at least {erased}; repeat it"), error)
}

async fn find(session: &Session, principals: &[Principal]) -> Result<Found, Failure> {
    let mut filter = RecordFilter::default();
    filter.principals = principals.to_vec();
    let [is_held, is_in_flight] =
        [ListedState::Held, ListedState::InFlight].map(RecordFilter::of_state);
    let (mut found, mut after, mut ids) = (Found::default(), None, HashSet::new());
    let spinner = spinner("pages read");
    loop {
        let page = session.administrator.scan(&filter, after.as_ref(), SCANNED_AT_ONCE);
        let page = session.call(page).await?;
        for ListedRecord { id, record, .. } in &page.records {
            // A record may be on several pages.
            if !ids.insert(*id) {
                continue;
            }
            found.all += 1;
            found.held += u64::from(is_held.matches(record, page.at));
            found.in_flight += u64::from(is_in_flight.matches(record, page.at));
        }
        spinner.inc(1);
        after = page.next;
        if after.is_none() {
            spinner.finish_and_clear();
            return Ok(found);
        }
    }
}

/// What will be erased, and the question whether to do it.
fn summary(found: &Found, live: bool) -> (String, String) {
    let Found { all, held, in_flight } = found;
    let open = format!("{held} held and {in_flight} in flight");
    let erased = if live { *all } else { all - held - in_flight };
    let mut what = format!("{} of this principal: {open}.\n", count(*all, "record"));
    what += if live {
        "Those that are held or in flight are removed too, and their operations may run again.\n"
    } else {
        "Those that are held or in flight stay.\n"
    };
    (what, format!("Remove {}?", count(erased, "record")))
}

fn text(erasure: &Erasure) -> String {
    let mut text = format!("{GOOD}{} removed{GOOD:#}\n", count(erasure.erased, "record"));
    if !erasure.left.is_empty() {
        text += &format!(
            "{WARNING}These stay, because they are held or in flight. Resolve them and erase \
             again, or add --live:{WARNING:#}\n"
        );
        text += &records_table(&erasure.left);
    }
    if !erasure.unreadable.is_empty() {
        let ids: Vec<_> = erasure.unreadable.iter().map(String::as_str).collect();
        text += &format!(
            "{ERROR}These cannot be read, and were not removed:{ERROR:#}\n{}\n",
            ids.join("\n")
        );
    }
    text
}
