//! Whether the disk has room for the records.

use std::{path::Path, process::Command};

/// The bytes of a record with its indexes, a generous estimate.
const RECORD: u64 = 700;
/// The log of the database, and temporary files.
const LOG: u64 = 6_000_000_000;
/// What must stay free.
const FREE: u64 = 20_000_000_000;

/// Stops the program if the records do not fit on the disk of this directory.
pub(super) fn require(directory: &Path, records: u64) {
    let command = Command::new("df").args(["--output=avail", "-B1"]).arg(directory).output();
    let output = command.expect("`df` runs");
    let free = available(&String::from_utf8_lossy(&output.stdout)).expect("`df` prints a number");
    if let Err(message) = fits(records, free) {
        eprintln!("{}: {message}", directory.display());
        std::process::exit(1);
    }
}

/// The number below the heading that `df` prints.
fn available(output: &str) -> Option<u64> {
    output.lines().nth(1)?.trim().parse().ok()
}

fn fits(records: u64, free: u64) -> Result<(), String> {
    let needed = records * RECORD + LOG;
    if needed + FREE <= free {
        return Ok(());
    }
    let most = free.saturating_sub(LOG + FREE) / RECORD / 1_000_000 * 1_000_000;
    let gb = |bytes: u64| bytes.div_ceil(1_000_000_000);
    Err(format!(
        "{records} records need about {} GB, and {} GB must stay free, but only {} GB are free; \
         `--records {most}` fits, or set TMPDIR to a directory on another disk",
        gb(needed),
        gb(FREE),
        gb(free)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_that_do_not_fit_are_refused_with_a_number_that_fits() {
        assert_eq!(available("   Avail\n52000000000\n"), Some(52_000_000_000));
        assert_eq!(fits(20_000_000, 52_000_000_000), Ok(()));
        let message = fits(100_000_000, 52_000_000_000).unwrap_err();
        assert!(message.contains("`--records 37000000` fits"), "{message}");
        assert_eq!(fits(37_000_000, 52_000_000_000), Ok(()));
    }
}
