//! The numbers that a command draws: document numbers of gapless series, and the fields of new rows
//! that draw their values.
//!
//! Invariant: the event that uses a number also counts it in the counter record. So a number exists
//! exactly if its event does. A simpler version counts in memory. Command 1 draws number 7; the
//! write of its group fails; command 2 draws number 8, and its event is written. So number 7 is
//! missing.

use docnumbers::{DocNumber, Series, SeriesId};
use eventlog::{Fields, Offset, Record, RecordChange, RecordId, Table, TableKind, Value};
use tracing::{error, warn};

use super::EventDraft;
use crate::{
    DeclaredSeries, HandlerError, Rejection, RejectionKind, SeriesPolicy,
    gapless::NextNumber,
    system_tables::{NEXT, PERIOD, SERIES, counter_name, known},
};

impl EventDraft<'_> {
    pub(super) async fn next_number(
        &mut self,
        series: &SeriesId,
    ) -> Result<DocNumber, HandlerError> {
        let Some(declared) = self.declarations.find_series(series) else {
            let what = format!("the application has no series `{series}`");
            return Err(Rejection::invalid(what).into());
        };
        self.draw_number(declared).await
    }

    /// Gives the sequence fields of a new row their numbers. The command sent no values for them.
    /// If the command fails, the numbers are given back.
    pub(super) fn fill_sequences(
        &mut self,
        table: &Table,
        fields: &mut Fields,
    ) -> Result<(), HandlerError> {
        for (field, sequence) in table.sequences() {
            let declarations = self.declarations;
            let Some(declared) = declarations.find_sequence(self.head.kind, sequence) else {
                let (table, kind) = (table.name(), declarations.kind_name(self.head.kind));
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

    /// Gives the number fields of a new row their numbers. The command sent no values for them.
    pub(super) async fn fill_numbers(
        &mut self,
        table: &Table,
        fields: &mut Fields,
    ) -> Result<(), HandlerError> {
        for (field, series) in table.numbers() {
            let Some(declared) = self.declarations.series_of_field(series) else {
                let name = table.name();
                let what = format!("`{field}` of {name} is of the unknown series `{series}`");
                return Err(Rejection::new(RejectionKind::Internal, what).into());
            };
            let DocNumber { text, .. } = self.draw_number(declared).await?;
            fields.insert(field.clone(), Value::String(text));
        }
        Ok(())
    }

    async fn draw_number(
        &mut self,
        DeclaredSeries { series, policy }: &DeclaredSeries,
    ) -> Result<DocNumber, HandlerError> {
        let SeriesPolicy::Gapless { counter: id } = *policy else {
            let what =
                format!("the series `{}` is fast: a command cannot draw from it", series.id());
            return Err(Rejection::invalid(what).into());
        };
        let place = self.counter_place(id).await?;
        if place.is_none() {
            self.check_never_counted(series, id).await?;
        }
        let record = place.map(|at| &self.changes()[at].record);
        let NextNumber { number, next } =
            NextNumber::of(series, self.head.ws, record, self.head.time)?;
        let (counter, period) = (number.counter, number.period.to_string());
        let definition = series.definition();
        if number.is_nearly_full
            && (counter == definition.start || !series.is_nearly_full(counter - definition.step))
        {
            let (ws, series) = (self.head.ws.0, series.id().as_str());
            warn!(ws, series, period, counter, "document numbers nearly full");
        }
        let at = place.unwrap_or_else(|| self.new_counter(series, id));
        let fields = &mut self.record_mut(at).fields;
        fields.insert(known(NEXT), Value::Int64(next));
        fields.insert(known(PERIOD), Value::String(period));
        Ok(number)
    }

    /// The position of the counter record among the changes of the command. `None` if the workspace
    /// has no such record.
    async fn counter_place(&mut self, id: RecordId) -> Result<Option<usize>, HandlerError> {
        if let Some(at) = self.place(id) {
            return Ok(Some(at));
        }
        self.take(id, None).await
    }

    /// Refuses a new counter record if one of the last events of the workspace wrote this record.
    /// The storage has then lost it. A simpler version makes the record. A bit of its key flips on
    /// the disk; the next command finds no record, and gives the first number a second time.
    async fn check_never_counted(&self, series: &Series, id: RecordId) -> Result<(), HandlerError> {
        let (ws, state) = (self.head.ws, self.state);
        // The events of the group are not written yet.
        let stored = Offset(self.head.wlog.0 - state.overlay.events_of(ws));
        let reader = state.log.reader();
        let writer = state.lost_counters.last_writer(reader, ws, id, stored).await?;
        let Some(Offset(wlog)) = writer else { return Ok(()) };
        let (series, id, ws) = (series.id(), id.0, ws.0);
        error!(ws, %series, record = id, wlog, "counter record is missing, although the log has it");
        let what = format!(
            "the storage has lost the counter record {id} of the series `{series}` in workspace \
             {ws}, which event {wlog} of the workspace wrote: no number is drawn, because it could \
             be given twice; restore the storage from a backup"
        );
        Err(Rejection::new(RejectionKind::Internal, what).into())
    }

    /// Adds a new counter record to the changes, and returns its position. The record gets its
    /// period and its next counter from the caller.
    fn new_counter(&mut self, series: &Series, id: RecordId) -> usize {
        let (kind, parent) = (TableKind::Singleton, None);
        let fields = [(known(SERIES), Value::String(series.id().to_string()))].into();
        let record = Record { table: counter_name(id), kind, id, parent, is_active: true, fields };
        self.add_change(RecordChange { replaces: None, record })
    }
}
