//! The variables and flags that override keys of the file.

use std::{borrow::Cow, ffi::OsString};

use toml::{Table, Value};

/// The prefix of the variables that override the file.
const PREFIX: &str = "VVM__";

/// A variable or a flag that overrides a key of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigOverride {
    /// The name of the variable or of the flag.
    pub(super) name: String,
    /// The keys, from the outermost on.
    pub(crate) path: Vec<String>,
    /// The value, in TOML or as a bare text.
    value: String,
}

impl ConfigOverride {
    /// Returns the overrides in the environment, sorted by name.
    pub(crate) fn of_environment(
        variables: impl Iterator<Item = (OsString, OsString)>,
    ) -> Vec<ConfigOverride> {
        let mut all: Vec<ConfigOverride> = variables
            .filter_map(|(name, value)| {
                // A name that is not UTF-8 belongs to another program. If the value of one of our
                // variables is not UTF-8, the check of its key refuses the value.
                let (name, value) =
                    (name.into_string().ok()?, value.to_string_lossy().into_owned());
                let keys = name.strip_prefix(PREFIX)?;
                let path = keys.split("__").map(str::to_ascii_lowercase).collect();
                Some(ConfigOverride { name, path, value })
            })
            .collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// Makes the override of a flag.
    pub(crate) fn of_flag(flag: &str, path: [&str; 2], value: impl ToString) -> ConfigOverride {
        let path = path.map(str::to_owned).to_vec();
        ConfigOverride { name: flag.to_owned(), path, value: value.to_string() }
    }

    /// Returns the override as error messages show it. If the value may have a secret, only the
    /// name is shown.
    pub(super) fn shown(&self) -> String {
        let is_in_storage = self.path.first().is_some_and(|section| section == "storage");
        match is_in_storage || self.value.contains('@') {
            true => self.name.clone(),
            false => format!("{}={}", self.name, self.value),
        }
    }

    /// Returns the value. A value that is no TOML is a text, and the value of a secret is always a
    /// text.
    fn parsed(&self) -> Value {
        if self.path.last().is_some_and(|key| is_secret(key)) {
            return self.value.clone().into();
        }
        self.value.parse().unwrap_or_else(|_| Value::String(self.value.clone()))
    }

    /// Sets the value in the table. The error says why the key cannot be set.
    pub(super) fn apply(&self, table: &mut Table) -> Result<(), String> {
        let keys = self.path.split_last().filter(|_| !self.path.iter().any(String::is_empty));
        let Some((last, outer)) = keys else {
            return Err("the name of the variable lacks a key".to_owned());
        };
        let mut table = table;
        for key in outer {
            let inner = table.entry(key).or_insert_with(|| Table::new().into());
            table = inner
                .as_table_mut()
                .ok_or_else(|| format!("`{key}` is a value and has no keys"))?;
        }
        // Replacing the table would drop the other keys that the file sets in it, without a word.
        if table.get(last).is_some_and(Value::is_table) {
            return Err(format!("`{last}` is a table: set one of its keys, as {}__…", self.name));
        }
        table.insert(last.clone(), self.parsed());
        Ok(())
    }
}

const SECRETS: [&str; 2] = ["password", "secret_access_key"];

pub(super) fn is_secret(key: &str) -> bool {
    SECRETS.contains(&key)
}

/// Whether a line of the file may contain a secret. A URL may have a password in front of an `@`.
pub(super) fn names_secret(line: &str) -> bool {
    SECRETS.iter().any(|key| line.contains(key)) || line.contains('@')
}

/// A URL without the name and the password in front of its host.
pub(crate) fn without_login(url: &str) -> Cow<'_, str> {
    let Some((login, rest)) = url.rsplit_once('@') else { return url.into() };
    let scheme = login.split_once("://").map(|(scheme, _)| format!("{scheme}://"));
    format!("{}(hidden)@{rest}", scheme.unwrap_or_default()).into()
}

/// Replaces the secrets in a table, so that they cannot be read over a shoulder.
pub(super) fn hide_secrets(table: &mut Table) {
    for (key, value) in table {
        if is_secret(key) {
            *value = "(hidden)".into();
        } else if let Some(inner) = value.as_table_mut() {
            hide_secrets(inner);
        } else if key == "endpoint"
            && let Some(url) = value.as_str()
        {
            *value = without_login(url).into_owned().into();
        } else if key == "contact_points"
            && let Some(points) = value.as_array_mut()
        {
            for point in points {
                if let Some(address) = point.as_str() {
                    *point = without_login(address).into_owned().into();
                }
            }
        }
    }
}
