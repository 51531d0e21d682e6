//! Dense offsets, epochs and times that never fall, and logs that agree.
//!
//! Each event is compared with the event before it in its log. So two lines of the final state show
//! what is wrong, and the report prints them.

use std::collections::{BTreeMap, HashMap};

use super::{Facts, Found};
use crate::{
    final_state::PARTITIONS,
    history::{Event, Part, PartitionEvent, Version},
};

/// The events of the logs of partitions, by the workspace and the offset there.
type InPartitions<'h> = BTreeMap<(u64, u64), &'h PartitionEvent>;

pub(super) fn find(facts: &Facts<'_>) -> Found {
    let mut wrong: Vec<String> = Vec::new();
    let mut in_partitions = InPartitions::new();
    let mut partitions: HashMap<u64, u16> = HashMap::new();
    for (partition, events) in &facts.end.partitions {
        let log = format!("partition {partition}");
        let is_whole = facts.end.is_whole(Part::Partition(*partition));
        wrong.extend(holes(&log, is_whole, events.iter().map(|event| event.version.offset)));
        wrong.extend(falls(&log, events.iter().map(|event| (event.version, event.time_micros))));
        for event in events.iter().filter(|event| !event.is_fencing()) {
            partitions.insert(event.ws, *partition);
            if let Some(other) = in_partitions.insert((event.ws, event.wlog), event) {
                wrong.push(format!(
                    "event {} of workspace {} is in the log of partition {partition} twice: {other:?}, {event:?}",
                    event.wlog, event.ws
                ));
            }
        }
    }
    for (ws, events) in &facts.end.logs {
        let log = format!("workspace {ws}");
        wrong.extend(holes(&log, facts.has_log(*ws), events.iter().map(|event| event.wlog)));
        wrong.extend(falls(&log, events.iter().map(|event| (event.version, event.time_micros))));
        wrong.extend(other_order(*ws, events));
        let is_whole = has_partition(facts, partitions.get(ws).copied());
        for event in events {
            match in_partitions.remove(&(*ws, event.wlog)) {
                None if !is_whole => {}
                there => wrong.extend(disagreement(*ws, event, there)),
            }
        }
    }
    for (ws, wlog) in in_partitions.keys().filter(|(ws, _)| facts.has_log(*ws)) {
        wrong.push(format!("event {wlog} of workspace {ws} is only in the log of its partition"));
    }
    wrong.into_iter().map(|text| (text, Vec::new())).collect()
}

/// Whether the history has all of the log of a partition, or of all partitions if it is not known
/// which one is meant.
fn has_partition(facts: &Facts<'_>, partition: Option<u16>) -> bool {
    let is_whole = |partition: u16| facts.end.is_whole(Part::Partition(partition));
    partition.map_or_else(|| (0..PARTITIONS).all(is_whole), is_whole)
}

/// Finds offsets that do not follow the offset before them. If the log is not whole, the offsets in
/// between may be those of events that the history does not have.
fn holes(log: &str, is_whole: bool, offsets: impl Iterator<Item = u64>) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut before: Option<u64> = None;
    for offset in offsets {
        match before {
            None if offset != 1 && is_whole => {
                wrong.push(format!("the log of {log} begins at offset {offset}"));
            }
            Some(before) if before >= offset || is_whole && before + 1 != offset => {
                wrong.push(format!("{log} has offset {offset} after offset {before}"));
            }
            _ => {}
        }
        before = Some(offset);
    }
    wrong
}

/// Finds events that have another order in the log of the partition than in that of the workspace.
fn other_order(ws: u64, events: &[Event]) -> impl Iterator<Item = String> {
    let is_wrong = |pair: &&[Event]| {
        pair[0].wlog < pair[1].wlog && pair[0].version.offset >= pair[1].version.offset
    };
    events.windows(2).filter(is_wrong).map(move |pair| {
        format!(
            "event {} of workspace {ws} has offset {} of the partition, and event {} before it has {}",
            pair[1].wlog, pair[1].version.offset, pair[0].wlog, pair[0].version.offset
        )
    })
}

