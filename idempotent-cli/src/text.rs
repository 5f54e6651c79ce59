//! Tables and colours for people.

use anstyle::{AnsiColor, Style};
use comfy_table::{ContentArrangement, Table, presets::NOTHING};
use idempotent_core::{
    RecordId,
    report::{RecordView, ShownDuration, ShownState},
};

pub(crate) const ERROR: Style = AnsiColor::Red.on_default().bold();
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const WARNING: Style = AnsiColor::Yellow.on_default().bold();
pub(crate) const BUSY: Style = AnsiColor::Cyan.on_default();
pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();

/// What is said of records that cannot be read. Nothing if there are none.
pub(crate) fn unreadable_text(ids: &[RecordId]) -> String {
    if ids.is_empty() {
        return String::new();
    }
    let ids: Vec<_> = ids.iter().map(RecordId::to_string).collect();
    format!("{ERROR}These records cannot be read:{ERROR:#}\n{}\n", ids.join("\n"))
}

/// A row of a table: its cells, and the style of the first one.
pub(crate) struct Row {
    pub(crate) style: Style,
    pub(crate) cells: Vec<String>,
}

/// A table without lines. Rows are never wrapped, so that an id can be copied whole; the last
/// column may be longer than the terminal is wide.
pub(crate) fn table(header: &[&str], rows: Vec<Row>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    if !header.is_empty() {
        table.set_header(header);
    }
    let styles: Vec<_> = (!header.is_empty()).then_some(DIM).into_iter().collect();
    let styles: Vec<_> = styles.into_iter().chain(rows.iter().map(|row| row.style)).collect();
    table.add_rows(rows.into_iter().map(|row| row.cells));
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let widths = table.column_max_content_widths();
    let first = widths.first().copied().map_or(0, usize::from);
    let mut text = String::new();
    for (line, style) in table.lines().zip(styles) {
        // The table counts the characters of its cells, so colours are added afterwards.
        let line = line.trim_end();
        let styled = if style == DIM { line.len() } else { boundary(line, first) };
        let (start, rest) = line.split_at(styled);
        text += &format!("{style}{start}{style:#}{rest}\n");
    }
    text
}

/// The end of the first characters of a line.
fn boundary(line: &str, characters: usize) -> usize {
    line.char_indices().nth(characters).map_or(line.len(), |(index, _)| index)
}

/// The table of some values with their names.
pub(crate) fn facts(facts: &[(&str, String)]) -> String {
    let row = |(name, value): &(&str, String)| Row {
        style: BOLD,
        cells: vec![(*name).to_owned(), value.clone()],
    };
    table(&[], facts.iter().map(row).collect())
}

/// A list of records.
pub(crate) fn records_table(records: &[RecordView]) -> String {
    let row = |record: &RecordView| Row {
        style: state_style(record.state),
        cells: vec![
            record.state.to_string(),
            age(record.age_ms),
            record.attempt.to_string(),
            or_dash(record.operation.as_str()),
            or_dash(record.reference.as_deref().unwrap_or_default()),
            record.id.to_string(),
        ],
    };
    let header = ["STATE", "AGE", "ATTEMPT", "OPERATION", "REFERENCE", "ID"];
    table(&header, records.iter().map(row).collect())
}

pub(crate) fn state_style(state: ShownState) -> Style {
    match state {
        ShownState::Held => ERROR,
        ShownState::Abandoned => WARNING,
        ShownState::InFlight => BUSY,
        ShownState::Completed => GOOD,
        ShownState::Expired | _ => Style::new(),
    }
}

pub(crate) fn age(millis: u64) -> String {
    ShownDuration(std::time::Duration::from_millis(millis)).to_string()
}

pub(crate) fn or_dash(text: &str) -> String {
    if text.is_empty() { "–".to_owned() } else { text.to_owned() }
}

/// "1 record", "2 records".
pub(crate) fn count(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// A number of bytes, in the largest unit of which there is at least one.
pub(crate) fn size(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = units.into_iter().find(|(shift, _)| bytes >> shift > 0);
    unit.map_or_else(
        || format!("{bytes} B"),
        |(shift, unit)| {
            let tenths = bytes.saturating_mul(10) >> shift;
            format!("{}.{} {unit}", tenths / 10, tenths % 10)
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_cell_of_a_row_has_its_colour() {
        let row = |first: &str| Row { style: GOOD, cells: vec![first.into(), "x".into()] };
        let shown = table(&["A", "B"], vec![row("é"), row("long")]);
        let expected =
            format!("{DIM}A     B{DIM:#}\n{GOOD}é   {GOOD:#}  x\n{GOOD}long{GOOD:#}  x\n");
        assert_eq!(shown, expected);
    }

    #[test]
    fn sizes_have_one_unit() {
        for (bytes, expected) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1 << 20, "1.0 MiB"),
            (6442450944, "6.0 GiB"),
        ] {
            assert_eq!(size(bytes), expected);
        }
    }
}
