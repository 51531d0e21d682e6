//! The answer of a node as text, for a person.

use comfy_table::{Table, presets::UTF8_BORDERS_ONLY};
use serde_json::Value;

/// A partition with more unflushed events needs attention: after a crash, reading so many events
/// again would take a moment.
pub(crate) const FAR_BEHIND: u64 = 10_000;

/// Shows a text without quotes, and any other value as JSON.
pub(crate) fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns the elements of a list; none of a value that is no list.
pub(crate) fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns a table with these titles.
pub(crate) fn table_of<const N: usize>(
    titles: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> String {
    let mut table = table(titles);
    for row in rows {
        table.add_row(row);
    }
    format!("{table}\n")
}

/// Makes a table for a person.
pub(crate) fn table<const COLUMNS: usize>(header: [&str; COLUMNS]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY).set_header(header);
    table
}
