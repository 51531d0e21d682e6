//! The numbers in the log of a partition, compared with the rule: 1 to n in each year.

use std::collections::{BTreeMap, BTreeSet};

use clock::WallTime;
use eventlog::{Event, Fields, RecordId, Value, WsId};
use processor::docnumbers::Calendar;
use shop::StoredState;

use crate::scene::COUNTER;

/// The numbers of all workspaces.
#[derive(Debug, Default)]
pub(crate) struct LogNumbers {
    /// The number of numbers of each workspace and year.
    counts: BTreeMap<(WsId, i16), u64>,
    /// The workspace and the text of each number.
    pub(crate) all: BTreeSet<(WsId, String)>,
    /// The number of each record that has one.
    pub(crate) records: BTreeMap<(WsId, RecordId), String>,
}

impl LogNumbers {
    /// Checks all numbers in the log, all records with numbers, and all counter records.
    ///
    /// # Panics
    /// If a number is missing, or occurs twice, or belongs to another year than its event.
    pub(crate) fn check(state: &StoredState) -> LogNumbers {
        let mut numbers = LogNumbers::default();
        state.events.iter().for_each(|event| numbers.add(event));
        for (place, number) in &numbers.records {
            let fields = &state.records[place].record.fields;
            assert_eq!(number_in(fields), Some(number), "the record has another number: {place:?}");
        }
        let mut last = BTreeMap::new();
        for ((ws, year), count) in &numbers.counts {
            last.insert(*ws, (year.to_string(), *count + 1));
        }
        for (ws, (year, next)) in last {
            let fields = &state.records[&(ws, COUNTER)].record.fields;
            assert_eq!(fields["series"], Value::String("invoice".to_owned()));
            assert_eq!(fields["period"], Value::String(year));
            assert_eq!(fields["next"], Value::Int64(next.try_into().unwrap()));
        }
        numbers
    }

    fn add(&mut self, event: &Event) {
        let (ws, year) = (event.place.ws, year(event.time));
        for change in &event.changes {
            let is_new = change.replaces.is_none();
            let (table, fields) = (change.record.table.as_str(), &change.record.fields);
            let number = match table {
                "shop.Invoice" if is_new => number_in(fields).expect("each invoice has a number"),
                "shop.Bill" if is_new => match fields.get("name") {
                    Some(Value::String(number)) => number,
                    _ => panic!("a bill has no number: {event:?}"),
                },
                _ => continue,
            };
            let count = self.counts.entry((ws, year)).or_default();
            *count += 1;
            assert_eq!(*number, format!("INV{year}-{count:04}"), "in {event:?}");
            assert!(self.all.insert((ws, number.clone())), "{number} occurs twice: {event:?}");
            if table == "shop.Invoice" {
                self.records.insert((ws, change.record.id), number.clone());
            }
        }
    }
}

fn number_in(fields: &Fields) -> Option<&String> {
    match fields.get("number") {
        Some(Value::String(number)) => Some(number),
        _ => None,
    }
}

fn year(time: WallTime) -> i16 {
    Calendar::named("UTC").unwrap().day(time).date.year()
}
