//! Names of tables, commands, fields and containers.

use std::{fmt, str::FromStr, sync::Arc};

/// The longest name of a package, a table, a field or a container, in bytes.
const LONGEST_NAME: usize = 255;

/// A name with its package: `pkg.Name`.
///
/// ```
/// use eventlog::QName;
///
/// let name: QName = "shop.Article".parse()?;
/// assert_eq!((name.package(), name.name()), ("shop", "Article"));
/// # Ok::<(), eventlog::InvalidName>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QName(Arc<str>);

/// The error for a text that is not a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a name: a name has letters, digits and `_`, does not begin with a digit, and has at most {LONGEST_NAME} \
     bytes; the name of a table or a command begins with its package and a dot"
)]
pub struct InvalidName(String);

impl QName {
    /// Returns the package: the text before the dot.
    pub fn package(&self) -> &str {
        self.0.split_once('.').map_or("", |(package, _)| package)
    }

    /// Returns the name in the package: the text after the dot.
    pub fn name(&self) -> &str {
        self.0.split_once('.').map_or("", |(_, name)| name)
    }

    /// Returns the whole name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for QName {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<QName, InvalidName> {
        let parts = text.split_once('.');
        let is_name = parts.is_some_and(|(package, name)| is_name(package) && is_name(name));
        if is_name { Ok(QName(text.into())) } else { Err(InvalidName(text.to_owned())) }
    }
}

impl fmt::Display for QName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for QName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a field or of a container.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Name, InvalidName> {
        if is_name(text) { Ok(Name(text.into())) } else { Err(InvalidName(text.to_owned())) }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Lets callers look names up in maps by text.
impl std::borrow::Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

fn is_name(text: &str) -> bool {
    let is_first = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    text.len() <= LONGEST_NAME
        && text.bytes().next().is_some_and(is_first)
        && text.bytes().all(|byte| is_first(byte) || byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_letters_digits_and_underscores_make_a_name() {
        let long = "a".repeat(LONGEST_NAME);
        for name in ["a", "_1", "Article", &long] {
            assert_eq!(name.parse::<Name>().unwrap().as_str(), name);
            let qname: QName = format!("p.{name}").parse().unwrap();
            assert_eq!((qname.package(), qname.name()), ("p", name));
        }
        for none in ["", "1a", "a.b", "a b", "ä", "sys-a", &format!("{long}a")] {
            assert!(none.parse::<Name>().is_err(), "{none}");
            assert!(format!("p.{none}").parse::<QName>().is_err(), "{none}");
            assert!(format!("{none}.n").parse::<QName>().is_err(), "{none}");
        }
        assert!("nodot".parse::<QName>().is_err());
    }
}
