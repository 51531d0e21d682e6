//! The values of fields, and their types.

use std::fmt;

use bytes::Bytes;

use crate::QName;

/// The id of a record. It is unique in its workspace, for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct RecordId(pub u64);

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FieldType {
    /// True or false.
    Bool,
    /// An integer of 32 bits.
    Int32,
    /// An integer of 64 bits.
    Int64,
    /// A floating-point number of 32 bits.
    Float32,
    /// A floating-point number of 64 bits.
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

impl FieldType {
    /// Returns whether the values are numbers.
    pub fn is_number(self) -> bool {
        use FieldType::{Float32, Float64, Int32, Int64};
        matches!(self, Int32 | Int64 | Float32 | Float64)
    }
}

/// The name of the type, as a file of tables has it.
impl fmt::Display for FieldType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FieldType::Bool => "bool",
            FieldType::Int32 => "int32",
            FieldType::Int64 => "int64",
            FieldType::Float32 => "float32",
            FieldType::Float64 => "float64",
            FieldType::String => "string",
            FieldType::Bytes => "bytes",
            FieldType::QName => "qname",
            FieldType::Ref => "ref",
        })
    }
}

/// The value of a field. Fields without a value are absent.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A value of type [`FieldType::Bool`].
    Bool(bool),
    /// A value of type [`FieldType::Int32`].
    Int32(i32),
    /// A value of type [`FieldType::Int64`].
    Int64(i64),
    /// A value of type [`FieldType::Float32`].
    Float32(f32),
    /// A value of type [`FieldType::Float64`].
    Float64(f64),
    /// A value of type [`FieldType::String`].
    String(String),
    /// A value of type [`FieldType::Bytes`].
    Bytes(Bytes),
    /// A value of type [`FieldType::QName`].
    QName(QName),
    /// A value of type [`FieldType::Ref`].
    Ref(RecordId),
}

impl Value {
    /// Returns the type of the value.
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
