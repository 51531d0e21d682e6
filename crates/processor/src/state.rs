//! What a command sees: what is stored, and what the commands before it in its group did.

use bytes::Bytes;
use eventlog::{Change, Place, Reader, Record, RecordId, StoredRecord, Version, WsId};
use hashbrown::HashMap;

/// What the commands of a group did so far.
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    records: HashMap<(WsId, RecordId), (Version, Record)>,
}

impl Overlay {
    pub(crate) fn add(&mut self, place: Place, changes: Vec<Change>) {
        let version = Version { epoch: place.epoch, plog: place.plog };
        for Change { record, .. } in changes {
            self.records.insert((place.ws, record.id), (version, record));
        }
    }

    pub(crate) fn get(&self, ws: WsId, id: RecordId) -> Option<&(Version, Record)> {
        self.records.get(&(ws, id))
    }

    pub(crate) fn clear(&mut self) {
        self.records.clear();
    }
}

/// What a command of a group sees.
#[derive(Debug)]
pub(crate) struct State<'g> {
    pub(crate) overlay: &'g Overlay,
    pub(crate) reader: &'g Reader,
}

/// A record that was read.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) stored: StoredRecord,
    /// As it is stored; `None` if it is not yet.
    pub(crate) bytes: Option<Bytes>,
}

impl State<'_> {
    pub(crate) async fn read(
        &self,
        ws: WsId,
        id: RecordId,
    ) -> Result<Option<Read>, eventlog::Error> {
        if let Some((version, record)) = self.overlay.get(ws, id) {
            let stored = StoredRecord { version: *version, record: record.clone() };
            return Ok(Some(Read { stored, bytes: None }));
        }
        let found = self.reader.record_and_bytes(ws, id).await?;
        Ok(found.map(|(stored, bytes)| Read { stored, bytes: Some(bytes) }))
    }
}
