//! The answer of a node as text, for a person.

use comfy_table::{CellAlignment, Table, presets::UTF8_BORDERS_ONLY};
use serde_json::Value;

/// A partition with more unflushed events needs attention: after a crash, reading so many events
/// again would take a moment.
pub(crate) const FAR_BEHIND: u64 = 10_000;

/// Shows a text without quotes, and any other value as JSON.
pub(crate) fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns the elements of a list; none if the value is not a list.
pub(crate) fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns a table with these titles.
pub(crate) fn table_of<const N: usize>(
    titles: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> String {
    table_with_numbers(titles, N, rows)
}

/// Returns a table whose columns from this one on are aligned as numbers.
pub(crate) fn table_with_numbers<const N: usize>(
    titles: [&str; N],
    first: usize,
    rows: impl Iterator<Item = [String; N]>,
) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY).set_header(titles);
    rows.for_each(|row| {
        table.add_row(row);
    });
    table
        .column_iter_mut()
        .skip(first)
        .for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    format!("{table}\n")
}
