//! The counter record of a gapless series, and the number that comes next.

use std::fmt::Display;

use base::with_causes;
use clock::WallTime;
use docnumbers::{DocNumber, Period, Series};
use eventlog::{Record, RecordId, Value, WsId};

use crate::{
    Busy, Commands, Refused, Rejection, RejectionKind,
    system_tables::{NEXT, PERIOD, SERIES},
};

/// The next number of a gapless series.
pub(crate) struct NextNumber {
    pub(crate) number: DocNumber,
    /// The counter of the number after it.
    pub(crate) next: i64,
}

impl NextNumber {
    /// The number that an event at `time` draws. `record` is the counter record of the workspace;
    /// `None` if the workspace has no such record yet.
    pub(crate) fn of(
        series: &Series,
        ws: WsId,
        record: Option<&Record>,
        time: WallTime,
    ) -> Result<NextNumber, Rejection> {
        let day = series.day(time).map_err(|error| no_number(series, error))?;
        let definition = series.definition();
        let counter = match record {
            Some(record) => next_counter(series, record, day.period())?,
            None => definition.start,
        };
        let number = day.number(ws, counter);
        let number = number.map_err(|error| no_number(series, error))?;
        let next = counter.checked_add(definition.step).and_then(|next| i64::try_from(next).ok());
        let next = next.ok_or_else(|| no_number(series, "its counter has no next value"))?;
        Ok(NextNumber { number, next })
    }
}

impl Commands {
    /// The number of a gapless series that a command would draw now. Nothing is drawn. `counter` is
    /// the id of the counter record. If the storage has lost this record, the result is the first
    /// number, but a command is refused.
    ///
    /// # Errors
    /// The reason why a command would draw no number.
    pub async fn peek_number(
        &self,
        ws: WsId,
        series: &Series,
        counter: RecordId,
    ) -> Result<DocNumber, Refused> {
        self.applied().map_err(Refused::Busy)?;
        let stored = self.record(ws, counter).await.map_err(unread)?;
        // The time is read after the record, so it is not before the event that wrote the record.
        let time = self.shared.time.last().max(self.shared.clock.wall());
        let record = stored.as_ref().map(|stored| &stored.record);
        let next = NextNumber::of(series, ws, record, time);
        next.map(|next| next.number).map_err(Refused::Rejected)
    }
}

fn unread(error: eventlog::Error) -> Refused {
    let what = with_causes(&error);
    if error.is_lasting() {
        let what = format!("{what}: repair the row");
        return Refused::Rejected(Rejection::new(RejectionKind::Internal, what));
    }
    Refused::Busy(Busy::Storage(what))
}

fn no_number(series: &Series, why: impl Display) -> Rejection {
    let what = format!("the series `{}` has no number now: {why}", series.id());
    Rejection::new(RejectionKind::NoNumber, what)
}

/// The next counter of a period.
fn next_counter(series: &Series, record: &Record, period: Period) -> Result<u64, Rejection> {
    let (last, next) = read_counter(series, record)?;
    if last == period {
        return Ok(next);
    }
    if last.reset() == period.reset() && last < period {
        return Ok(series.definition().start);
    }
    let why = format!(
        "record {} counts the period {last}, which does not end before the period {period} of this \
         command: run the build that drew the last number, because its time zone rules differ",
        record.id.0
    );
    Err(no_number(series, why))
}

/// The period of the last number, and the counter of the next number of this period.
fn read_counter(series: &Series, record: &Record) -> Result<(Period, u64), Rejection> {
    let id = record.id.0;
    let internal = |what| Rejection::new(RejectionKind::Internal, what);
    let not_a_counter = || internal(format!("record {id} is not a counter record"));
    let field = |name: &str| record.fields.get(name);
    let (Some(Value::String(of)), Some(Value::String(period)), Some(Value::Int64(next))) =
        (field(SERIES), field(PERIOD), field(NEXT))
    else {
        return Err(not_a_counter());
    };
    if of != series.id().as_str() {
        let series = series.id();
        let what = format!(
            "record {id} counts the series `{of}`: declare another record for the series `{series}`"
        );
        return Err(internal(what));
    }
    let period = period.parse().map_err(|_| not_a_counter())?;
    let next = u64::try_from(*next);
    let next = next.map_err(|_| internal(format!("record {id} counts below 0")))?;
    Ok((period, next))
}