/// Finds epochs and times that are lower than those of the event before them.
fn falls(log: &str, events: impl Iterator<Item = (Version, Option<u64>)>) -> Vec<String> {
    let mut wrong = Vec::new();
    let (mut last_epoch, mut last_time) = (0, 0);
    for (Version { epoch, offset }, time) in events {
        if epoch < last_epoch {
            wrong.push(format!(
                "the epoch of {log} falls from {last_epoch} to {epoch} at offset {offset} of the partition"
            ));
        }
        last_epoch = epoch;
        let Some(time) = time else { continue };
        if time < last_time {
            wrong.push(format!(
                "the time of {log} falls from {last_time} to {time} at offset {offset} of the partition"
            ));
        }
        last_time = time;
    }
    wrong
}

/// Compares an event of the log of a workspace with that of the log of its partition.
fn disagreement(ws: u64, event: &Event, there: Option<&PartitionEvent>) -> Option<String> {
    let wlog = event.wlog;
    let Some(of) = there else {
        return Some(format!("event {wlog} of workspace {ws} is not in the log of a partition"));
    };
    let is_same = (of.version, &of.request, of.time_micros)
        == (event.version, &event.request, event.time_micros);
    (!is_same).then(|| {
        format!(
            "event {wlog} of workspace {ws} is {:?} of {:?} at {:?}, and in the log of the partition {of:?}",
            event.version, event.request, event.time_micros
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{PARTITION, Scene, WS, texts};

    fn two_events() -> Scene {
        let mut scene = Scene::new();
        scene.create("a");
        scene.create("b");
        scene
    }

    #[test]
    fn a_hole_in_a_log_is_found() {
        let mut scene = two_events();
        assert_eq!(find(&Facts::of(&scene.history)), []);
        scene.log().remove(0);
        assert!(
            texts(find(&Facts::of(&scene.history)))[0].contains("workspace 11 begins at offset 2")
        );
        let mut scene = two_events();
        scene.partition().remove(0);
        assert!(
            texts(find(&Facts::of(&scene.history)))[0].contains("partition 1 begins at offset 2")
        );
    }

    #[test]
    fn only_a_whole_log_proves_a_hole() {
        let mut scene = two_events();
        scene.create("c");
        scene.unmark();
        scene.log().remove(1);
        scene.partition().remove(0);
        assert_eq!(find(&Facts::of(&scene.history)), []);
        scene.log().reverse();
        let found = texts(find(&Facts::of(&scene.history)));
        assert!(found.contains(&"workspace 11 has offset 1 after offset 3".to_owned()));
        scene.log().reverse();
        scene.log()[1].request = "another".to_owned();
        let found = texts(find(&Facts::of(&scene.history)));
        assert!(found[0].contains("in the log of the partition"), "{found:?}");
    }

    /// Each mark proves what is missing in its own log, and nothing else.
    #[test]
    fn an_event_in_only_one_log_is_found_if_the_other_log_is_whole() {
        for (part, is_found) in [
            (Part::Partition(PARTITION), true),
            (Part::Partition(PARTITION + 1), false),
            (Part::Log(WS), false),
        ] {
            let mut scene = two_events();
            scene.unmark();
            scene.partition().pop();
            scene.history.end.whole.insert(part);
            assert_eq!(!find(&Facts::of(&scene.history)).is_empty(), is_found, "{part:?}");
            let mut scene = two_events();
            scene.unmark();
            scene.log().pop();
            scene.history.end.whole.insert(part);
            let is_found = part == Part::Log(WS);
            assert_eq!(!find(&Facts::of(&scene.history)).is_empty(), is_found, "{part:?}");
        }
        // Without an event of the workspace, it may be of any partition.
        let mut scene = two_events();
        scene.partition().clear();
        assert_eq!(find(&Facts::of(&scene.history)).len(), 2);
        scene.history.end.whole.remove(&Part::Partition(PARTITIONS - 1));
        assert_eq!(find(&Facts::of(&scene.history)), []);
    }

    #[test]
    fn a_hole_is_named_by_the_offsets_around_it() {
        let mut scene = two_events();
        for number in 0..4 {
            scene.create(&format!("{number}"));
        }
        scene.log().remove(2);
        scene.partition().remove(3);
        let found = texts(find(&Facts::of(&scene.history)));
        assert_eq!(found[0], "partition 1 has offset 5 after offset 3");
        assert_eq!(found[1], "workspace 11 has offset 4 after offset 2");
        let holes = found.iter().filter(|text| text.contains("after offset"));
        assert_eq!(holes.count(), 2, "what follows a hole is right: {found:?}");
        let first = scene.log()[0].clone();
        scene.log().insert(0, Event { wlog: u64::MAX, ..first });
        let found = texts(find(&Facts::of(&scene.history)));
        assert!(found.contains(&format!("workspace 11 has offset 1 after offset {}", u64::MAX)));
    }

    #[test]
    fn a_time_that_falls_is_found() {
        let mut scene = two_events();
        scene.create("c");
        let log = scene.log();
        assert_eq!(log[1].time_micros, log[2].time_micros, "of one group");
        let mut fall = |event: usize, time: Option<u64>| {
            scene.partition()[event].time_micros = time;
            scene.log()[event].time_micros = time;
            texts(find(&Facts::of(&scene.history)))
        };
        // The events of histories of earlier runs have no times.
        assert_eq!(fall(1, None), [""; 0]);
        let found = fall(2, Some(0));
        assert_eq!(found, [""; 0], "the event before it has no time");
        let found = fall(1, Some(1));
        assert_eq!(
            found[0],
            "the time of partition 1 falls from 1 to 0 at offset 3 of the partition"
        );
    }

    /// Each event has one version, and both logs are dense.
    #[test]
    fn logs_with_two_orders_are_found() {
        let mut scene = two_events();
        scene.log()[0].version.offset = 2;
        scene.log()[1].version.offset = 1;
        for (place, wlog, request) in [(0, 2, "b"), (1, 1, "a")] {
            let event = &mut scene.partition()[place];
            (event.wlog, event.request) = (wlog, request.to_owned());
            event.time_micros = None;
            scene.log()[place].time_micros = None;
        }
        scene.unmark();
        assert_eq!(
            texts(find(&Facts::of(&scene.history))),
            ["event 2 of workspace 11 has offset 1 of the partition, and event 1 before it has 2"]
        );
    }

    #[test]
    fn an_event_with_two_times_is_found() {
        let mut scene = two_events();
        scene.log()[1].time_micros = Some(1_001);
        assert!(texts(find(&Facts::of(&scene.history)))[0].contains("in the log of the partition"));
    }

    #[test]
    fn an_epoch_that_falls_is_found() {
        let mut scene = two_events();
        scene.partition()[0].version.epoch += 1;
        assert!(texts(find(&Facts::of(&scene.history)))[0].contains("falls from"));
    }

    #[test]
    fn an_event_in_only_one_log_is_found() {
        let mut scene = two_events();
        scene.log().pop();
        assert!(
            texts(find(&Facts::of(&scene.history)))[0].contains("only in the log of its partition")
        );
        let mut scene = two_events();
        scene.partition().pop();
        assert!(
            texts(find(&Facts::of(&scene.history)))[0].contains("not in the log of a partition")
        );
    }

    #[test]
    fn an_offset_that_two_events_have_is_found() {
        let mut scene = two_events();
        scene.partition()[1].wlog = 1;
        assert!(texts(find(&Facts::of(&scene.history)))[0].contains("twice"));
    }

    #[test]
    fn logs_that_name_different_events_are_found() {
        let mut scene = two_events();
        scene.partition()[1].request = "another".to_owned();
        assert!(texts(find(&Facts::of(&scene.history)))[0].contains("in the log of the partition"));
    }
}
