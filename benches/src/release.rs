//! The table of the last release, whose commit `.ci/semver-baseline` names.

use std::{collections::BTreeMap, fmt::Write as _, process::Command};

use crate::measured::Measured;

/// A row that has less than this part of the share that it had in the last release is named.
const FALLEN: f64 = 0.97;

/// The median share of the floor of each row in the last release. Fails with the reason if there is
/// no table of it.
pub(crate) fn shares() -> Result<BTreeMap<String, f64>, String> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let baseline = std::fs::read_to_string(format!("{root}/.ci/semver-baseline"))
        .map_err(|error| format!("`.ci/semver-baseline` cannot be read: {error}"))?;
    let table = format!("{}:benches/results/table.md", baseline.trim());
    let shown = Command::new("git").args(["-C", root, "show", &table]).output();
    match shown {
        Ok(shown) if shown.status.success() => Ok(parse(&String::from_utf8_lossy(&shown.stdout))),
        Ok(shown) => Err(String::from_utf8_lossy(&shown.stderr).trim().to_owned()),
        Err(error) => Err(format!("git cannot be started: {error}")),
    }
}

/// The median share of each row: `| work | floor | **0.61 (0.54–0.62)** | …`.
fn parse(table: &str) -> BTreeMap<String, f64> {
    let share = |line: &str| {
        let mut cells = line.split('|').map(str::trim).skip(1);
        let (work, share) = (cells.next()?, cells.nth(1)?.strip_prefix("**")?);
        Some((work.to_owned(), share.split(' ').next()?.parse().ok()?))
    };
    table.lines().filter_map(share).collect()
}

/// Names the rows whose share of the floor has fallen by more than 3 % since the last release.
pub(crate) fn comparison(
    measured: &[Measured],
    released: &Result<BTreeMap<String, f64>, String>,
) -> String {
    let released = match released {
        Ok(released) => released,
        Err(reason) => return format!("\nNot compared with the last release: {reason}.\n"),
    };
    let fallen: Vec<_> = measured
        .iter()
        .filter_map(|one| {
            let (before, now) = (*released.get(one.row.name)?, one.share_of(one.floor()));
            has_fallen(before, now.median).then_some((one.row.name, before, now))
        })
        .collect();
    if fallen.is_empty() {
        return "\nNo row has fallen by more than 3 % since the last release.\n".to_owned();
    }
    let mut text = "\nFallen by more than 3 % since the last release:\n\n".to_owned();
    for (name, before, now) in fallen {
        let by = 100.0 * (1.0 - now.median / before);
        let _ = writeln!(text, "* `{name}`: {now} instead of {before:.2}, {by:.0} % less.");
    }
    text
}

fn has_fallen(before: f64, now: f64) -> bool {
    now < before * FALLEN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_are_read_from_a_table() {
        let table = "## Throughput\n\n| work | floor | share of the floor | goal |\n\
                     |---|---|---|---|\n\
                     | memory/first | the bare handler | **0.61 (0.54–0.62)** | – |\n\
                     | memory/first | layer | 1063 | 1619 |\n";
        assert_eq!(parse(table), BTreeMap::from([("memory/first".to_owned(), 0.61)]));
    }

    #[test]
    fn a_row_has_fallen_if_it_lost_more_than_three_percent() {
        assert!(has_fallen(0.61, 0.59));
        assert!(!has_fallen(0.61, 0.60));
        assert!(!has_fallen(0.61, 0.70));
    }
}
