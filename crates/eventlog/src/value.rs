//! What fields hold.

use bytes::Bytes;

use crate::{QName, RecordId};

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FieldType {
    /// Yes or no.
    Bool,
    /// A whole number of 32 bits.
    Int32,
    /// A whole number of 64 bits.
    Int64,
    /// A number with a point, of 32 bits.
    Float32,
    /// A number with a point, of 64 bits.
    Float64,
    /// A text.
    String,
    /// Bytes.
    Bytes,
    /// The name of a table or a command.
    QName,
    /// The id of a record.
    Ref,
}

/// What a field of a record holds. A field that holds nothing is not there.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Of [`FieldType::Bool`].
    Bool(bool),
    /// Of [`FieldType::Int32`].
    Int32(i32),
    /// Of [`FieldType::Int64`].
    Int64(i64),
    /// Of [`FieldType::Float32`].
    Float32(f32),
    /// Of [`FieldType::Float64`].
    Float64(f64),
    /// Of [`FieldType::String`].
    String(String),
    /// Of [`FieldType::Bytes`].
    Bytes(Bytes),
    /// Of [`FieldType::QName`].
    QName(QName),
    /// Of [`FieldType::Ref`].
    Ref(RecordId),
}

impl Value {
    /// Of which type it is.
    pub fn field_type(&self) -> FieldType {
        match self {
            Value::Bool(_) => FieldType::Bool,
            Value::Int32(_) => FieldType::Int32,
            Value::Int64(_) => FieldType::Int64,
            Value::Float32(_) => FieldType::Float32,
            Value::Float64(_) => FieldType::Float64,
            Value::String(_) => FieldType::String,
            Value::Bytes(_) => FieldType::Bytes,
            Value::QName(_) => FieldType::QName,
            Value::Ref(_) => FieldType::Ref,
        }
    }
}
