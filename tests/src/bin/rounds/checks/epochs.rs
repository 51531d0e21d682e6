//! A leader does not answer after its successor.

use std::collections::BTreeMap;

use super::{Facts, Found};
use crate::{
    history::{Event, Operation, Outcome, Version},
    real_time_order::{RankFloors, Ranked},
};

/// What clients saw of the leaders of a partition.
#[derive(Default)]
struct Seen {
    /// The answers to commands, by epochs. A repeated answer has the epoch of the first one.
    answers: Vec<Ranked>,
    /// All operations that saw an epoch.
    epochs: Vec<Ranked>,
    /// The first and the last epoch of each offset, each with an operation.
    offsets: BTreeMap<u64, [(u64, u64); 2]>,
}

pub(super) fn find(facts: &Facts<'_>) -> Found {
    let mut partitions: BTreeMap<u64, u16> = BTreeMap::new();
    for (partition, events) in &facts.end.partitions {
        partitions.extend(events.iter().map(|event| (event.ws, *partition)));
    }
    let mut seen: BTreeMap<(Option<u16>, u64), Seen> = BTreeMap::new();
    for operation in &facts.operations {
        let ws = operation.ws;
        // A workspace of which the partition is not known stands for itself.
        let partition = partitions.get(&ws).copied();
        let key = (partition, if partition.is_some() { 0 } else { ws });
        seen.entry(key).or_default().add(operation);
    }
    let mut found = Found::new();
    for ((partition, ws), seen) in &seen {
        let place = match partition {
            Some(partition) => format!("partition {partition}"),
            None => format!("workspace {ws}"),
        };
        found.extend(seen.late_answer(&place));
        found.extend(seen.epoch_that_falls(&place));
    }
    found
}

/// The versions that an operation saw.
fn versions(outcome: &Outcome) -> Vec<Version> {
    let of_event = |event: &Event| event.version;
    match outcome {
        Outcome::Written(written) => vec![written.version],
        Outcome::Document { record, .. } => record.iter().map(|record| record.version).collect(),
        Outcome::Listed { documents, .. } => {
            documents.iter().map(|(_, version)| *version).collect()
        }
        Outcome::Events { events } => events.iter().map(of_event).collect(),
        _ => Vec::new(),
    }
}

impl Seen {
    fn add(&mut self, operation: &Operation) {
        let versions = versions(&operation.outcome);
        let Operation { begin, end, number, .. } = *operation;
        let ranked = |epoch| Ranked { begin, end, rank: epoch, operation: number };
        if let Outcome::Written(written) = &operation.outcome
            && !written.repeated
        {
            self.answers.push(ranked(written.version.epoch));
        }
        if let Some(last) = versions.iter().map(|version| version.epoch).max() {
            self.epochs.push(ranked(last));
        }
        for Version { epoch, offset } in versions {
            let this = (epoch, number);
            let [first, last] = self.offsets.entry(offset).or_insert([this, this]);
            (*first, *last) = ((*first).min(this), (*last).max(this));
        }
    }

    /// Finds a command that was sent after a later epoch was seen.
    fn late_answer(&self, place: &str) -> Option<(String, Vec<u64>)> {
        let floors = RankFloors::of(&self.epochs);
        self.answers.iter().find_map(|answer| {
            let seen = floors.before(answer.begin).filter(|seen| seen.rank > answer.rank)?;
            let text = format!(
                "{place}: the leader of epoch {} answered a command that was sent after epoch {} was seen",
                answer.rank, seen.rank
            );
            Some((text, vec![seen.operation, answer.operation]))
        })
    }

    /// Finds an offset with a lower epoch than an offset before it, or with two epochs.
    fn epoch_that_falls(&self, place: &str) -> Option<(String, Vec<u64>)> {
        let mut highest = (0, 0, 0);
        self.offsets.iter().find_map(|(offset, [first, last])| {
            let (epoch, of, operation) = highest.max((last.0, *offset, last.1));
            if first.0 >= epoch {
                highest = (epoch, of, operation);
                return None;
            }
            let text = format!(
                "{place}: clients saw offset {of} with epoch {epoch}, and offset {offset} with epoch {}",
                first.0
            );
            Some((text, vec![operation, first.1]))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{Scene, texts};

    #[test]
    fn an_answer_of_a_former_leader_is_found() {
        let mut scene = Scene::new();
        scene.create("a");
        scene.epoch = 2;
        scene.create("b");
        assert_eq!(find(&Facts::of(&scene.history)), []);
        scene.epoch = 1;
        scene.create("c");
        assert!(
            texts(find(&Facts::of(&scene.history)))[0].contains("the leader of epoch 1 answered")
        );
    }

    #[test]
    fn an_answer_after_a_read_of_a_later_epoch_is_found() {
        for is_log in [true, false] {
            let mut scene = Scene::new();
            scene.epoch = 2;
            let id = scene.create("a");
            scene.history.operations[0].outcome = Outcome::Unknown { why: "cut".into() };
            match is_log {
                true => scene.read_log(1),
                false => scene.read(id),
            };
            assert_eq!(find(&Facts::of(&scene.history)), []);
            scene.epoch = 1;
            scene.create("b");
            scene.log().clear();
            scene.partition().clear();
            assert!(texts(find(&Facts::of(&scene.history)))[0].contains("the leader of epoch 1"));
        }
    }

    #[test]
    fn an_offset_with_two_epochs_is_found() {
        let mut scene = Scene::new();
        let id = scene.create("a");
        let mut record = scene.record(id).unwrap();
        record.version.epoch = 2;
        scene.read_as(id, Some(record.clone()), true);
        assert!(texts(find(&Facts::of(&scene.history)))[0].contains("offset 1 with epoch 2"));
        record.version = Version { epoch: 0, offset: 2 };
        scene.history.operations.truncate(1);
        scene.read_as(id, Some(record), true);
        assert!(texts(find(&Facts::of(&scene.history)))[0].contains("offset 2 with epoch 0"));
    }
}
