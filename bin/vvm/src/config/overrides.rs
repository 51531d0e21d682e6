//! The variables and flags that override keys of the file.

use std::{borrow::Cow, ffi::OsString};

use toml::{Table, Value};

use super::{VvmConfig, reader};

/// The prefix of the variables that override the file.
const PREFIX: &str = "VVM__";

/// The prefix of a variable with one underscore where two belong.
const WRONG_PREFIX: &str = "VVM_";

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

    /// Finds a variable that would override a key if it had two underscores in each place where it
    /// has one, such as `VVM_HTTP_LISTEN`. The error names the right variable.
    ///
    /// The names of other variables may begin with `VVM_`, too: Kubernetes gives a program
    /// `VVM_HTTP_PORT` if there is a service `vvm-http`. So the name must be that of a key.
    pub(crate) fn check_names(
        variables: impl Iterator<Item = (OsString, OsString)>,
    ) -> Result<(), String> {
        let mut names: Vec<String> =
            variables.filter_map(|(name, _)| name.into_string().ok()).collect();
        names.sort_unstable();
        match names.iter().find_map(|name| Some((name, right_name(name)?))) {
            None => Ok(()),
            Some((name, right)) => Err(format!(
                "{name}: this variable sets nothing, because two underscores must stand before \
                 each key: call it {right}, or remove it"
            )),
        }
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

/// The name of the variable that sets a key, if a name has one underscore after `VVM`, and one or
/// more in the other places.
fn right_name(name: &str) -> Option<String> {
    /// The most words of a name. Each place between two words has one or two underscores.
    const MOST_WORDS: usize = 8;
    if name.starts_with(PREFIX) {
        return None;
    }
    let words = name.strip_prefix(WRONG_PREFIX)?.split('_').filter(|word| !word.is_empty());
    let words: Vec<&str> = words.collect();
    if words.is_empty() || words.len() > MOST_WORDS {
        return None;
    }
    // Each bit says whether a key ends after the word. The variable has a section and a key.
    (1..1_u32 << (words.len() - 1)).find_map(|ends| {
        let mut keys = vec![words[0].to_owned()];
        for (place, word) in words[1..].iter().enumerate() {
            match keys.last_mut() {
                Some(key) if ends & (1 << place) == 0 => *key += &format!("_{word}"),
                _ => keys.push((*word).to_owned()),
            }
        }
        let path: Vec<String> = keys.iter().map(|key| key.to_ascii_lowercase()).collect();
        is_key(&path).then(|| format!("{PREFIX}{}", keys.join("__")))
    })
}

/// Whether the configuration has a key.
fn is_key(path: &[String]) -> bool {
    let text = Value::String(String::new());
    let nested =
        path.iter().rfold(text, |value, key| Table::from_iter([(key.clone(), value)]).into());
    match reader::read::<VvmConfig>(&nested) {
        Ok(_) => true,
        // The text may be no value of the key. A table may need other keys, too.
        Err((key, why)) => {
            let is_missing = why.starts_with("the key `") && why.ends_with(" is missing");
            is_missing || (key == path.join(".") && !why.starts_with("unknown key"))
        }
    }
}

const SECRETS: [&str; 2] = ["password", "secret_access_key"];

pub(super) fn is_secret(key: &str) -> bool {
    SECRETS.contains(&key)
}

/// Whether a text may contain a secret. A URL may have a password in front of an `@`.
pub(super) fn names_secret(text: &str) -> bool {
    let is_key = |at: usize, key: &str| !text[at + key.len()..].starts_with("_file");
    let names = |key: &&str| text.match_indices(*key).any(|(at, key)| is_key(at, key));
    SECRETS.iter().any(names) || text.contains('@')
}

/// A URL without the name and the password before its host.
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
