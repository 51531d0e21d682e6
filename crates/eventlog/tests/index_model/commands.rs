//! The commands of clients.

use std::fmt;

use crate::{
    rows::{Equal, Record, RecordId},
    world::World,
};

/// The change of one record.
#[derive(Clone)]
pub(crate) struct Edit {
    /// The record; `None` makes one.
    pub(crate) id: Option<u64>,
    pub(crate) a: Option<Option<u8>>,
    pub(crate) b: Option<u8>,
    pub(crate) u: Option<Option<u8>>,
    pub(crate) is_active: Option<bool>,
}

impl fmt::Debug for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.id {
            Some(id) => write!(f, "{id}:")?,
            None => write!(f, "new:")?,
        }
        let show = |value: u8| value.to_string();
        let shown = |value: Option<u8>| value.map_or("-".to_owned(), show);
        let fields = [("a", self.a.map(shown)), ("b", self.b.map(show)), ("u", self.u.map(shown))];
        for (name, value) in fields {
            value.map_or(Ok(()), |value| write!(f, " {name}={value}"))?;
        }
        match self.is_active {
            Some(true) => write!(f, " on"),
            Some(false) => write!(f, " off"),
            None => Ok(()),
        }
    }
}

impl Edit {
    pub(crate) fn applied_to(&self, before: Option<Record>) -> Record {
        let before = before.unwrap_or(Record { is_active: true, a: None, b: 0, u: None });
        Record {
            is_active: self.is_active.unwrap_or(before.is_active),
            a: self.a.unwrap_or(before.a),
            b: self.b.unwrap_or(before.b),
            u: self.u.unwrap_or(before.u),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Command {
    pub(crate) ws: u8,
    pub(crate) changes: Vec<Edit>,
}

impl Command {
    pub(crate) fn ids(&self) -> impl Iterator<Item = RecordId> + '_ {
        self.changes.iter().filter_map(|edit| Some(RecordId { ws: self.ws, id: edit.id? }))
    }

    pub(crate) fn unique_keys(&self) -> impl Iterator<Item = Equal> + '_ {
        self.changes.iter().filter_map(|edit| Some((self.ws, edit.u??)))
    }
}

/// The most records of a workspace.
const RECORDS: usize = 4;

/// The values of a field: few, so that they collide.
pub(crate) const VALUES: u8 = 3;
const UNIQUE_VALUES: u8 = 4;

impl World {
    /// A command that a client could send now.
    pub(crate) fn command(&mut self) -> Command {
        let ws = self.rng.u8(1..=self.plan.workspaces);
        let records: Vec<(u64, Record)> = self
            .store
            .records()
            .filter(|(id, ..)| id.ws == ws)
            .map(|(id, record, _)| (id.id, record))
            .collect();
        if records.len() > 1 && self.rng.u32(0..6) == 0 {
            let one = self.rng.usize(0..records.len());
            let other = (one + 1) % records.len();
            let swap = |(id, _): (u64, Record), (_, from): (u64, Record)| Edit {
                u: Some(from.u),
                ..no_edit(Some(id))
            };
            let changes =
                vec![swap(records[one], records[other]), swap(records[other], records[one])];
            return Command { ws, changes };
        }
        if records.len() > 1 && !self.store.list().is_empty() && self.rng.u32(0..6) == 0 {
            // The key of another record, which a command should not get.
            let taker = self.rng.usize(0..records.len());
            let holder = (taker + self.rng.usize(1..records.len())) % records.len();
            let changes =
                vec![Edit { u: Some(records[holder].1.u), ..no_edit(Some(records[taker].0)) }];
            return Command { ws, changes };
        }
        let mut changes: Vec<Edit> = Vec::new();
        for _ in 0..self.rng.usize(1..=2) {
            let edit = self.edit(&records);
            if !changes.iter().any(|other| other.id == edit.id && edit.id.is_some()) {
                changes.push(edit);
            }
        }
        Command { ws, changes }
    }

    fn edit(&mut self, records: &[(u64, Record)]) -> Edit {
        let is_new = records.len() < RECORDS && self.rng.u32(0..2) == 0 || records.is_empty();
        let (id, is_active) = match is_new {
            true => (None, None),
            false => {
                let is_newest = self.plan.favours_new && self.rng.u32(0..4) > 0;
                let at =
                    if is_newest { records.len() - 1 } else { self.rng.usize(0..records.len()) };
                let (id, record) = records[at];
                let turns = self.rng.u32(0..4) == 0;
                (Some(id), turns.then_some(!record.is_active))
            }
        };
        let mut some = |values: u8, empty: u32| {
            let changes = is_new || self.rng.bool();
            let value = (self.rng.u32(0..empty) > 0).then(|| self.rng.u8(0..values));
            changes.then_some(value)
        };
        let (a, b, u) = (some(VALUES, 8), some(VALUES, 1000), some(UNIQUE_VALUES, 3));
        Edit { id, a, b: b.map(Option::unwrap_or_default), u, is_active }
    }
}

pub(crate) fn no_edit(id: Option<u64>) -> Edit {
    Edit { id, a: None, b: None, u: None, is_active: None }
}
