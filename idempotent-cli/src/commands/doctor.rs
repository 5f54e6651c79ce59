//! The checks, the size and the schema of the store.

use idempotent_core::{
    StoreError,
    clock::{Clock as _, SystemClock, Timestamp},
    report::{CountView, StoreFactsView, Time},
};
use serde::Serialize;
use serde_json::json;

use super::sealed::Sample;
use crate::{
    failure::Failure,
    report::Report,
    session::Session,
    text::{BOLD, ERROR, GOOD, WARNING, facts, size},
};

/// A difference of the clocks that matters to people who compare times.
const NOTABLE_MS: i64 = 1_000;

/// What was found about the store.
#[derive(Serialize)]
struct Diagnosis {
    checks: Vec<Check>,
    store: Option<StoreFactsView>,
    records: Option<CountView>,
    clock: Option<ClockDifference>,
    sealing: Option<Sample>,
    #[serde(skip)]
    has_keyring: bool,
}

/// One check.
#[derive(Serialize)]
struct Check {
    name: &'static str,
    is_passed: bool,
    problem: Option<String>,
}

/// How far the store's clock is ahead of that of this machine.
#[derive(Clone, Copy, Serialize)]
struct ClockDifference {
    ahead_ms: i64,
    /// The difference is known within as much.
    within_ms: i64,
}

/// Checks the store.
pub(super) async fn doctor(session: &Session) -> Result<Report, Failure> {
    let administrator = &session.administrator;
    let clock = SystemClock::new();
    let mut checks = vec![Check { name: "connection", is_passed: true, problem: None }];
    let checked = session.call(session.store.check()).await;
    checks.push(Check::of("settings, schema and privileges", checked.err()));
    let before = clock.now();
    let measured = session.call(supported(administrator.measure())).await;
    let after = clock.now();
    let counted = session.call(supported(administrator.count())).await;
    let (measured, counted) = (split(measured), split(counted));
    checks.push(Check::of("sizes", measured.1));
    checks.push(Check::of("counts", counted.1));
    let (sealing, failure) = split(Sample::of(session).await);
    let has_keyring = session.sealing_key.is_some();
    checks.push(Check::of("sealed records", failure.or_else(|| foreign(sealing, has_keyring))));
    let store = measured.0.flatten();
    let diagnosis = Diagnosis {
        clock: store.as_ref().map(|facts| ClockDifference::new(facts.at, before, after)),
        records: counted.0.flatten().as_ref().map(CountView::from),
        store: store.as_ref().map(StoreFactsView::from),
        sealing,
        has_keyring,
        checks,
    };
    let text = diagnosis.text();
    let exit_code = u8::from(!diagnosis.checks.iter().all(|check| check.is_passed));
    Ok(Report::new(&diagnosis, text)?.with_exit_code(exit_code))
}

/// The problem of a keyring that does not open all records.
fn foreign(sealing: Option<Sample>, has_keyring: bool) -> Option<Failure> {
    let (found, _) = sealing.filter(|_| has_keyring)?.finding(has_keyring)?;
    Some(Failure::Error(found))
}

