//! The decisions, perhaps with a mistake. The decisions themselves have no code for mistakes.

use crate::{
    decide::{self, Before, Place, UniqueChange},
    defect::Defect,
    rows::{Change, Definition, Equal, Key, LogEntry, Record, RecordId, RecordPlace, Value},
    store::{EMPTY_DAYS, Put},
    world::World,
};

/// A change of one record by an event, with what is known of the record before.
#[derive(Clone, Debug)]
pub(crate) struct EventChange {
    pub(crate) id: u64,
    pub(crate) before: Before<Record>,
    pub(crate) after: Record,
}

impl EventChange {
    pub(crate) fn before_in(&self, definition: Definition, ws: u8) -> Before<RecordPlace> {
        let place = |record: Option<Record>| definition.place(ws, &record?);
        match self.before {
            Before::Known(record) => Before::Known(place(record)),
            Before::Doubtful(record) => Before::Doubtful(place(record)),
        }
    }
}

pub(crate) fn record_put(entry: &LogEntry, change: &Change) -> Put {
    let key = Key::Record(RecordId { ws: entry.ws, id: change.id });
    let value = Value::Record(change.record, entry.version);
    Put::ordered(key, value, World::order_of(entry.version))
}

/// The entries that follow from an event: first the live ones, then the empty ones.
pub(crate) fn entry_puts(
    defect: Option<Defect>,
    entry: &LogEntry,
    changes: &[EventChange],
    maintained: &[(u32, Definition)],
) -> Vec<Put> {
    let order = World::order_of(entry.version);
    let (mut live, mut empty) = (Vec::new(), Vec::new());
    for (number, definition) in maintained {
        let mut taken = Vec::new();
        let mut freed = Vec::new();
        for change in changes {
            let before = match change.before_in(*definition, entry.ws) {
                Before::Known(place) if defect == Some(Defect::AlwaysLive) => {
                    Before::Doubtful(place)
                }
                before => before,
            };
            let follows = decide::entries(before, definition.place(entry.ws, &change.after));
            taken.extend(follows.live.map(|place| (place, change.id)));
            freed.extend(follows.empty.map(|place| (place, change.id)));
        }
        if has_one_row(defect, *definition) {
            let row = |place: &RecordPlace, id| {
                Put::ordered(Key::Holder(*number, place.equal), Value::Holder(id), order)
            };
            live.extend(taken.iter().map(|(place, id)| row(place, Some(*id))));
            freed.retain(|(place, _)| !taken.iter().any(|(other, _)| other == place));
            if defect == Some(Defect::OneRowPerKey) {
                empty.extend(freed.iter().map(|(place, _)| row(place, None)));
            }
            continue;
        }
        for (place, id) in taken {
            live.push(Put::ordered(Key::Entry(*number, place, id), Value::Live, order));
        }
        for (place, id) in freed {
            let put = Put::ordered(Key::Entry(*number, place, id), Value::Empty, order);
            empty.push(Put { days: Some(EMPTY_DAYS), ..put });
        }
    }
    match defect {
        Some(Defect::NoEmpties) => empty.clear(),
        Some(Defect::EmptyWithoutTtl) => empty.iter_mut().for_each(|put| put.days = None),
        Some(Defect::EmptyOfOldOrder) => empty.iter_mut().for_each(|put| {
            let Key::Entry(_, _, id) = put.key else { return };
            let change = entry.changes().iter().find(|change| change.id == id);
            if let Some(version) = change.and_then(|change| change.replaces) {
                put.order = Some(World::order_of(version));
            }
        }),
        _ => {}
    }
    match defect {
        Some(Defect::EmptyBeforeLive) => empty.into_iter().chain(live).collect(),
        _ => live.into_iter().chain(empty).collect(),
    }
}

/// Whether each key of the index has one row, which names its holder.
pub(crate) fn has_one_row(defect: Option<Defect>, definition: Definition) -> bool {
    let has = matches!(defect, Some(Defect::OneRowPerKey | Defect::OneRowNeverFreed));
    has && definition == Definition::Unique
}

/// The rows of a list.
pub(crate) fn listed(
    defect: Option<Defect>,
    wanted: Equal,
    candidates: &[(u8, u64)],
    now: impl Fn(u64) -> Option<(Record, RecordPlace)>,
    is_active: impl Fn(u64) -> bool,
) -> Vec<(u8, u64)> {
    let place = |id: u64| now(id).map(|(_, place)| place);
    let ids: Vec<u64> = match defect {
        Some(Defect::ReaderDoesNotVerify) => return candidates.to_vec(),
        Some(Defect::ReaderVerifiesActivity) => {
            return candidates.iter().copied().filter(|(_, id)| is_active(*id)).collect();
        }
        Some(Defect::ReaderTrustsOrder) => {
            let fits = |id: u64| place(id).is_some_and(|place| place.equal == wanted);
            return candidates.iter().copied().filter(|(_, id)| fits(*id)).collect();
        }
        Some(Defect::ReaderLeavesOutMoved) => {
            let fits = |order: u8, id: u64| place(id) == Some(Place { equal: wanted, order });
            candidates.iter().filter(|(order, id)| fits(*order, *id)).map(|(_, id)| *id).collect()
        }
        _ => candidates.iter().map(|(_, id)| *id).collect(),
    };
    decide::listed(&wanted, &ids, place)
}

/// Judges the changes of one command. `stored` returns the ids of the stored entries of a key,
/// `of_group` those that earlier commands of the group made.
pub(crate) fn conflict(
    defect: Option<Defect>,
    changes: &[UniqueChange<u64, Equal>],
    stored: impl Fn(Equal) -> Vec<u64>,
    of_group: impl Fn(Equal) -> Vec<u64>,
    now: impl Fn(u64) -> Option<Equal>,
    stored_now: impl Fn(u64) -> Option<Equal>,
) -> bool {
    let both = |key| stored(key).into_iter().chain(of_group(key)).collect::<Vec<_>>();
    match defect {
        Some(Defect::UniqueWithoutGroup) => decide::conflict(changes, stored, stored_now).is_some(),
        Some(Defect::UniqueRemovalsLast) => {
            changes.iter().any(|change| decide::conflict(&[*change], both, &now).is_some())
        }
        Some(Defect::UniqueTrustsEntries) => changes.iter().any(|change| {
            let is_freed = |id| changes.iter().any(|other| other.id == id);
            change.taken().is_some_and(|key| {
                stored(key).into_iter().any(|id| id != change.id && !is_freed(id))
            }) || decide::conflict(changes, both, &now).is_some()
        }),
        Some(Defect::UniqueWithoutCommand) => changes.iter().any(|change| {
            let others = changes.iter().filter(|other| other.id != change.id);
            let freed: Vec<_> =
                others.map(|other| UniqueChange { after: None, ..*other }).collect();
            let judged: Vec<_> = freed.into_iter().chain([*change]).collect();
            decide::conflict(&judged, both, &now).is_some()
        }),
        _ => decide::conflict(changes, both, now).is_some(),
    }
}
