//! The configuration: defaults, then the file, then the environment, then flags. A later source
//! overrides an earlier one.

mod apps;
mod sections;
mod source;
mod storage;
mod toml_errors;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::command_error::CommandError;
pub(crate) use apps::{AppConfig, demo};
pub(crate) use sections::{
    AdminConfig, HttpConfig, LogConfig, NodeConfig, Seconds, SequencesConfig, SequencesIn,
};
pub(crate) use source::ConfigSource;
pub(crate) use storage::StorageConfig;

/// The prefix of the variables that override the file.
const PREFIX: &str = "VVM__";

/// The whole configuration.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct VvmConfig {
    pub(crate) node: NodeConfig,
    pub(crate) http: HttpConfig,
    pub(crate) admin: AdminConfig,
    #[serde(skip_serializing)]
    pub(crate) storage: StorageConfig,
    pub(crate) sequences: SequencesConfig,
    pub(crate) apps: Vec<AppConfig>,
    pub(crate) log: LogConfig,
    /// The places where the settings were set, for error messages.
    #[serde(skip)]
    pub(crate) source: ConfigSource,
    /// The section `storage` as the file and the overrides set it, without defaults.
    #[serde(skip)]
    storage_as_set: toml::Table,
}

/// A variable or a flag that overrides a key of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigOverride {
    /// The name of the variable or of the flag.
    pub(crate) name: String,
    /// The keys, from the outermost on.
    pub(crate) path: Vec<String>,
    /// The value, in TOML or as a bare text.
    pub(crate) value: String,
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

    /// Returns the override as error messages show it. In the section `storage` only the name is
    /// shown, because the value may be a secret.
    fn shown(&self) -> String {
        match self.path.first().is_some_and(|section| section == "storage") {
            true => self.name.clone(),
            false => format!("{}={}", self.name, self.value),
        }
    }

    fn wrong(&self, why: &str) -> CommandError {
        CommandError::config(format!("{}: {why}", self.shown()))
    }

    /// Returns the value. A value that is no TOML is a text, and the value of a secret is always a
    /// text.
    fn parsed(&self) -> toml::Value {
        if self.path.last().is_some_and(|key| is_secret(key)) {
            return self.value.clone().into();
        }
        let parsed = toml::from_str::<toml::Table>(&format!("value = {}", self.value));
        let value = parsed.ok().and_then(|mut table| table.remove("value"));
        value.unwrap_or_else(|| toml::Value::String(self.value.clone()))
    }

    fn apply(&self, table: &mut toml::Table) -> Result<(), String> {
        let Some((last, outer)) = self.path.split_last() else {
            return Err("the name of the variable contains no key".to_owned());
        };
        let mut table = table;
        for key in outer {
            let inner = table.entry(key).or_insert_with(|| toml::Table::new().into());
            table = inner
                .as_table_mut()
                .ok_or_else(|| format!("`{key}` is a value and has no keys"))?;
        }
        // Replacing the table would drop the other keys that the file sets in it, without a word.
        if table.get(last).is_some_and(toml::Value::is_table) {
            return Err(format!("`{last}` is a table: set one of its keys, as {}__…", self.name));
        }
        table.insert(last.clone(), self.parsed());
        Ok(())
    }
}

impl VvmConfig {
    /// Reads the file, if there is one, and applies the overrides.
    pub(crate) fn read(
        path: Option<&Path>,
        overrides: &[ConfigOverride],
    ) -> Result<VvmConfig, CommandError> {
        let text = match path {
            None => String::new(),
            Some(path) => std::fs::read_to_string(path).map_err(|error| {
                CommandError::config(format!("cannot read {}: {error}", path.display()))
            })?,
        };
        let mut table = table_of(&text, path)?;
        for one in overrides {
            one.apply(&mut table).map_err(|error| one.wrong(&error))?;
        }
        let (file, all) = (path.map(Path::to_owned), overrides.to_vec());
        let source = ConfigSource { file, text, overrides: all };
        check_lists(table.clone(), &source)?;
        let mut config = match overrides {
            [] => VvmConfig::of_text(&source.text, path)?,
            overrides => overridden(&source.text, path, overrides, &table)?,
        };
        config.source = source;
        if let Some(storage) = table.get("storage").and_then(toml::Value::as_table) {
            config.storage_as_set = storage.clone();
        }
        Ok(config)
    }

