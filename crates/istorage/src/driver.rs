//! The source of keyspaces, and their names.

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;
use clock::Instant;
use futures::stream::BoxStream;

use crate::{Error, Result, SharedStorage};

/// The bytes of a backup, in pieces of bounded size. The stream ends after the last piece, or after
/// the first error. The stream is lazy: it reads a piece when the caller asks for the piece.
/// Dropping the stream ends the backup.
pub type BackupStream = BoxStream<'static, Result<Bytes>>;

/// A database that holds keyspaces. A process has one driver for each database.
///
/// No call outlives its deadline. The driver keeps the deadlines of [`create`](Self::create),
/// [`open`](Self::open) and [`drop_keyspace`](Self::drop_keyspace) itself: a
/// [`Guarded`](crate::Guarded) checks only the calls of a storage.
#[async_trait]
pub trait StorageDriver: Send + Sync + fmt::Debug {
    /// The driver's name, for logs and metrics only.
    fn name(&self) -> &'static str;

    /// Makes sure that the keyspace exists. Any number of nodes may call this at once, and all get
    /// the same keyspace. If a keyspace of that name exists and this driver did not make it, the
    /// answer is `Corrupt` and the keyspace is not touched.
    async fn create(&self, keyspace: &KeyspaceName, deadline: Instant) -> Result<()>;

    /// Opens a keyspace. The answer is `None` if the keyspace does not exist.
    async fn open(
        &self,
        keyspace: &KeyspaceName,
        deadline: Instant,
    ) -> Result<Option<SharedStorage>>;

    /// Removes a keyspace with all its rows. A keyspace that does not exist is no error. If this
    /// driver did not make the keyspace, the answer is `Corrupt` and the keyspace is not touched.
    async fn drop_keyspace(&self, keyspace: &KeyspaceName, deadline: Instant) -> Result<()>;

    /// Begins a backup: a copy of all keyspaces as they were at one moment between the call and its
    /// answer, in a format of the driver. Every write that was acknowledged before the call is in
    /// the backup. Writes go on meanwhile. From `until` on the stream is `Unavailable`, because the
    /// storage keeps the old rows for as long as the backup reads them.
    ///
    /// The answer is `None` if the driver makes no backups: the database has tools of its own.
    async fn backup(&self, until: Instant) -> Result<Option<BackupStream>> {
        let _ = until;
        Ok(None)
    }

    /// Waits until the driver cannot go on, and returns the reason. After that every call fails,
    /// and only a new driver can help. The wait never ends while all is well. Nor does it end while
    /// the database is out of reach, because the database may come back.
    ///
    /// # Cancel safety
    /// Safe.
    async fn failed(&self) -> Error {
        std::future::pending().await
    }

    /// Ends the use of the database. Calls under way get their answers, and later calls are
    /// `Closed`. When this returns, the driver has given back its threads, files and connections.
    /// May be called twice.
    async fn close(&self);
}

/// The name of a keyspace, safe for every driver. A name has 3 to 48 lower-case letters, digits and
/// underscores, and begins with a letter. It does not begin with `system`, because databases use
/// such names themselves.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyspaceName(String);

impl KeyspaceName {
    /// The length of the shortest name, a limit of DynamoDB.
    pub const MIN_LEN: usize = 3;

    /// The length of the longest name, a limit of Cassandra.
    pub const MAX_LEN: usize = 48;

    /// Checks a name and makes a `KeyspaceName` of it.
    ///
    /// # Errors
    /// `Invalid` if any driver could not use the name.
    pub fn new(name: impl Into<String>) -> Result<KeyspaceName> {
        let name = name.into();
        let has_valid_start = name.starts_with(|first: char| first.is_ascii_lowercase())
            && !name.starts_with("system");
        let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let has_valid_length =
            (KeyspaceName::MIN_LEN..=KeyspaceName::MAX_LEN).contains(&name.len());
        if !has_valid_start || !has_valid_length || !name.chars().all(is_allowed) {
            return Err(Error::invalid(format!(
                "`{name}` cannot be the name of a keyspace: it must have {} to {} characters, each of a-z, 0-9 and _, the \
                 first a letter, and must not start with `system`",
                KeyspaceName::MIN_LEN,
                KeyspaceName::MAX_LEN
            )));
        }
        Ok(KeyspaceName(name))
    }

    /// The name as text.
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
    fn a_name_that_some_driver_cannot_use_is_refused() {
        for valid in ["abc", "sysvvm", "a_1", &"x".repeat(48)] {
            assert!(KeyspaceName::new(valid).is_ok(), "{valid}");
        }
        for invalid in [
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
            assert!(KeyspaceName::new(invalid).is_err(), "{invalid}");
        }
    }
}
