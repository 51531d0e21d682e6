//! The error messages of the TOML reader, in words for the operator.

use toml::Value;

/// Expected values: the words of the reader, and the words for the operator.
const EXPECTED: [(&str, &str); 13] = [
    ("u8", "a whole number from 0 to 255"),
    ("u16", "a whole number from 0 to 65535"),
    ("a nonzero u16", "a whole number from 1 to 65535"),
    ("u32", "a whole number from 0 to 4294967295"),
    ("usize", "a whole number from 0 on"),
    ("a nonzero usize", "a whole number from 1 on"),
    ("a boolean", "true or false"),
    ("a string", "a text in quotes"),
    ("path string", "a path in quotes"),
    ("socket address", "an IP and a port in quotes, such as \"127.0.0.1:8822\","),
    ("a sequence", "a list in brackets"),
    ("a map", "a table"),
    ("any valid TOML value", "a smaller number"),
];

/// The expected value of a setting that has several forms.
const NAME: &str = "a name in quotes, or a table with one key, is expected";

/// Values that were found: the words of the reader, and the words for the operator.
const FOUND: [(&str, &str); 6] = [
    ("boolean ", ""),
    ("integer ", "the number "),
    ("floating point ", "the number "),
    ("string ", "the text "),
    ("sequence", "a list"),
    ("map", "a table"),
];

/// The only keys that may hold a list. Everywhere else the reader would take a list for a table,
/// with the values in the order of the keys.
const LISTS: [&str; 2] = ["apps", "storage.cassandra.contact_points"];

/// Returns an error in words for the operator, with the line or the keys that surround it.
pub(super) fn operator_message(error: &toml::de::Error) -> String {
    let (all, message) = (error.to_string(), error.message());
    let (before, after) = all.rsplit_once(message).unwrap_or_default();
    format!("{before}{}{}", translated(message), after.trim_end())
}

fn translated(message: &str) -> String {
    let of_kind = ["invalid type: ", "invalid value: "];
    let rest = of_kind.iter().find_map(|kind| message.strip_prefix(kind));
    if let Some((found, expected)) = rest.and_then(|rest| rest.rsplit_once(", expected ")) {
        return format!("{} is expected, and not {}", expected_value(expected), found_value(found));
    }
    match message {
        "u64 value was too large" => "a smaller number is expected".to_owned(),
        "invalid socket address syntax" => crate::cli::ADDRESS.to_owned(),
        _ if message.starts_with("wanted ") => NAME.to_owned(),
        _ => message
            .replace("unknown field", "unknown key")
            .replace("missing field", "missing key")
            .replace("unknown variant", "unknown value"),
    }
}

fn expected_value(expected: &str) -> &str {
    match EXPECTED.iter().find(|(theirs, _)| *theirs == expected) {
        Some((_, ours)) => ours,
        None if expected.starts_with("struct ") => "a table",
        None => expected,
    }
}

fn found_value(found: &str) -> String {
    let found = found.trim_end_matches(" as i128").trim_end_matches(" as u128");
    let with =
        |(theirs, ours): &(&str, &str)| Some(format!("{ours}{}", found.strip_prefix(theirs)?));
    FOUND.iter().find_map(with).unwrap_or_else(|| found.to_owned())
}

/// Finds the first list in a place where a list is not allowed, and replaces the list by an empty
/// table. Returns the keys of the place.
pub(super) fn replace_misplaced_list(table: &mut toml::Table) -> Option<Vec<String>> {
    table.iter_mut().find_map(|(key, value)| replace_list_in(value, vec![key.clone()]))
}

fn replace_list_in(value: &mut Value, path: Vec<String>) -> Option<Vec<String>> {
    let inside = |key: String, value| replace_list_in(value, [path.as_slice(), &[key]].concat());
    match value {
        Value::Table(table) => table.iter_mut().find_map(|(key, value)| inside(key.clone(), value)),
        Value::Array(values) if LISTS.contains(&&*path.join(".")) => {
            values.iter_mut().enumerate().find_map(|(at, value)| inside(at.to_string(), value))
        }
        Value::Array(_) => {
            *value = Value::Table(toml::Table::new());
            Some(path)
        }
        _ => None,
    }
}

/// Returns whether an error says that a table is not expected in this place.
pub(super) fn expects_no_table(error: &str) -> bool {
    error.contains("and not a table") || error.contains(NAME)
}
