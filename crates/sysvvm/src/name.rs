//! The names of applications.

use std::{fmt, str::FromStr};

use istorage::Error;

/// The name of an application, `owner/name`.
///
/// Both parts start with a letter and have at most 100 letters, digits and underscores.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AppName {
    owner: String,
    name: String,
}

impl AppName {
    const PART_MAX: usize = 100;

    /// Checks both parts and makes a name of them.
    ///
    /// # Errors
    /// `Invalid` if a part is empty, is too long, does not start with a letter, or has other
    /// characters.
    pub fn new(owner: &str, name: &str) -> istorage::Result<AppName> {
        let right = |part: &str| {
            part.starts_with(|first: char| first.is_ascii_alphabetic())
                && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                && part.len() <= AppName::PART_MAX
        };
        if !right(owner) || !right(name) {
            return Err(Error::invalid(format!(
                "`{owner}/{name}` is not the name of an application: it must be owner/name, and each of them must start \
                 with a letter and have at most {} letters, digits and underscores",
                AppName::PART_MAX
            )));
        }
        Ok(AppName { owner: owner.to_owned(), name: name.to_owned() })
    }

    /// Returns the owner of the application.
    #[must_use]
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// Returns the name without the owner.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for AppName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.owner, self.name)
    }
}

impl FromStr for AppName {
    type Err = Error;

    fn from_str(name: &str) -> istorage::Result<AppName> {
        let (owner, name) = name.split_once('/').unwrap_or((name, ""));
        AppName::new(owner, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_parsed_as_it_is_printed() {
        for name in ["sys/registry", "Acme_1/shop"] {
            assert_eq!(name.parse::<AppName>().unwrap().to_string(), name);
        }
    }

    #[test]
    fn invalid_names_are_refused() {
        for name in [
            "",
            "/",
            "a",
            "a/",
            "/b",
            "a/b/c",
            "1a/b",
            "a/b-c",
            "a/\u{e9}",
            &format!("a/{}", "b".repeat(101)),
        ] {
            assert!(name.parse::<AppName>().is_err(), "{name}");
        }
    }
}
