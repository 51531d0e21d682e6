//! Stamps: the fields that a node fills with the time of the event.

use crate::{FieldType, Name};

/// What a field gets from the time of the event that writes its record. The event has the value, so
/// no node computes it a second time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stamp {
    /// When the record was made, in microseconds since 1970.
    Created,
    /// When the record was last written, in microseconds since 1970.
    Changed,
    /// The date of another stamp of the record, as a text.
    Date {
        /// The other stamp.
        of: Name,
        /// The pattern of the date, such as `yyyy-MM`.
        format: String,
        /// The IANA name of the time zone that decides the date.
        zone: String,
    },
}

impl Stamp {
    /// The type of the field.
    pub(super) fn holds(&self) -> FieldType {
        match self {
            Stamp::Created | Stamp::Changed => FieldType::Int64,
            Stamp::Date { .. } => FieldType::String,
        }
    }
}
