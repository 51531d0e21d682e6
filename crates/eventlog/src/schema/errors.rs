//! The errors of schemas and of records that do not fit a schema.

use base::listed;

use crate::{FieldType, Name, QName, TableKind};

/// Why tables are not a schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSchema {
    /// Several mistakes, in the order of the text.
    #[error("{}", listed(.0))]
    Several(Vec<InvalidSchema>),
    /// The text is not TOML, or is not a schema. The message has the line and the column.
    #[error("{0}")]
    Text(String),
    /// Two tables have the same name.
    #[error("the table {0} is declared twice")]
    Twice(QName),
    /// Two of the fields, number fields, sequence fields and containers of a table have the same
    /// name, so the name would mean both.
    #[error(
        "the table {0} has the name `{1}` twice: fields, numbers, sequences and containers need different names"
    )]
    SameName(QName, Name),
    /// The table of a container's records does not exist.
    #[error("the container `{1}` of {0} is for records of {2}, but the table {2} does not exist")]
    UnknownTable(QName, Name, QName),
    /// The records of a container have a kind that cannot be in this container.
    #[error(
        "the container `{1}` of {0} is for records of {2}, which must be of kind {3:?}, but are of kind {4:?}"
    )]
    WrongKind(QName, Name, QName, TableKind, TableKind),
    /// A singleton has no id, so its record could not be found.
    #[error("the singleton {0} has no id: add an id from 65536 to 66047")]
    NoId(QName),
    /// A table has an id and is not a singleton.
    #[error("the table {0} has an id, but is not a singleton: remove the id")]
    NotSingleton(QName),
    /// The id of a singleton is outside of the allowed range. Other records have such ids.
    #[error("the singleton {0} cannot have the id {1}: it must be from 65536 to 66047")]
    Id(QName, u64),
    /// A rule or a stamp does not fit its field, or another rule.
    #[error("the field `{1}` of {0}: {2}")]
    Rule(QName, Name, String),
    /// Two singletons have the same id, so one would overwrite the other.
    #[error("the singletons {0} and {1} have the same id {2}")]
    SameId(QName, QName, u64),
}

/// Why a record does not fit the tables of the application.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRecord {
    /// The table does not exist.
    #[error("the table {0} does not exist")]
    UnknownTable(QName),
    /// The record has another kind than its table.
    #[error("the table {0} is of kind {1:?}, not {2:?}")]
    Kind(QName, TableKind, TableKind),
    /// The record of a singleton has another id than the table prescribes.
    #[error("the id of the singleton {0} is {1}, not {2}")]
    SingletonId(QName, u64, u64),
    /// A child record has no parent.
    #[error("a record of {0} must be in a container of a parent")]
    NoParent(QName),
    /// A document has a parent.
    #[error("a record of {0} is a document, and cannot be in a container")]
    DocumentWithParent(QName),
    /// The container does not exist.
    #[error("the table {0} has no container `{1}` for records of {2}")]
    UnknownContainer(QName, Name, QName),
    /// The field does not exist.
    #[error("the table {0} has no field `{1}`")]
    UnknownField(QName, Name),
    /// The field holds a value of another type.
    #[error("the field `{1}` of {0} is of type {2}, not {3}")]
    FieldType(QName, Name, FieldType, FieldType),
}

/// Why a schema cannot follow an earlier one. Records of the earlier schema may be stored, and the
/// new schema would read them wrongly.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IncompatibleSchema {
    /// Several differences.
    #[error("{}", listed(.0))]
    Several(Vec<IncompatibleSchema>),
    /// A table is missing. Records may be stored in it, so it may become unused, but must stay
    /// declared.
    #[error(
        "the table {0} is missing: it was deployed, and a deployed table stays declared, also if it has no record: declare it again"
    )]
    TableGone(QName),
    /// A table has another kind than its stored records.
    #[error("the table {0} was of kind {1:?}, and cannot become {2:?}: make a new table")]
    Kind(QName, TableKind, TableKind),
    /// A singleton has another id than its stored record.
    #[error("the singleton {0} had the id {1}: declare the same id again")]
    Id(QName, u64),
    /// A field has another type than the stored values. Only an int32 may become an int64.
    #[error(
        "the field `{1}` of {0} was of type {2}, and cannot become {3}: leave it as it is, and add a field with another name"
    )]
    Retyped(QName, Name, FieldType, FieldType),
    /// A field was left out, and its name is used for something else. Stored records may have
    /// values in the field.
    #[error("`{1}` of {0} was a field of type {2}, and records have its values: take another name")]
    NameOfField(QName, Name, FieldType),
    /// A number field is missing or has another series. Stored records have numbers of the earlier
    /// series in it.
    #[error(
        "the number field `{1}` of {0} had numbers of the series `{2}`: declare it in the same way again"
    )]
    Number(QName, Name, String),
    /// A sequence field is missing or has another sequence. Stored records have numbers of the
    /// earlier sequence in it.
    #[error(
        "the sequence field `{1}` of {0} had numbers of the sequence `{2}`: declare it in the same way again"
    )]
    SequenceField(QName, Name, Name),
    /// A sequence is missing or has another id. Its last numbers are stored under the id, so with
    /// another id it would begin again.
    #[error(
        "the sequence `{1}` of workspaces of the kind `{0}` had the id {2}: declare it with this id again"
    )]
    Sequence(String, Name, u16),
    /// A container is missing or has another table, and stored records are in it.
    #[error("the container `{1}` of {0} was for records of {2}: declare it in the same way again")]
    Container(QName, Name, QName),
}
