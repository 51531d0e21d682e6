//! The entry of an application in the registry, and the bytes of the entry.

use std::num::NonZeroU16;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use istorage::KeyspaceName;

use crate::{Error, Result};

/// The number of an application in this storage. The number stands for the name in other keys, and
/// is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AppNumber(pub(crate) u32);

impl AppNumber {
    /// Returns the number, from 1.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }
}

/// The entry of an application in the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppEntry {
    /// The number of the application in this storage.
    pub number: AppNumber,
    /// The number of partitions. It is fixed when the application is initialized.
    pub partitions: NonZeroU16,
    /// The format of the rows of the application.
    pub format: u32,
    /// The keyspace of the application.
    pub keyspace: KeyspaceName,
}

/// The progress of the initialization of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitState {
    /// The keyspace may not exist yet. Any node may finish the initialization.
    Creating,
    /// Nodes can open the application.
    Ready,
    /// An import writes the application. Only the import may finish it.
    Importing,
}

/// An entry as it is stored:
/// `[u8 version][u8 state][u64 attempt][u32 number][u16 partitions][u32 format][keyspace]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RegistryRow {
    pub(crate) state: InitState,
    /// The random number of the attempt that registered the application. A node whose write got no
    /// answer recognizes its own row by this number.
    pub(crate) attempt: u64,
    pub(crate) entry: AppEntry,
}

const VERSION: u8 = 1;
const HEADER: usize = 20;

impl RegistryRow {
    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(HEADER + self.entry.keyspace.as_str().len());
        bytes.put_u8(VERSION);
        bytes.put_u8(match self.state {
            InitState::Creating => 0,
            InitState::Ready => 1,
            InitState::Importing => 2,
        });
        bytes.put_u64(self.attempt);
        bytes.put_u32(self.entry.number.0);
        bytes.put_u16(self.entry.partitions.get());
        bytes.put_u32(self.entry.format);
        bytes.put_slice(self.entry.keyspace.as_str().as_bytes());
        bytes.freeze()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<RegistryRow> {
        // The bytes after a newer version byte may mean anything, and may have any length.
        if let Some(&version) = bytes.first().filter(|version| **version > VERSION) {
            return Err(Error::NewerFormat { found: version.into(), known: VERSION.into() });
        }
        RegistryRow::parse(bytes).ok_or_else(|| Error::Foreign {
            what: format!("the entry {bytes:?} of an application cannot be read"),
        })
    }

    fn parse(mut bytes: &[u8]) -> Option<RegistryRow> {
        if bytes.len() < HEADER || bytes.get_u8() != VERSION {
            return None;
        }
        let state = match bytes.get_u8() {
            0 => InitState::Creating,
            1 => InitState::Ready,
            2 => InitState::Importing,
            _ => return None,
        };
        let attempt = bytes.get_u64();
        let entry = AppEntry {
            number: AppNumber(bytes.get_u32()),
            partitions: NonZeroU16::new(bytes.get_u16())?,
            format: bytes.get_u32(),
            keyspace: KeyspaceName::new(str::from_utf8(bytes).ok()?).ok()?,
        };
        Some(RegistryRow { state, attempt, entry })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registered() -> RegistryRow {
        RegistryRow {
            state: InitState::Ready,
            attempt: 0x0102_0304_0506_0708,
            entry: AppEntry {
                number: AppNumber(9),
                partitions: NonZeroU16::new(10).unwrap(),
                format: 1,
                keyspace: KeyspaceName::new("ksp").unwrap(),
            },
        }
    }

    #[test]
    fn every_byte_of_an_entry_is_pinned() {
        let bytes = [1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 9, 0, 10, 0, 0, 0, 1, b'k', b's', b'p'];
        assert_eq!(registered().encode(), bytes.as_slice());
        assert_eq!(RegistryRow::decode(&bytes).unwrap(), registered());
        for (state, byte) in [(InitState::Creating, 0), (InitState::Importing, 2)] {
            let row = RegistryRow { state, ..registered() };
            assert_eq!(row.encode()[1], byte);
            assert_eq!(RegistryRow::decode(&row.encode()).unwrap(), row);
        }
    }

    #[test]
    fn bytes_that_are_no_entry_are_refused() {
        let whole = registered().encode();
        let with = |index: usize, byte: u8| {
            let mut bytes = whole.to_vec();
            bytes[index] = byte;
            bytes
        };
        for bytes in
            [vec![], whole[..HEADER].to_vec(), with(0, 0), with(1, 3), with(15, 0), with(20, b'K')]
        {
            let refused = RegistryRow::decode(&bytes);
            assert!(matches!(refused, Err(Error::Foreign { .. })), "{bytes:?}: {refused:?}");
        }
    }

    /// Only the first byte of a newer entry can be understood. The others may mean anything, or be
    /// missing.
    #[test]
    fn an_entry_of_a_newer_program_is_told_from_a_foreign_one() {
        let mut whole = registered().encode().to_vec();
        whole[0] = VERSION + 1;
        for bytes in [whole, vec![VERSION + 1], vec![u8::MAX; 100]] {
            let (refused, version) = (RegistryRow::decode(&bytes), u32::from(bytes[0]));
            assert!(
                matches!(refused, Err(Error::NewerFormat { found, known: 1 }) if found == version),
                "{bytes:?}: {refused:?}"
            );
        }
    }
}
