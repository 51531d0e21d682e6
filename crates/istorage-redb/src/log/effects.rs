//! The effects of a group on the tables of the file: what a frame of the log holds.
//!
//! An effect is a row or an entry as it is after the write, so a replay judges no condition and no
//! time again. Effects are `[u8 kind][u32 length][bytes]`. The effect of a row that is put has a
//! second length with its bytes. The effects after the name of a keyspace are in that keyspace.

use std::cell::RefCell;

use istorage::{Error, KeyspaceName, Result};
use redb::{StorageError, Table, WriteTransaction};

use crate::{
    errors::FileFailure,
    layout::{Keyspace, META, META_TIME},
};

const KEYSPACE: u8 = 0;
const ROW_PUT: u8 = 1;
const ROW_REMOVED: u8 = 2;
const EXPIRY_PUT: u8 = 3;
const EXPIRY_REMOVED: u8 = 4;
const TIME: u8 = 5;

/// The effects of a transaction so far, in their order.
#[derive(Debug, Default)]
pub(crate) struct Effects(RefCell<Recorded>);

#[derive(Debug, Default)]
struct Recorded {
    bytes: Vec<u8>,
    keyspace: Option<KeyspaceName>,
}

impl Recorded {
    fn add(&mut self, kind: u8, parts: &[&[u8]]) {
        self.bytes.push(kind);
        for part in parts {
            // A part is at most as long as a request may be.
            let len = u32::try_from(part.len()).unwrap_or(u32::MAX);
            self.bytes.extend_from_slice(&len.to_be_bytes());
            self.bytes.extend_from_slice(part);
        }
    }
}

impl Effects {
    fn add(&self, keyspace: &Keyspace, kind: u8, parts: &[&[u8]]) {
        let mut recorded = self.0.borrow_mut();
        if recorded.keyspace.as_ref() != Some(&keyspace.name) {
            recorded.add(KEYSPACE, &[keyspace.name.as_str().as_bytes()]);
            recorded.keyspace = Some(keyspace.name.clone());
        }
        recorded.add(kind, parts);
    }

    pub(crate) fn row_put(&self, keyspace: &Keyspace, key: &[u8], row: &[u8]) {
        self.add(keyspace, ROW_PUT, &[key, row]);
    }

    pub(crate) fn row_removed(&self, keyspace: &Keyspace, key: &[u8]) {
        self.add(keyspace, ROW_REMOVED, &[key]);
    }

    pub(crate) fn expiry_put(&self, keyspace: &Keyspace, entry: &[u8]) {
        self.add(keyspace, EXPIRY_PUT, &[entry]);
    }

    pub(crate) fn expiry_removed(&self, keyspace: &Keyspace, entry: &[u8]) {
        self.add(keyspace, EXPIRY_REMOVED, &[entry]);
    }

    pub(crate) fn time(&self, time: &[u8]) {
        self.0.borrow_mut().add(TIME, &[time]);
    }

    /// The payload of a frame.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0.into_inner().bytes
    }
}

/// Does the effects of a frame once more. Fails with `Corrupt` if the bytes are not effects.
pub(super) fn apply(txn: &WriteTransaction, effects: &[u8]) -> Result<()> {
    let mut rest = effects;
    let mut tables = None;
    while let Some((&kind, behind)) = rest.split_first() {
        rest = behind;
        match kind {
            KEYSPACE => {
                let keyspace = keyspace(take(&mut rest)?)?;
                // redb refuses to open a table that is open.
                drop(tables.take());
                tables = Some(KeyspaceTables::open(txn, &keyspace)?);
            }
            TIME => {
                let time = take(&mut rest)?;
                let written = txn
                    .open_table(META)
                    .map_err(FileFailure::from)?
                    .insert(META_TIME, time)
                    .map(drop);
                written.map_err(FileFailure::from)?;
            }
            kind => {
                let tables = tables.as_mut().ok_or_else(unknown)?;
                tables.apply(kind, &mut rest)?.map_err(FileFailure::from)?;
            }
        }
    }
    Ok(())
}

/// The tables of a keyspace, in a transaction that does effects once more.
struct KeyspaceTables<'t> {
    rows: Table<'t, &'static [u8], &'static [u8]>,
    expiry: Table<'t, &'static [u8], ()>,
}

impl<'t> KeyspaceTables<'t> {
    fn open(
        txn: &'t WriteTransaction,
        keyspace: &Keyspace,
    ) -> std::result::Result<KeyspaceTables<'t>, FileFailure> {
        Ok(KeyspaceTables {
            rows: txn.open_table(keyspace.rows())?,
            expiry: txn.open_table(keyspace.expiry())?,
        })
    }

    fn apply(
        &mut self,
        kind: u8,
        rest: &mut &[u8],
    ) -> Result<std::result::Result<(), StorageError>> {
        let first = take(rest)?;
        Ok(match kind {
            ROW_PUT => self.rows.insert(first, take(rest)?).map(drop),
            ROW_REMOVED => self.rows.remove(first).map(drop),
            EXPIRY_PUT => self.expiry.insert(first, ()).map(drop),
            EXPIRY_REMOVED => self.expiry.remove(first).map(drop),
            _ => return Err(unknown()),
        })
    }
}

fn keyspace(name: &[u8]) -> Result<Keyspace> {
    let name = std::str::from_utf8(name).map_err(|_| unknown())?;
    Ok(Keyspace::new(KeyspaceName::new(name).map_err(|_| unknown())?))
}

/// Takes a length and as many bytes.
fn take<'b>(rest: &mut &'b [u8]) -> Result<&'b [u8]> {
    let (len, behind) = rest.split_first_chunk().ok_or_else(unknown)?;
    let len = u32::from_be_bytes(*len) as usize;
    let (part, behind) = behind.split_at_checked(len).ok_or_else(unknown)?;
    *rest = behind;
    Ok(part)
}

fn unknown() -> Error {
    Error::corrupt("a frame of the log holds something else than effects")
}
