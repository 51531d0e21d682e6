//! A row of a table.

use crate::{Epoch, Fields, Name, Offset, QName, WsId};

/// The id of a record: unique in its workspace, for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordId(pub u64);

/// What a table is for. Records of a document are children of one another, in containers.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize, serde::Serialize,
)]
pub enum TableKind {
    /// Documents of a collection: all of them can be listed.
    CDoc,
    /// Records of such documents.
    CRecord,
    /// Documents of a workspace: many, read by their id.
    WDoc,
    /// Records of such documents.
    WRecord,
    /// Documents of an operation: what a command was given. They do not change.
    ODoc,
    /// Records of such documents.
    ORecord,
    /// A document of a collection that a workspace has at most once, with an id that is fixed.
    Singleton,
}

impl TableKind {
    /// Of which kind its children are.
    pub fn children(self) -> TableKind {
        match self {
            TableKind::CDoc | TableKind::CRecord | TableKind::Singleton => TableKind::CRecord,
            TableKind::WDoc | TableKind::WRecord => TableKind::WRecord,
            TableKind::ODoc | TableKind::ORecord => TableKind::ORecord,
        }
    }

    /// It stands in no container.
    pub fn is_document(self) -> bool {
        !matches!(self, TableKind::CRecord | TableKind::WRecord | TableKind::ORecord)
    }
}

/// Where a record stands that is a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parent {
    /// The record that it belongs to.
    pub id: RecordId,
    /// Where it stands there.
    pub container: Name,
}

/// All of a row of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Its table.
    pub table: QName,
    /// What the table is for.
    pub kind: TableKind,
    /// Its id.
    pub id: RecordId,
    /// Whose child it is; `None` for documents.
    pub parent: Option<Parent>,
    /// Whether it is in use. Nothing is ever deleted.
    pub is_active: bool,
    /// What its fields hold; those that hold nothing are not there.
    pub fields: Fields,
}

/// The event that wrote a record last. One that is greater is later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Its epoch.
    pub epoch: Epoch,
    /// Its offset in the log of its partition.
    pub plog: Offset,
}

/// A record as it is stored: with the event that wrote it last, so that an older one is known as such,
/// and with its workspace, so that a record in the row of another one is known as such.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredRecord {
    /// The workspace of the record.
    pub ws: WsId,
    /// The event that wrote the record last.
    pub version: Version,
    /// The record.
    pub record: Record,
}
