//! The purge of expired records.

use serde_json::json;

use crate::{
    ask::spinner,
    failure::Failure,
    report::Report,
    session::Session,
    text::{GOOD, count},
};

/// How many records are removed at a time.
const PURGED_AT_ONCE: u32 = 1_000;

/// Removes all expired records, in batches.
pub(super) async fn purge(session: &Session) -> Result<Report, Failure> {
    let (mut purged, spinner) = (0, spinner("records removed"));
    loop {
        let removed = session.call(session.store.purge(PURGED_AT_ONCE)).await?;
        purged += removed;
        spinner.set_position(purged);
        if removed < PURGED_AT_ONCE.into() {
            break;
        }
    }
    spinner.finish_and_clear();
    let removed = count(purged, "expired record");
    Report::new(&json!({ "purged": purged }), format!("{GOOD}{removed} removed{GOOD:#}\n"))
}
