//! The configuration: defaults, then the file, then the environment, then flags.

mod apps;
mod sections;
mod source;
mod storage;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
pub(crate) use apps::{AppConfig, demo};
pub(crate) use sections::{
    AdminConfig, HttpConfig, LogConfig, NodeConfig, Seconds, SequencesConfig, SequencesIn,
};
pub(crate) use source::Source;
pub(crate) use storage::StorageConfig;

/// What the names of variables begin with that override the file.
const PREFIX: &str = "VVM__";

/// All of it.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    pub(crate) node: NodeConfig,
    pub(crate) http: HttpConfig,
    pub(crate) admin: AdminConfig,
    #[serde(skip_serializing)]
    pub(crate) storage: StorageConfig,
    pub(crate) sequences: SequencesConfig,
    pub(crate) apps: Vec<AppConfig>,
    pub(crate) log: LogConfig,
    /// Where it was said.
    #[serde(skip)]
    pub(crate) source: Source,
    /// The section of the storage as it was said.
    #[serde(skip)]
    said_of_storage: toml::Table,
}

/// Something that overrides the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Override {
    /// As whoever set it calls it.
    pub(crate) called: String,
    /// The keys, from the outermost on.
    pub(crate) path: Vec<String>,
    /// The value, in TOML or as a bare text.
    pub(crate) value: String,
}

impl Override {
    /// Those of the environment, by name.
    pub(crate) fn of_environment(
        variables: impl Iterator<Item = (String, String)>,
    ) -> Vec<Override> {
        let mut all: Vec<Override> = variables
            .filter_map(|(called, value)| {
                let keys = called.strip_prefix(PREFIX)?;
                let path = keys.split("__").map(str::to_ascii_lowercase).collect();
                Some(Override { called, path, value })
            })
            .collect();
        all.sort_by(|one, other| one.called.cmp(&other.called));
        all
    }

    /// Of a flag.
    pub(crate) fn of_flag(flag: &str, path: [&str; 2], value: impl ToString) -> Override {
        let path = path.map(str::to_owned).to_vec();
        Override { called: flag.to_owned(), path, value: value.to_string() }
    }

    fn apply(&self, table: &mut toml::Table) -> Result<(), String> {
        let Some((last, outer)) = self.path.split_last() else {
            return Err("names no key".to_owned());
        };
        let mut table = table;
        for key in outer {
            let inner = table.entry(key).or_insert_with(|| toml::Table::new().into());
            table = inner.as_table_mut().ok_or_else(|| format!("`{key}` holds no keys"))?;
        }
        table.insert(last.clone(), value(&self.value));
        Ok(())
    }
}

/// Numbers, lists and the like are TOML; whatever else is a text.
fn value(text: &str) -> toml::Value {
    let parsed = toml::from_str::<toml::Table>(&format!("value = {text}"));
    let value = parsed.ok().and_then(|mut table| table.remove("value"));
    value.unwrap_or_else(|| toml::Value::String(text.to_owned()))
}

impl Config {
    /// Reads a file, if there is one, and what overrides it.
    pub(crate) fn read(path: Option<&Path>, overrides: &[Override]) -> Result<Config, Failure> {
        let text = match path {
            None => String::new(),
            Some(path) => std::fs::read_to_string(path).map_err(|error| {
                Failure::config(format!("cannot read {}: {error}", path.display()))
            })?,
        };
        let mut config = Config::of_text(&text, path)?;
        let mut table: toml::Table = toml::from_str(&text)
            .map_err(|error| Failure::config(format!("the configuration: {error}")))?;
        for one in overrides {
            let applied = one.apply(&mut table).and_then(|()| {
                table.clone().try_into().map_err(|error: toml::de::Error| error.to_string())
            });
            config = applied.map_err(|error| {
                Failure::config(format!("{}={}: {}", one.called, one.value, error.trim_end()))
            })?;
        }
        let (file, overrides) = (path.map(Path::to_owned), overrides.to_vec());
        config.source = Source { file, text, overrides };
        if let Some(storage) = table.get("storage").and_then(toml::Value::as_table) {
            config.said_of_storage = storage.clone();
        }
        Ok(config)
    }

    /// Where the file is: other files are sought beside it.
    pub(crate) fn folder(&self) -> PathBuf {
        let folder = self.source.file.as_deref().and_then(Path::parent);
        folder.map(Path::to_owned).unwrap_or_default()
    }

    /// All that holds, but for passwords.
    pub(crate) fn to_toml(&self) -> Result<String, Failure> {
        let failed = |error| Failure::unfinished(format!("the configuration: {error}"));
        let mut all = toml::Table::try_from(self).map_err(failed)?;
        let mut storage = self.said_of_storage.clone();
        storage.entry("driver").or_insert_with(|| "redb".into());
        hide_secrets(&mut storage);
        all.insert("storage".to_owned(), storage.into());
        toml::to_string(&all).map_err(failed)
    }

    /// The error shows the line, and what was expected there.
    fn of_text(text: &str, path: Option<&Path>) -> Result<Config, Failure> {
        toml::from_str(text).map_err(|error| {
            let file = path.map_or_else(String::new, |path| format!("{}: ", path.display()));
            Failure::config(format!("{file}{error}"))
        })
    }
}

/// What nobody should see over a shoulder.
fn hide_secrets(table: &mut toml::Table) {
    for (key, value) in table {
        if ["password", "secret_access_key", "session_token"].contains(&key.as_str()) {
            *value = "(hidden)".into();
        } else if let Some(inner) = value.as_table_mut() {
            hide_secrets(inner);
        }
    }
}

#[cfg(test)]
mod tests;
