//! The sequence fields of new rows.

use eventlog::{Fields, Table, Value};

use super::CommandContext;
use crate::{HandlerError, Rejection, RejectionKind};

impl CommandContext<'_> {
    /// Gives the sequence fields of a new row their numbers. The command sent no values for them.
    /// If the command fails, the numbers are given back.
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
