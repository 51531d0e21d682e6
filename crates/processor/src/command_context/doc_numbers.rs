//! Drawing document numbers of gapless series.
//!
//! Invariant: the event that uses a number also counts it in the counter record. So a number exists
//! exactly if its event does. A simpler version counts in memory. Command 1 draws number 7; the
//! write of its group fails; command 2 draws number 8, and its event is written. So number 7 is
//! missing.

use docnumbers::{DocNumber, Series, SeriesId};
use eventlog::{Fields, Name, QName, Record, RecordChange, RecordId, Table, TableKind, Value};
use tracing::warn;

use super::CommandContext;
use crate::{
    DeclaredSeries, HandlerError, Rejection, RejectionKind, SeriesPolicy,
    application::{NEXT, PERIOD, SERIES, counter_name, known},
};

impl CommandContext<'_> {
    /// The next number of a gapless series. The number belongs to the period of the time of the
    /// event. The event of this command counts the number: if the command fails, the next command
    /// draws the same number.
    ///
    /// # Errors
    /// If the application has no such series, if the series is fast, or if the counter is full. A
    /// handler may go on after an error: no number is drawn.
    pub async fn next_number(&mut self, series: &SeriesId) -> Result<DocNumber, HandlerError> {
        let application = self.application;
        let Some(declared) = application.find_series(series) else {
            let what = format!("the application has no series `{series}`");
            return Err(Rejection::invalid(what).into());
        };
        self.draw_number(declared).await
    }

    /// Gives the number fields of a new row their numbers.
    pub(super) async fn fill_numbers(
        &mut self,
        table: &Table,
        fields: &mut Fields,
    ) -> Result<(), HandlerError> {
        let application = self.application;
        for (field, series) in table.numbers() {
            if fields.get(field.as_str()).is_some() {
                return Err(value_sent(table.name(), field, series).into());
            }
            let Some(declared) = application.series_of_field(series) else {
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
        let refused = |why: String| {
            Rejection::conflict(format!("the series `{}` has no number now: {why}", series.id()))
        };
        let day = series.day(self.time).map_err(|error| refused(error.to_string()))?;
        let period = day.period().to_string();
        let place = self.counter_place(id).await?;
        let stored = place.map(|at| read_counter(series, &self.changes[at].record)).transpose()?;
        let definition = series.definition();
        let counter = match stored {
            Some((last, next)) if last == period => next,
            Some((last, _)) if !is_before(last, &period) => {
                let why = format!(
                    "record {} counts the period {last}, which does not end before the period {period} \
                     of this command: run the build that drew the last number, because its time \
                     zone rules differ",
                    id.0
                );
                return Err(refused(why).into());
            }
            Some(_) | None => definition.start,
        };
        let number = day.number(docnumbers::WsId(self.ws.0), counter);
        let number = number.map_err(|error| refused(error.to_string()))?;
        let next = counter.checked_add(definition.step).and_then(|next| i64::try_from(next).ok());
        let next = next.ok_or_else(|| refused("its counter has no next value".to_owned()))?;
        if number.is_nearly_full
            && (counter == definition.start || !series.is_nearly_full(counter - definition.step))
        {
            let (ws, series) = (self.ws.0, series.id().as_str());
            warn!(ws, series, period, counter, "document numbers nearly full");
        }
        let at = place.unwrap_or_else(|| self.new_counter(series, id));
        let fields = &mut self.changes[at].record.fields;
        for (name, value) in [(NEXT, Value::Int64(next)), (PERIOD, Value::String(period))] {
            match fields.get_mut(name) {
                Some(field) => *field = value,
                None => _ = fields.insert(known(name), value),
            }
        }
        Ok(number)
    }

    /// The position of the counter record among the changes of the command. `None` if the workspace
    /// has no such record.
    async fn counter_place(&mut self, id: RecordId) -> Result<Option<usize>, HandlerError> {
        if let Some(at) = self.place(id) {
            return Ok(Some(at));
        }
        Ok(self.try_take(id, None).await?.then(|| self.changes.len() - 1))
    }

    /// Adds a new counter record to the changes, and returns its position. The record gets its
    /// period and its next counter from the caller.
    fn new_counter(&mut self, series: &Series, id: RecordId) -> usize {
        let (kind, parent) = (TableKind::Singleton, None);
        let fields = [(known(SERIES), Value::String(series.id().to_string()))].into();
        let record = Record { table: counter_name(id), kind, id, parent, is_active: true, fields };
        self.changes.push(RecordChange { replaces: None, record });
        self.changes.len() - 1
    }
}

/// The refusal of a value that a command sent for a number field.
pub(super) fn value_sent(table: &QName, field: &Name, series: &str) -> Rejection {
    Rejection::invalid(format!(
        "the number field `{field}` of {table} gets its value from the series `{series}`: leave \
         the field out"
    ))
}

/// The period of the last number, and the counter of the next number of this period.
fn read_counter<'a>(series: &Series, record: &'a Record) -> Result<(&'a str, u64), Rejection> {
    let internal = |what| Rejection::new(RejectionKind::Internal, what);
    let field = |name: &str| record.fields.get(name);
    let (Some(Value::String(of)), Some(Value::String(period)), Some(Value::Int64(next))) =
        (field(SERIES), field(PERIOD), field(NEXT))
    else {
        return Err(internal(format!("record {} is not a counter record", record.id.0)));
    };
    if of != series.id().as_str() {
        let (id, series) = (record.id.0, series.id());
        let what = format!(
            "record {id} counts the series `{of}`: declare another record for the series `{series}`"
        );
        return Err(internal(what));
    }
    let next = u64::try_from(*next);
    let next = next.map_err(|_| internal(format!("record {} counts below 0", record.id.0)))?;
    Ok((period, next))
}

/// Whether a period ended before another one of the same reset. Their texts have the same length,
/// and the year is in front.
fn is_before(earlier: &str, later: &str) -> bool {
    earlier.len() == later.len() && earlier < later
}
