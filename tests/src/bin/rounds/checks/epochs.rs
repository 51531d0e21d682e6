//! A leader does not answer after its successor, and no two leaders have one epoch.

use std::collections::BTreeMap;

use super::{Facts, Found};
use crate::{
    history::{Event, Operation, Outcome, Version},
    real_time_order::{RankFloors, Ranked},
};

/// What clients saw of the leaders of a partition.
#[derive(Default)]
struct Seen<'h> {
    /// The answers to commands, by epochs. A repeated answer has the epoch of the first one.
    answers: Vec<Ranked>,
    /// All operations that saw an epoch.
    epochs: Vec<Ranked>,
    /// The first and the last epoch of each offset, each with an operation.
    offsets: BTreeMap<u64, [(u64, u64); 2]>,
    /// The node that answered first with each epoch, and the operation. `None` if the answer names
    /// no node.
    leaders: BTreeMap<u64, (Option<&'h str>, u64)>,
    /// Two operations that were answered by two nodes with one epoch.
    two_leaders: Option<(u64, [u64; 2])>,
}

pub(super) fn find(facts: &Facts<'_>) -> Found {
    let mut partitions: BTreeMap<u64, u16> = BTreeMap::new();
    for (partition, events) in &facts.end.partitions {
        partitions.extend(events.iter().map(|event| (event.ws, *partition)));
    }
    let mut seen: BTreeMap<(Option<u16>, u64), Seen<'_>> = BTreeMap::new();
    for operation in &facts.operations {
        let ws = operation.ws;
        // A workspace whose partition is not known stands for itself.
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
        found.extend(seen.epoch_of_two(&place));
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

impl<'h> Seen<'h> {
    fn add(&mut self, operation: &'h Operation) {
        let versions = versions(&operation.outcome);
        let Operation { begin, end, number, .. } = *operation;
        let ranked = |epoch| Ranked { begin, end, rank: epoch, operation: number };
        if let Outcome::Written(written) = &operation.outcome
            && !written.repeated
        {
            let epoch = written.version.epoch;
            self.answers.push(ranked(epoch));
            let node = written.served_by.as_deref();
            let (first, earlier) = *self.leaders.entry(epoch).or_insert((node, number));
            if first != node {
                self.two_leaders.get_or_insert((epoch, [earlier, number]));
            }
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

    /// Finds two nodes that did commands as leaders of one epoch.
    fn epoch_of_two(&self, place: &str) -> Option<(String, Vec<u64>)> {
        let (epoch, operations) = self.two_leaders?;
        Some((format!("{place}: two nodes did commands with epoch {epoch}"), operations.to_vec()))
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
    fn an_epoch_with_two_leaders_is_found() {
        for (served_by, is_right) in [(["n1", "n1", "n2"], true), (["n1", "n2", "n2"], false)] {
            let mut scene = Scene::new();
            for (place, node) in served_by.into_iter().enumerate() {
                scene.epoch = if place < 2 { 1 } else { 2 };
                scene.create(node);
                scene.answer(place).served_by = Some(node.to_owned());
            }
            let found = find(&Facts::of(&scene.history));
            assert_eq!(found.is_empty(), is_right, "{found:?}");
            if !is_right {
                assert!(found[0].0.contains("two nodes did commands with epoch 1"));
                assert_eq!(found[0].1, [0, 1]);
                // A repeated answer has the epoch of the first one, and may come from any node.
                scene.answer(1).repeated = true;
                assert_eq!(find(&Facts::of(&scene.history)), []);
            }
        }
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
