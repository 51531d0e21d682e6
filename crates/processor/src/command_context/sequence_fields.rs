//! The sequence fields of new rows, and the refusal of values for fields that only the system fills.

use eventlog::{Fields, Name, Table, Value};

use super::CommandContext;
use crate::{HandlerError, Rejection, RejectionKind};

impl CommandContext<'_> {
    /// Gives the sequence fields of a new row their numbers. The command sent no values for them. If
    /// the command fails, the numbers are given back.
    pub(super) fn fill_sequences(
        &mut self,
        table: &Table,
        fields: &mut Fields,
    ) -> Result<(), HandlerError> {
        for (field, sequence) in table.sequences() {
            let application = self.application;
            let Some(declared) = application.find_sequence(self.kind, sequence) else {
                let (table, kind) = (table.name(), application.kind_name(self.kind));
                return Err(Rejection::invalid(format!(
                    "workspaces of the kind `{}` have no sequence `{sequence}`, which gives the \
                     field `{field}` of {table} its value: declare the sequence for this kind",
                    kind.unwrap_or_default()
                ))
                .into());
            };
            let number = i64::try_from(self.draw(declared.sequence.id())?).map_err(|_| {
                let what = format!("the sequence `{sequence}` gave a number of 2^63 or more");
                Rejection::new(RejectionKind::Internal, what)
            })?;
            fields.insert(field.clone(), Value::Int64(number));
        }
        Ok(())
    }
}

/// The refusal of a value that a command sent, if only the system fills the field.
pub(super) fn value_sent(table: &Table, field: &Name) -> Option<Rejection> {
    let (what, from) = match (table.numbers().get(field), table.sequences().get(field)) {
        (Some(series), _) => ("number", format!("series `{series}`")),
        (None, Some(sequence)) => ("sequence", format!("sequence `{sequence}`")),
        (None, None) => return None,
    };
    let table = table.name();
    Some(Rejection::invalid(format!(
        "the {what} field `{field}` of {table} gets its value from the {from}: leave the field out"
    )))
}
