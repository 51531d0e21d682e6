//! Judges what a command writes by the rules of its table.
//!
//! Only a command that makes its event is judged. An event that is read again never is, because a
//! rule may be newer than the event.

use super::Table;
use crate::{FieldType, Fields, Name, QName, RecordId, Value};

/// The rule of a table that a command would break.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BrokenRule {
    /// The records of the table never change.
    #[error("the records of {0} cannot change: the table is append-only")]
    AppendOnly(QName),
    /// The rule of a field, in words.
    #[error("the field `{1}` of {0} {2}")]
    Field(QName, Name, String),
}

impl Table {
    /// Judges what a command writes into a record of this table. `before` has the fields of the
    /// record before the command; `None` if the command makes the record.
    ///
    /// The rules of a field count if the command changes the field. So a record that is older than
    /// a rule can still be changed, and be corrected.
    ///
    /// # Errors
    /// Fails with the first rule that would be broken.
    pub fn judge(&self, before: Option<&Fields>, after: &Fields) -> Result<(), BrokenRule> {
        if self.is_append_only && before.is_some() {
            return Err(BrokenRule::AppendOnly(self.name.clone()));
        }
        for (name, rules) in &self.rules {
            let was = before.and_then(|before| before.get(name.as_str()));
            let is = after.get(name.as_str());
            let is_judged = before.is_none() || !is_same(was, is);
            if let Some(why) = is_judged.then(|| rules.broken(was, is)).flatten() {
                return Err(self.broken(name, why));
            }
        }
        Ok(())
    }

    /// The references that a command writes and that [`judge_reference`](Table::judge_reference)
    /// must judge: those that are new or changed.
    pub fn new_references<'f>(
        &'f self,
        before: Option<&'f Fields>,
        after: &'f Fields,
    ) -> impl Iterator<Item = (&'f Name, RecordId)> {
        after.iter().filter_map(move |(name, is)| match is {
            Value::Ref(id) => {
                let was = before.and_then(|before| before.get(name.as_str()));
                let is_declared = self.fields.get(name) == Some(&FieldType::Ref);
                (is_declared && was != Some(is)).then_some((name, *id))
            }
            _ => None,
        })
    }

    /// Judges a reference that a command writes. `found` is the table of the record that it points
    /// to, and whether the record is active; `None` if the workspace has no such record.
    ///
    /// # Errors
    /// Fails if there is no such record, if it is not active, or if its table is not allowed.
    pub fn judge_reference(
        &self,
        field: &Name,
        id: RecordId,
        found: Option<(&QName, bool)>,
    ) -> Result<(), BrokenRule> {
        let to: &[QName] = self.rules.get(field).map_or(&[], |rules| &rules.to);
        let id = id.0;
        let why = match found {
            None => format!("refers to record {id}, which does not exist in the workspace"),
            Some((table, _)) if !to.is_empty() && !to.contains(table) => {
                let to: Vec<&str> = to.iter().map(QName::as_str).collect();
                format!("refers to record {id} of {table}, and must refer to {}", to.join(" or "))
            }
            Some((table, false)) => {
                format!("refers to record {id} of {table}, which is not active")
            }
            Some((_, true)) => return Ok(()),
        };
        Err(self.broken(field, why))
    }

    fn broken(&self, field: &Name, why: String) -> BrokenRule {
        BrokenRule::Field(self.name.clone(), field.clone(), why)
    }
}

/// Whether a field has the value that it had. A NaN is the same as itself, so a record with one can
/// be changed in its other fields.
fn is_same(was: Option<&Value>, is: Option<&Value>) -> bool {
    match (was, is) {
        (Some(Value::Float32(was)), Some(Value::Float32(is))) => was.to_bits() == is.to_bits(),
        (Some(Value::Float64(was)), Some(Value::Float64(is))) => was.to_bits() == is.to_bits(),
        (was, is) => was == is,
    }
}
