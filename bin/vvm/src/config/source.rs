//! The places where settings were set, so that an error names the place to correct.

use std::{fmt::Display, path::PathBuf};

use toml::de::{DeTable, DeValue};

use super::ConfigOverride;
use crate::command_error::CommandError;

/// The file, if there is one, and its overrides.
#[derive(Debug, Default)]
pub(crate) struct ConfigSource {
    pub(super) file: Option<PathBuf>,
    pub(super) text: String,
    pub(super) overrides: Vec<ConfigOverride>,
}

impl ConfigSource {
    /// Makes the error for a key with a value that cannot be used. `key` names an entry of a list
    /// by its number, from 0 on.
    pub(crate) fn wrong(&self, key: &[&str], why: impl Display) -> CommandError {
        CommandError::config(format!("{}: {why}", self.place(key)))
    }

    /// Returns the place of the value in force: the override that counts last, else the line of the
    /// file.
    fn place(&self, key: &[&str]) -> String {
        let said = self.overrides.iter().rev().find(|one| {
            one.path.len() <= key.len() && one.path.iter().zip(key).all(|(one, key)| one == key)
        });
        if let Some(said) = said {
            return said.shown();
        }
        let name = key.join(".");
        match (&self.file, self.line(key)) {
            (Some(file), Some(line)) => format!("{}, line {line}: `{name}`", file.display()),
            (Some(file), None) => format!("{}: `{name}`", file.display()),
            (None, _) => format!("`{name}`"),
        }
    }

    /// Returns the line of the file that sets a key.
    fn line(&self, key: &[&str]) -> Option<usize> {
        let table = DeTable::parse(&self.text).ok()?;
        let (first, rest) = key.split_first()?;
        let mut value = table.get_ref().get(*first)?;
        for key in rest {
            value = match value.get_ref() {
                DeValue::Table(table) => table.get(*key)?,
                DeValue::Array(array) => array.get(key.parse::<usize>().ok()?)?,
                _ => return None,
            };
        }
        let before = self.text.get(..value.span().start)?;
        Some(1 + before.matches('\n').count())
    }
}
