//! Seals records again, after the first keyring and after a rotation.

use std::collections::BTreeSet;

use idempotent_core::{RecordId, StoreError, runtime::ResealedPage};
use serde::Serialize;

use super::sealed::verify_keyring;
use crate::{
    args::ResealArguments,
    ask::{confirm, progress},
    failure::Failure,
    report::Report,
    session::Session,
    text::{ERROR, GOOD, WARNING, count},
};

/// What was sealed.
#[derive(Default, Serialize)]
struct Resealing {
    key: u32,
    resealed: u64,
    current: u64,
    changed: u64,
    unreadable: BTreeSet<String>,
}

/// Seals all records with the key of the keyring that seals, in batches.
pub(super) async fn reseal(session: &Session, reseal: &ResealArguments) -> Result<Report, Failure> {
    let administrator = &session.administrator;
    let key = session.sealing_key.ok_or_else(|| {
        Failure::Usage("say with which keys: set IDEMPOTENCY_KEYRING, or use --keyring-file".into())
    })?;
    verify_keyring(session).await?;
    let found = session.call(administrator.count()).await?;
    let about = if found.is_exact { "" } else { "about " };
    let all = count(found.records, "record");
    let what = format!(
        "{about}{all}. A process without the key {key} cannot read what is sealed with it.\n"
    );
    confirm(&what, &format!("Seal them with the key {key}?"), reseal.yes)?;
    let bar = progress("records read", found.records);
    let (mut done, mut after) = (Resealing { key, ..Resealing::default() }, None);
    loop {
        // Each of its calls to the store has a time limit.
        let page = administrator.reseal(after.as_ref()).await;
        let page = page.map_err(|error| stopped(done.resealed, &error))?;
        bar.inc(done.add(&page));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    bar.finish_and_clear();
    let is_left = done.changed > 0 || !done.unreadable.is_empty();
    let text = done.text();
    Ok(Report::new(&done, text)?.with_exit_code(is_left.into()))
}

/// A resealing that ended early.
fn stopped(resealed: u64, error: &StoreError) -> Failure {
    let resealed = count(resealed, "record");
    Failure::error(&format!("it stopped after at least {resealed} were sealed; repeat it"), error)
}

impl Resealing {
    /// Adds a page, and returns how many records it had.
    fn add(&mut self, page: &ResealedPage) -> u64 {
        let ResealedPage { resealed, current, changed, unreadable, .. } = page;
        self.resealed += resealed;
        self.current += current;
        self.changed += changed;
        self.unreadable.extend(unreadable.iter().map(RecordId::to_string));
        resealed + current + changed + length(unreadable.len())
    }

    fn text(&self) -> String {
        let Self { key, resealed, current, changed, unreadable } = self;
        let resealed = count(*resealed, "record");
        let mut text = format!(
            "{GOOD}{resealed} sealed with the key {key}{GOOD:#}; {current} needed nothing\n"
        );
        if *changed > 0 {
            let changed = count(*changed, "record");
            text += &format!(
                "{WARNING}{changed} changed meanwhile, and stay as they are: repeat the command\
                 {WARNING:#}\n"
            );
        }
        if !unreadable.is_empty() {
            let unreadable_records = count(length(unreadable.len()), "record");
            text += &format!(
                "{ERROR}{unreadable_records} cannot be opened by any key of the keyring, and stay \
                 as they are:{ERROR:#}\n"
            );
            unreadable.iter().for_each(|id| text += &format!("{id}\n"));
        }
        if *changed == 0 && unreadable.is_empty() {
            text += "When no process seals with another key, no other key is needed any more.\n";
        }
        text
    }
}

fn length(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
