//! Records: the entries of tables.

use crate::{Epoch, Fields, Name, Offset, QName, RecordId, WsId};

/// The purpose of a table. The records of a document are children of one another, in containers.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize, serde::Serialize,
)]
pub enum TableKind {
    /// Documents of a collection. All of them can be listed.
    CDoc,
    /// Child records of documents of a collection.
    CRecord,
    /// Documents of a workspace. A workspace has many of them. Readers get them by id.
    WDoc,
    /// Child records of documents of a workspace.
    WRecord,
    /// Documents of an operation: the input of a command. They do not change.
    ODoc,
    /// Child records of documents of an operation.
    ORecord,
    /// A document of a collection that a workspace has at most once, with a fixed id.
    Singleton,
}

impl TableKind {
    /// Returns the kind of the child records.
    pub fn children(self) -> TableKind {
        match self {
            TableKind::CDoc | TableKind::CRecord | TableKind::Singleton => TableKind::CRecord,
            TableKind::WDoc | TableKind::WRecord => TableKind::WRecord,
            TableKind::ODoc | TableKind::ORecord => TableKind::ORecord,
        }
    }

    /// Returns whether records of this kind have no parent.
    pub fn is_document(self) -> bool {
        !matches!(self, TableKind::CRecord | TableKind::WRecord | TableKind::ORecord)
    }
}

/// The place of a child record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parent {
    /// The id of the parent.
    pub id: RecordId,
    /// The container of the parent that holds the record.
    pub container: Name,
}

/// The whole of a record.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The table of the record.
    pub table: QName,
    /// The kind of the table.
    pub kind: TableKind,
    /// The id of the record.
    pub id: RecordId,
    /// The parent of the record; `None` for documents.
    pub parent: Option<Parent>,
    /// Whether the record is in use. Records are never deleted.
    pub is_active: bool,
    /// The values of the fields. Fields without a value are absent.
    pub fields: Fields,
}

/// The event that wrote a record last. A greater version is a later one.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize, serde::Serialize,
)]
pub struct Version {
    /// The epoch of the event.
    pub epoch: Epoch,
    /// The offset of the event in the log of its partition.
    pub plog: Offset,
}

/// A record as it is stored. The version shows whether a record is outdated. The workspace shows
/// whether a record is in the row of another record.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredRecord {
    /// The workspace of the record.
    pub ws: WsId,
    /// The event that wrote the record last.
    pub version: Version,
    /// The record.
    pub record: Record,
}