    /// Returns the folder of the file. Other files are sought in this folder.
    pub(crate) fn folder(&self) -> PathBuf {
        let folder = self.source.file.as_deref().and_then(Path::parent);
        folder.map(Path::to_owned).unwrap_or_default()
    }

    /// Returns the configuration in force, without passwords.
    pub(crate) fn to_toml(&self) -> Result<String, CommandError> {
        let failed = |error| CommandError::unfinished(format!("the configuration: {error}"));
        let mut all = toml::Table::try_from(self).map_err(failed)?;
        let mut storage = self.storage_as_set.clone();
        self.storage.complete(&mut storage).map_err(failed)?;
        hide_secrets(&mut storage);
        all.insert("storage".to_owned(), storage.into());
        let text = toml::to_string(&all).map_err(failed)?;
        Ok(match self.apps.is_empty() {
            true => format!("# No application is configured, so the node runs the demo.\n{text}"),
            false => text,
        })
    }

    /// Reads a text. The error shows the line, and the value that is expected there.
    fn of_text(text: &str, path: Option<&Path>) -> Result<VvmConfig, CommandError> {
        toml::from_str(text).map_err(|error| in_file(path, &error))
    }

    fn of_table(table: toml::Table) -> Result<VvmConfig, String> {
        table.try_into().map_err(|error| toml_errors::operator_message(&error))
    }
}

fn in_file(path: Option<&Path>, error: &toml::de::Error) -> CommandError {
    let file = path.map_or_else(String::new, |path| format!("{}: ", path.display()));
    CommandError::config(format!("{file}{}", toml_errors::operator_message(error)))
}

fn table_of(text: &str, path: Option<&Path>) -> Result<toml::Table, CommandError> {
    toml::from_str(text).map_err(|error| in_file(path, &error))
}

/// Refuses a list in the place of a table. The reader would take the entries of the list for the
/// values of the keys, in their order.
fn check_lists(table: toml::Table, source: &ConfigSource) -> Result<(), CommandError> {
    let mut named = table.clone();
    let Some(path) = toml_errors::replace_misplaced_list(&mut named) else { return Ok(()) };
    if let Err(error) = VvmConfig::of_table(named)
        && (toml_errors::expects_no_table(&error)
            || VvmConfig::of_table(table).err() == Some(error))
    {
        // A table would be as wrong in this place. The later check reports the expected value
        // together with all other errors.
        return Ok(());
    }
    let path: Vec<&str> = path.iter().map(|key| &**key).collect();
    let why =
        "a table is expected, with the names of its keys, and not a list; `[[…]]` makes a list";
    Err(source.wrong(&path, why))
}

/// Reads the file together with all overrides: one override may need another one.
///
/// If that fails, the error names the override without which the configuration would be right.
fn overridden(
    text: &str,
    path: Option<&Path>,
    overrides: &[ConfigOverride],
    all: &toml::Table,
) -> Result<VvmConfig, CommandError> {
    let error = match VvmConfig::of_table(all.clone()) {
        Ok(config) => return Ok(config),
        Err(error) => error,
    };
    let file = table_of(text, path)?;
    let without = |left_out: usize| {
        let mut table = file.clone();
        for (at, one) in overrides.iter().enumerate() {
            if left_out != at {
                one.apply(&mut table).map_err(|error| one.wrong(&error))?;
            }
        }
        Ok::<_, CommandError>(table)
    };
    for (one, culprit) in overrides.iter().enumerate() {
        if VvmConfig::of_table(without(one)?).is_ok() {
            // A shell removes the outer quotes of a value.
            let is_bare = error.contains(" in quotes");
            let hint = if is_bare {
                "\n  the shell removes the outer quotes: write '\"…\"'"
            } else {
                ""
            };
            return Err(culprit.wrong(&format!("{error}{hint}")));
        }
    }
    // If the file alone is wrong, its own error names the line.
    VvmConfig::of_text(text, path)?;
    let name: Vec<&str> = overrides.iter().map(|one| &*one.name).collect();
    Err(CommandError::config(format!("{}: {error}", name.join(", "))))
}

fn is_secret(key: &str) -> bool {
    ["password", "secret_access_key"].contains(&key)
}

/// Replaces the secrets in a table, so that they cannot be read over a shoulder.
fn hide_secrets(table: &mut toml::Table) {
    for (key, value) in table {
        if is_secret(key) {
            *value = "(hidden)".into();
        } else if let Some(inner) = value.as_table_mut() {
            hide_secrets(inner);
        }
    }
}

#[cfg(test)]
mod tests;
