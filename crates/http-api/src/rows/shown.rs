//! The fields of records that an answer shows.

use std::collections::BTreeSet;

use http_server::problem::ProblemDetails;
use vvm::eventlog::Name;

use super::field_name;

/// The fields of records that an answer shows.
#[derive(Debug, PartialEq, Eq)]
pub enum ShownFields {
    /// Every field.
    All,
    /// Only these.
    Only(BTreeSet<Name>),
}

impl ShownFields {
    /// Reads a list of fields, with commas between them. `None` stands for all fields.
    ///
    /// # Errors
    /// If a field is named twice, or if `why_unknown` gives a reason why there is no such field.
    pub fn of(
        keys: Option<&str>,
        why_unknown: impl Fn(&str) -> Option<String>,
    ) -> Result<ShownFields, ProblemDetails> {
        let Some(keys) = keys else { return Ok(ShownFields::All) };
        let mut fields = BTreeSet::new();
        for key in keys.split(',') {
            let name = field_name(key)?;
            if let Some(why) = why_unknown(key) {
                return Err(ProblemDetails::bad_request(why));
            }
            if !fields.insert(name) {
                let reason = format!("`keys` has the field `{key}` twice");
                return Err(ProblemDetails::bad_request(reason));
            }
        }
        Ok(ShownFields::Only(fields))
    }

    /// Whether the answer shows this field.
    pub fn shows(&self, name: &Name) -> bool {
        match self {
            ShownFields::All => true,
            ShownFields::Only(fields) => fields.contains(name),
        }
    }
}
