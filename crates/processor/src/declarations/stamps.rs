//! The fields that get the time of the event.

use std::collections::BTreeMap;

use clock::WallTime;
use docnumbers::{DateText, DefinitionError};
use eventlog::{Fields, Name, QName, Schema, Stamp, Table, Value};

use crate::Rejection;

/// The stamps of an application that are dates as texts, by table and field.
#[derive(Debug, Default)]
pub(crate) struct StampDates {
    dates: BTreeMap<QName, BTreeMap<Name, DateText>>,
}

impl StampDates {
    /// The dates in tables, and those whose pattern or zone is wrong.
    pub(super) fn of(tables: &Schema) -> (StampDates, Vec<(QName, Name, DefinitionError)>) {
        let (mut stamps, mut wrong) = (StampDates::default(), Vec::new());
        for table in tables.tables() {
            for (field, stamp) in table.stamps() {
                let Stamp::Date { format, zone, .. } = stamp else { continue };
                match DateText::new(format, zone) {
                    Ok(date) => {
                        let of_table = stamps.dates.entry(table.name().clone()).or_default();
                        of_table.insert(field.clone(), date);
                    }
                    Err(error) => wrong.push((table.name().clone(), field.clone(), error)),
                }
            }
        }
        (stamps, wrong)
    }

    /// Gives the stamps of a record the time of the event that writes it.
    pub(crate) fn fill(
        &self,
        table: &Table,
        fields: &mut Fields,
        time: WallTime,
        is_new: bool,
    ) -> Result<(), Rejection> {
        for (field, stamp) in table.stamps() {
            let source = match stamp {
                Stamp::Date { of, .. } => table.stamps().get(of),
                _ => Some(stamp),
            };
            if !is_new && source == Some(&Stamp::Created) {
                continue;
            }
            let date = self.dates.get(table.name()).and_then(|dates| dates.get(field));
            let value = match date {
                // The clock of a node may be wrong by a century, and a text has two digits.
                Some(date) => Value::String(date.of(time).map_err(|error| {
                    Rejection::invalid(format!("the field `{field}` of {}: {error}", table.name()))
                })?),
                // 2^63 microseconds are 292,000 years.
                None => Value::Int64(time.as_micros() as i64),
            };
            fields.insert(field.clone(), value);
        }
        Ok(())
    }
}