/// Turns the error of a store that does not have a function into nothing.
async fn supported<T>(
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<Option<T>, StoreError> {
    match call.await {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_unsupported() => Ok(None),
        Err(error) => Err(error),
    }
}

fn split<T>(result: Result<T, Failure>) -> (Option<T>, Option<Failure>) {
    match result {
        Ok(value) => (Some(value), None),
        Err(failure) => (None, Some(failure)),
    }
}

impl Check {
    fn of(name: &'static str, failure: Option<Failure>) -> Self {
        let problem = failure.as_ref().map(|failure| failure.message().to_owned());
        Self { name, is_passed: problem.is_none(), problem }
    }
}

impl ClockDifference {
    /// From the store's time, which was read between two times of this machine.
    fn new(at: Timestamp, before: Timestamp, after: Timestamp) -> Self {
        let [at, before, after] =
            [at, before, after].map(|time| i64::try_from(time.as_millis()).unwrap_or(i64::MAX));
        let half = after.saturating_sub(before) / 2;
        Self { ahead_ms: at - (before + half), within_ms: half + 1 }
    }

    fn is_notable(self) -> bool {
        self.ahead_ms.abs() > self.within_ms + NOTABLE_MS
    }
}

impl Diagnosis {
    fn text(&self) -> String {
        let mut text = String::new();
        for Check { name, problem, .. } in &self.checks {
            text += &match problem {
                None => format!("{GOOD}ok{GOOD:#}       {name}\n"),
                Some(problem) => format!("{ERROR}problem{ERROR:#}  {name}: {problem}\n"),
            };
        }
        let mut shown = Vec::new();
        if let Some(store) = &self.store {
            shown.push(("server", store.server.to_string()));
            shown.extend(store.sizes.iter().map(|one| (one.name, size(one.bytes))));
        }
        if let Some(clock) = self.clock {
            let ClockDifference { ahead_ms, within_ms } = clock;
            shown.push(("clock ahead", format!("{ahead_ms} ms (within {within_ms} ms)")));
        }
        if let Some(records) = &self.records {
            shown.extend(counts(records));
        }
        if !shown.is_empty() {
            text += &format!("\n{}", facts(&shown));
        }
        for finding in self.store.iter().flat_map(|store| &store.findings) {
            text += &advice(&finding.found, &finding.advice);
        }
        if let Some((found, what_to_do)) =
            self.sealing.and_then(|sample| sample.finding(self.has_keyring))
        {
            text += &advice(&found, what_to_do);
        }
        if self.clock.is_some_and(ClockDifference::is_notable) {
            text += &advice(
                "The clock of the store and that of this machine differ. Leases and ttls are \
                 measured by the store's, so nothing runs twice, but times in logs do not match.",
                "Set both clocks by NTP.",
            );
        }
        text
    }
}

fn advice(found: &str, advice: &str) -> String {
    format!("\n{WARNING}{found}{WARNING:#}\n{BOLD}{advice}{BOLD:#}\n")
}

fn counts(count: &CountView) -> Vec<(&'static str, String)> {
    let about = if count.is_exact { "" } else { "about " };
    let oldest = count.oldest_held.as_ref().map(Time::to_string);
    vec![
        ("records", format!("{about}{}", count.records)),
        ("held", count.held.to_string()),
        ("in flight", format!("{} that may be held or have been renewed", count.in_flight)),
        ("oldest held", oldest.unwrap_or_else(|| "–".into())),
    ]
}

/// Counts the records.
pub(super) async fn stats(session: &Session) -> Result<Report, Failure> {
    let count = session.call(session.administrator.count()).await?;
    let count = CountView::from(&count);
    Report::new(&count, facts(&counts(&count)))
}

/// Creates or upgrades the schema, and checks the store.
pub(super) async fn migrate(session: &Session) -> Result<Report, Failure> {
    session.call(session.store.migrate()).await?;
    session.call(session.store.check()).await?;
    let text = format!("{GOOD}the schema is up to date, and the store works{GOOD:#}\n");
    Report::new(&json!({ "migrated": true }), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_of_the_store_is_compared_with_the_middle_of_the_call() {
        let difference = |at| {
            let [at, before, after] = [at, 1_000_000, 1_000_100].map(Timestamp::from_millis);
            ClockDifference::new(at, before, after)
        };
        let same = difference(1_000_050);
        assert_eq!((same.ahead_ms, same.within_ms, same.is_notable()), (0, 51, false));
        assert_eq!(difference(1_000_000).ahead_ms, -50);
        assert!(!difference(1_001_000).is_notable());
        assert!(difference(1_005_000).is_notable() && difference(990_000).is_notable());
    }
}
