//! Pages of lists, from the rows that were read for them.

use sqlx::{ColumnIndex, Decode, Row, Type};

use crate::row::{
    Error, ListRow, UnreadableRecord, audited_from_row, listed_from_row, may_match, number_from_row,
};
use idempotent_core::{
    RecordId,
    clock::Timestamp,
    protocol::{AuditPage, ListedRecord, PagePosition, RecordCount, RecordFilter, RecordPage},
};

/// How many records are read for a page with a filter, which may match few of them.
const READ: u32 = 2_000;

/// A page of records that is asked for.
#[derive(Debug)]
pub struct PageRequest<'a> {
    /// Which records it has.
    pub filter: &'a RecordFilter,
    /// How many it has at most.
    pub limit: u32,
}

impl PageRequest<'_> {
    /// How many records are read for the page.
    #[must_use]
    pub fn count(&self) -> u32 {
        // Without a filter, each record that is read is one of the page.
        if *self.filter == RecordFilter::default() { self.limit } else { self.limit.max(READ) }
    }

    /// The page, from the rows of `watched.sql`.
    ///
    /// # Errors
    /// Fails if a row does not belong to the list.
    pub fn watched<'r, R: Row>(&self, rows: &'r [R]) -> Result<RecordPage, Error>
    where
        &'static str: ColumnIndex<R>,
        i64: Decode<'r, R::Database> + Type<R::Database>,
        Vec<u8>: Decode<'r, R::Database> + Type<R::Database>,
        String: Decode<'r, R::Database> + Type<R::Database>,
    {
        let all_read = rows.len() < usize::try_from(self.count()).unwrap_or(usize::MAX);
        let first_claim = |row| number_from_row(row, "watch");
        let ends =
            |row, now| Ok(self.filter.is_too_young(Timestamp::from_millis(first_claim(row)?), now));
        let position = |row, id: &_| Ok(PagePosition::after_number_and_id(first_claim(row)?, id));
        self.page(rows, all_read, ends, position)
    }

    /// The page, from the rows of `scan.sql`.
    ///
    /// # Errors
    /// Fails if a row does not belong to the list.
    pub fn scanned<'r, R: Row>(&self, rows: &'r [R]) -> Result<RecordPage, Error>
    where
        &'static str: ColumnIndex<R>,
        i64: Decode<'r, R::Database> + Type<R::Database>,
        Vec<u8>: Decode<'r, R::Database> + Type<R::Database>,
        String: Decode<'r, R::Database> + Type<R::Database>,
    {
        let read = rows.first().map(|row| number_from_row(row, "read")).transpose()?;
        let all_read = read.unwrap_or_default() < u64::from(self.count());
        self.page(rows, all_read, |_, _| Ok(false), |_, id| Ok(PagePosition::after_id(id)))
    }

    /// The records of the rows that the filter matches. `all_read`: no record is left behind the
    /// last row. `ends`: neither this row nor one behind it belongs to the list.
    fn page<'r, R: Row>(
        &self,
        rows: &'r [R],
        all_read: bool,
        ends: impl Fn(&'r R, Timestamp) -> Result<bool, Error>,
        position: impl Fn(&'r R, &RecordId) -> Result<PagePosition, Error>,
    ) -> Result<RecordPage, Error>
    where
        &'static str: ColumnIndex<R>,
        i64: Decode<'r, R::Database> + Type<R::Database>,
        Vec<u8>: Decode<'r, R::Database> + Type<R::Database>,
        String: Decode<'r, R::Database> + Type<R::Database>,
    {
        let mut page = RecordPage::new(Vec::new(), Timestamp::EPOCH, None);
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let mut is_last = all_read;
        for row in rows {
            let (listed, at) = listed_from_row(row)?;
            page.at = at;
            let id = match listed {
                ListRow::Record(_) | ListRow::Unreadable(_) if ends(row, at)? => {
                    is_last = true;
                    break;
                }
                ListRow::Empty => break,
                ListRow::Record(listed) => {
                    let is_listed = self.filter.matches(&listed.record, at);
                    if is_listed && page.records.len() == limit {
                        is_last = false;
                        break;
                    }
                    let id = listed.id;
                    page.records.extend(is_listed.then_some(listed));
                    id
                }
                ListRow::Unreadable(UnreadableRecord { id, .. }) => {
                    page.unreadable.extend(may_match(row, self.filter).then_some(id));
                    id
                }
            };
            page.next = Some(position(row, &id)?);
        }
        page.next = page.next.filter(|_| !is_last);
        Ok(page)
    }
}

/// Records without positions, from the rows of `find.sql`.
///
/// # Errors
/// Fails if a record cannot be read, and names it.
pub fn found<'r, R: Row>(rows: &'r [R]) -> Result<Vec<ListedRecord>, Error>
where
    &'static str: ColumnIndex<R>,
    i64: Decode<'r, R::Database> + Type<R::Database>,
    Vec<u8>: Decode<'r, R::Database> + Type<R::Database>,
    String: Decode<'r, R::Database> + Type<R::Database>,
{
    let listed = rows.iter().map(|row| match listed_from_row(row)?.0 {
        ListRow::Empty => Ok(None),
        ListRow::Record(listed) => Ok(Some(listed)),
        ListRow::Unreadable(unreadable) => Err(unreadable.into()),
    });
    listed.filter_map(Result::transpose).collect()
}

/// A page of the log of operators' decisions, from the rows of `audit.sql`, which was asked for
/// one more than `limit`.
///
/// # Errors
/// Fails if an entry cannot be read.
pub fn audit_page<'r, R: Row>(rows: &'r [R], limit: u32) -> Result<AuditPage, Error>
where
    &'static str: ColumnIndex<R>,
    i64: Decode<'r, R::Database> + Type<R::Database>,
    Vec<u8>: Decode<'r, R::Database> + Type<R::Database>,
    String: Decode<'r, R::Database> + Type<R::Database>,
{
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut page = AuditPage::default();
    let mut last = None;
    for row in rows.iter().take(limit) {
        let (entry, number) = audited_from_row(row)?;
        page.entries.push(entry);
        last = Some(number);
    }
    page.next = last.filter(|_| rows.len() > limit).map(PagePosition::after_number);
    Ok(page)
}

/// The numbers of records, from the row of `count.sql`.
///
/// # Errors
/// Fails if a number is not one.
pub fn count_from_row<'r, R: Row>(row: &'r R) -> Result<RecordCount, Error>
where
    &'static str: ColumnIndex<R>,
    i64: Decode<'r, R::Database> + Type<R::Database>,
{
    let number = |column| number_from_row(row, column);
    let watched = number("watched")?;
    let mut count = RecordCount::none(Timestamp::from_millis(number("at")?));
    // An estimate may be older than the records.
    count.records = number("records")?.max(watched);
    count.is_exact = number("is_exact")? != 0;
    count.held = number("held")?;
    count.in_flight = watched.saturating_sub(count.held);
    let oldest: Option<i64> = row.try_get("oldest_held")?;
    let oldest = oldest.and_then(|at| u64::try_from(at).ok());
    count.oldest_held = oldest.map(Timestamp::from_millis);
    Ok(count)
}
