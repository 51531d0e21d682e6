//! The settings as they were set, each with its place: a position in the file, a variable or a
//! flag. An error names the place to correct.

use std::{
    collections::BTreeMap,
    fmt::Display,
    path::{Path, PathBuf},
};

use ctl::CommandError;
use serde::{Deserialize, de::DeserializeOwned};
use toml::{
    Table, Value,
    de::{DeTable, DeValue, Deserializer},
};

use super::{
    ConfigOverride,
    overrides::{is_secret, names_secret},
    reader,
};

/// The keys that have moved, with their new names.
const MOVED: &[([&str; 2], &str)] = &[(["node", "seats"], "cluster.seats")];

/// The keys of secrets that a file may have.
const SECRETS: [&str; 2] =
    ["storage.cassandra.login.password", "storage.dynamodb.secret_access_key"];

/// The settings that were set, without defaults.
#[derive(Debug, Default)]
pub(crate) struct ConfigSource {
    file: Option<PathBuf>,
    overrides: Vec<ConfigOverride>,
    /// A secret that the file has, by its key.
    secret: Option<&'static str>,
    /// The values of the file and of the overrides together.
    values: Table,
    /// The place of each key, as error messages show it. A key contains all its outer keys, as
    /// `storage.redb.path`. An entry of a list has its number for a key.
    places: BTreeMap<String, String>,
}

impl ConfigSource {
    /// Takes the values of the text, and then those of the overrides.
    pub(super) fn new(
        file: Option<&Path>,
        text: &str,
        overrides: &[ConfigOverride],
    ) -> Result<ConfigSource, CommandError> {
        let name = file.map_or_else(String::new, |file| format!("{}: ", file.display()));
        let invalid = |error| CommandError::config(format!("{name}{}", syntax_error(error, text)));
        let root = DeTable::parse(text).map_err(invalid)?;
        let mut source = ConfigSource {
            file: file.map(Path::to_owned),
            overrides: overrides.to_vec(),
            secret: None,
            values: Table::deserialize(Deserializer::from(root.clone())).map_err(invalid)?,
            places: BTreeMap::new(),
        };
        source.add_places(text, "", &DeValue::Table(root.into_inner()));
        source.secret = SECRETS.into_iter().find(|key| source.places.contains_key(*key));
        overrides.iter().try_for_each(|one| source.add(one))?;
        Ok(source)
    }

    /// Remembers the places of all keys in a value of the file.
    fn add_places(&mut self, text: &str, outer: &str, value: &DeValue<'_>) {
        let inner: Vec<_> = match value {
            DeValue::Table(table) => table
                .iter()
                .map(|(name, value)| (name.get_ref().to_string(), name.span(), value))
                .collect(),
            DeValue::Array(values) => {
                let numbered = values.iter().enumerate();
                numbered.map(|(at, value)| (at.to_string(), value.span(), value)).collect()
            }
            _ => return,
        };
        for (name, span, value) in inner {
            let key = joined(outer, &name);
            self.add_places(text, &key, value.get_ref());
            let [line, column] = line_and_column(text, span.start);
            let file = self.file.as_ref().map(|file| format!("{}, ", file.display()));
            let place = format!("{}line {line}, column {column}", file.unwrap_or_default());
            self.places.insert(key, place);
        }
    }

    /// Sets the value of an override. The override replaces a value with all its entries, and makes
    /// the tables around it.
    fn add(&mut self, one: &ConfigOverride) -> Result<(), CommandError> {
        let wrong = |why| CommandError::config(format!("{}: {why}", one.shown()));
        one.apply(&mut self.values).map_err(wrong)?;
        let key = one.path.join(".");
        let inside = format!("{key}.");
        self.places.retain(|old, _| *old != key && !old.starts_with(&inside));
        for (end, _) in inside.match_indices('.') {
            self.places.entry(inside[..end].to_owned()).or_insert_with(|| one.shown());
        }
        Ok(())
    }

    /// Reads all settings.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, CommandError> {
        for ([section, key], new) in MOVED {
            if self.section(section).contains_key(*key) {
                let why = format!("this key is called `{new}` now: set that one");
                return Err(self.wrong(&[section, key], why));
            }
        }
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

    /// Returns the place of a key, or of the innermost table around it.
    fn place(&self, key: &str) -> Option<String> {
        let place = self.places.get(key).cloned();
        place.or_else(|| self.place(key.rsplit_once('.')?.0))
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
        Some((self.secret?, self.file()?))
    }

    /// Returns the folder of the file. Other files are sought in this folder.
    pub(crate) fn folder(&self) -> PathBuf {
        self.file.as_deref().and_then(Path::parent).map(Path::to_owned).unwrap_or_default()
    }
}

fn joined(outer: &str, name: &str) -> String {
    if outer.is_empty() { name.to_owned() } else { format!("{outer}.{name}") }
}

/// Returns the line and the column of a byte of the text, from 1 on.
fn line_and_column(text: &str, at: usize) -> [usize; 2] {
    let before = text.get(..at).unwrap_or(text);
    let column = 1 + before.chars().rev().take_while(|&char| char != '\n').count();
    [1 + before.matches('\n').count(), column]
}

/// Returns the text of a syntax error: with the wrong line, unless that line may contain a secret.
fn syntax_error(mut error: toml::de::Error, text: &str) -> String {
    let [line, column] = line_and_column(text, error.span().map_or(0, |span| span.start));
    if text.lines().nth(line - 1).is_some_and(names_secret) {
        return format!("line {line}, column {column}: {}", error.message());
    }
    error.set_input(Some(text));
    error.to_string()
}
