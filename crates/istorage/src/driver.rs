//! Where keyspaces come from.

use std::fmt;

use async_trait::async_trait;
use clock::Instant;

use crate::{Error, Result, SharedStorage};

/// A database that holds keyspaces. One per process and database.
#[async_trait]
pub trait StorageDriver: Send + Sync + fmt::Debug {
    /// The driver's name, for logs and metrics only.
    fn name(&self) -> &'static str;

    /// Makes sure that the keyspace exists. Any number of nodes may do so at once; the same keyspace is there for all of
    /// them. A keyspace of that name which this driver did not make is `Corrupt`, and is not touched.
    async fn create(&self, keyspace: &KeyspaceName, deadline: Instant) -> Result<()>;

    /// A keyspace; `None` if it does not exist.
    async fn open(
        &self,
        keyspace: &KeyspaceName,
        deadline: Instant,
    ) -> Result<Option<SharedStorage>>;

    /// Removes a keyspace with everything in it; it is no error if it does not exist. One that this driver did not make is
    /// `Corrupt`, and is not touched.
    async fn drop_keyspace(&self, keyspace: &KeyspaceName, deadline: Instant) -> Result<()>;

    /// Waits until the driver cannot go on, and says why: every later call fails, and only a new driver can help. It
    /// never returns if all is well, nor for a database that is out of reach, which may come back.
    ///
    /// # Cancel safety
    /// Safe.
    async fn failed(&self) -> Error {
        std::future::pending().await
    }

    /// Ends the use of the database: calls under way get their answers, later ones are `Closed`, and what the driver
    /// holds (threads, files, connections) is given back when this returns. May be called twice.
    async fn close(&self);
}

/// The name of a keyspace, safe for every driver: 3 to 48 lower-case letters, digits and underscores, the first a
/// letter, and not starting with `system`, which databases use themselves.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyspaceName(String);

impl KeyspaceName {
    /// The shortest name; DynamoDB's limit.
    pub const MIN_LEN: usize = 3;

    /// The longest name; Cassandra's limit.
    pub const MAX_LEN: usize = 48;

    /// Checks a name.
    ///
    /// # Errors
    /// `Invalid` if some driver could not use it.
    pub fn new(name: impl Into<String>) -> Result<KeyspaceName> {
        let name = name.into();
        let starts_well = name.starts_with(|first: char| first.is_ascii_lowercase())
            && !name.starts_with("system");
        let safe = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let right_length = (KeyspaceName::MIN_LEN..=KeyspaceName::MAX_LEN).contains(&name.len());
        if !starts_well || !right_length || !name.chars().all(safe) {
            return Err(Error::invalid(format!(
                "`{name}` cannot be the name of a keyspace: it must have {} to {} characters, each of a-z, 0-9 and _, the \
                 first a letter, and must not start with `system`",
                KeyspaceName::MIN_LEN,
                KeyspaceName::MAX_LEN
            )));
        }
        Ok(KeyspaceName(name))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for KeyspaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_every_driver_can_use_are_names() {
        for right in ["abc", "sysvvm", "a_1", &"x".repeat(48)] {
            assert!(KeyspaceName::new(right).is_ok(), "{right}");
        }
        for wrong in [
            "",
            "ab",
            "1abc",
            "_abc",
            "Abc",
            "a-bc",
            "a.bc",
            "abc\u{e9}",
            "system",
            "system_auth",
            &"x".repeat(49),
        ] {
            assert!(KeyspaceName::new(wrong).is_err(), "{wrong}");
        }
    }
}
