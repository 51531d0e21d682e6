//! The settings as they were set, each with its place: a position in the file, a variable or a
//! flag. An error names the place to correct.

use std::{
    fmt::Display,
    ops::Range,
    path::{Path, PathBuf},
};

use ctl::CommandError;
use serde::de::DeserializeOwned;
use toml::{
    Spanned, Table, Value,
    de::{DeTable, DeValue},
};

use super::{
    ConfigOverride,
    overrides::{is_secret, names_secret},
    reader,
};

/// The keys of secrets that a file may have.
const SECRETS: [&str; 2] =
    ["storage.cassandra.login.password", "storage.dynamodb.secret_access_key"];

/// The settings that were set, without defaults.
#[derive(Debug, Default)]
pub(crate) struct ConfigSource {
    file: Option<PathBuf>,
    text: String,
    overrides: Vec<ConfigOverride>,
    /// The values of the file and of the overrides together.
    values: Table,
}

impl ConfigSource {
    /// Takes the values of the text, and then those of the overrides.
    pub(super) fn new(
        file: Option<&Path>,
        text: &str,
        overrides: &[ConfigOverride],
    ) -> Result<ConfigSource, CommandError> {
        let name = file.map_or_else(String::new, |file| format!("{}: ", file.display()));
        let mut values: Table = text.parse().map_err(|error| {
            CommandError::config(format!("{name}{}", syntax_error(error, text)))
        })?;
        for one in overrides {
            let wrong = |why| CommandError::config(format!("{}: {why}", one.shown()));
            one.apply(&mut values).map_err(wrong)?;
        }
        let file = file.map(Path::to_owned);
        Ok(ConfigSource { file, text: text.to_owned(), overrides: overrides.to_vec(), values })
    }

    /// Reads all settings.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, CommandError> {
        let read = reader::read(&Value::Table(self.values.clone()));
        read.map_err(|(key, why)| match key.rsplit('.').next() {
            // The reason shows the value.
            Some(name) if is_secret(name) => self.wrong(&[&key], "a text in quotes is expected"),
            _ => self.wrong(&[&key], why),
        })
    }

    /// Makes the error for a key with a value that cannot be used. `key` names an entry of a list
    /// by its number, from 0 on.
    pub(crate) fn wrong(&self, key: &[&str], why: impl Display) -> CommandError {
        let key = key.join(".");
        let file = || self.file.as_ref().map(|file| file.display().to_string());
        let place = self.place(&key).or_else(file).map(|place| format!("{place}: "));
        CommandError::config(format!("{}`{key}`: {why}", place.unwrap_or_default()))
    }

    /// Returns the place of a key, or of the innermost table around it. A key contains all its
    /// outer keys, as `storage.redb.path`. An entry of a list has its number for a key.
    fn place(&self, key: &str) -> Option<String> {
        // 1. The value of an override replaces that of the file with all its entries.
        let sets = |one: &&ConfigOverride| inside(key, &one.path.join(".")).is_some();
        if let Some(one) = self.overrides.iter().rev().find(sets) {
            return Some(one.shown());
        }
        // 2. The file.
        if let Some(at) = self.position(key) {
            let [line, column] = line_and_column(&self.text, at);
            let file = self.file.as_ref().map(|file| format!("{}, ", file.display()));
            return Some(format!("{}line {line}, column {column}", file.unwrap_or_default()));
        }
        // 3. The first override in a table that the file does not have.
        let makes = |one: &&ConfigOverride| inside(&one.path.join("."), key).is_some();
        let maker = self.overrides.iter().find(makes).map(ConfigOverride::shown);
        maker.or_else(|| self.place(key.rsplit_once('.')?.0))
    }

    /// Returns the position of a key in the text.
    fn position(&self, key: &str) -> Option<usize> {
        // The text was read before, so this does not fail.
        let root = DeTable::parse(&self.text).ok()?;
        position(&DeValue::Table(root.into_inner()), key)
    }

    /// Returns comments that name the file and the overrides.
    pub(super) fn comments(&self) -> String {
        let file = self.file.iter().map(|file| format!("# The file is {}.\n", file.display()));
        let sets =
            |one: &ConfigOverride| format!("# {} sets `{}`.\n", one.name, one.path.join("."));
        file.chain(self.overrides.iter().map(sets)).collect()
    }

    /// Returns the section as it was set.
    pub(super) fn section(&self, name: &str) -> Table {
        self.values.get(name).and_then(Value::as_table).cloned().unwrap_or_default()
    }

    /// Returns the file, if there is one.
    pub(super) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Returns the file if it has a secret, with the key of the secret.
    pub(super) fn file_with_secret(&self) -> Option<(&'static str, &Path)> {
        let secret = SECRETS.into_iter().find(|key| self.position(key).is_some())?;
        Some((secret, self.file()?))
    }

    /// Returns the folder of the file. Other files are sought in this folder.
    pub(crate) fn folder(&self) -> PathBuf {
        self.file.as_deref().and_then(Path::parent).map(Path::to_owned).unwrap_or_default()
    }
}

/// Returns the position of a key in a value. An entry of a list has the position of its value.
fn position(value: &DeValue<'_>, key: &str) -> Option<usize> {
    let find = |name: &str, at: Range<usize>, value: &Spanned<DeValue<'_>>| match inside(key, name)?
    {
        "" => Some(at.start),
        inner => position(value.get_ref(), inner),
    };
    match value {
        DeValue::Table(table) => {
            table.iter().find_map(|(name, value)| find(name.get_ref(), name.span(), value))
        }
        DeValue::Array(values) => (values.iter().enumerate())
            .find_map(|(at, value)| find(&at.to_string(), value.span(), value)),
        _ => None,
    }
}

/// Returns the rest of a key inside of an outer one, empty if both are the same key.
fn inside<'k>(key: &'k str, outer: &str) -> Option<&'k str> {
    match key.strip_prefix(outer)? {
        "" => Some(""),
        rest => rest.strip_prefix('.'),
    }
}

/// Returns the line and the column of a byte of the text, from 1 on.
fn line_and_column(text: &str, at: usize) -> [usize; 2] {
    let before = text.get(..at).unwrap_or(text);
    let column = 1 + before.chars().rev().take_while(|&char| char != '\n').count();
    [1 + before.matches('\n').count(), column]
}

/// Returns the text of a syntax error: with the wrong line, unless this line or one before it may
/// name a secret. A secret may have several lines, and only the first one names it.
fn syntax_error(mut error: toml::de::Error, text: &str) -> String {
    let at = error.span().map_or(0, |span| span.start).min(text.len());
    let [line, column] = line_and_column(text, at);
    let end = text.bytes().skip(at).position(|byte| byte == b'\n').map_or(text.len(), |to| at + to);
    if names_secret(text.get(..end).unwrap_or(text)) {
        return format!("line {line}, column {column}: {}", error.message());
    }
    error.set_input(Some(text));
    error.to_string()
}
