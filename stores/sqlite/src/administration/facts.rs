//! What the file tells of itself.

use idempotent_core::{ShortText, clock::Timestamp, protocol::StoreFacts};
use sqlx::{Row, sqlite::SqliteRow};

/// Below this size it does not matter how much of the file is free.
const SMALL: u64 = 16 << 20;

/// Decodes the row of `sql/measure.sql`.
pub(super) fn facts_from_row(row: &SqliteRow) -> Result<StoreFacts, sqlx::Error> {
    let number = |column| {
        let number: i64 = row.try_get(column)?;
        Ok::<_, sqlx::Error>(u64::try_from(number).unwrap_or(0))
    };
    let version: String = row.try_get("version")?;
    let server = ShortText::truncated(&format!("SQLite {version}"));
    let (page, pages, free) = (number("page_size")?, number("pages")?, number("free_pages")?);
    let (bytes, free) = (page.saturating_mul(pages), page.saturating_mul(free));
    let facts = StoreFacts::new(Timestamp::from_millis(number("now")?), server)
        .with_size("file", bytes)
        .with_size("free pages of the file", free);
    Ok(if bytes > SMALL && free > bytes / 2 {
        facts.with_finding(
            "More than half of the file is free. SQLite reuses these pages, and the file does not \
             shrink by itself.",
            "To give the space back, execute `VACUUM` while the application is stopped.",
        )
    } else {
        facts
    })
}
