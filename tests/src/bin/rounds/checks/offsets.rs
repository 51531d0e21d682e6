//! Dense offsets, epochs and times that never fall, and logs that agree.
//!
//! Each event is compared with the event before it in its log. So two lines of the final state show
//! what is wrong, and the report prints them.

use std::collections::BTreeMap;

use super::{Facts, Found};
use crate::history::{Event, Part, PartitionEvent, Version};

/// The events of the logs of partitions, by the workspace and the offset there.
type InPartitions<'h> = BTreeMap<(u64, u64), &'h PartitionEvent>;

pub(super) fn find(facts: &Facts<'_>) -> Found {
    // Logs that are not read to their ends do not agree.
    let is_other = |part: &Part| matches!(part, Part::Records(_) | Part::List(_));
    let is_whole = facts.end.unreadable.keys().all(is_other);
    let mut wrong: Vec<String> = Vec::new();
    let mut in_partitions = InPartitions::new();
    for (partition, events) in &facts.end.partitions {
        let log = format!("partition {partition}");
        wrong.extend(holes(&log, events.iter().map(|event| event.version.offset)));
        wrong.extend(falls(&log, events.iter().map(|event| (event.version, event.time_micros))));
        for event in events {
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
        wrong.extend(holes(&log, events.iter().map(|event| event.wlog)));
        wrong.extend(falls(&log, events.iter().map(|event| (event.version, event.time_micros))));
        for event in events.iter().filter(|_| is_whole) {
            wrong.extend(disagreement(*ws, event, in_partitions.remove(&(*ws, event.wlog))));
        }
    }
    for (ws, wlog) in in_partitions.keys().filter(|_| is_whole) {
        wrong.push(format!("event {wlog} of workspace {ws} is only in the log of its partition"));
    }
    wrong.into_iter().map(|text| (text, Vec::new())).collect()
}

/// Finds offsets that do not follow the offset before them.
fn holes(log: &str, offsets: impl Iterator<Item = u64>) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut before: Option<u64> = None;
    for offset in offsets {
        match before {
            None if offset != 1 => {
                wrong.push(format!("the log of {log} begins at offset {offset}"))
            }
            Some(before) if before.checked_add(1) != Some(offset) => {
                wrong.push(format!("{log} has offset {offset} after offset {before}"));
            }
            _ => {}
        }
        before = Some(offset);
    }
    wrong
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
    use crate::checks::testing::{Scene, texts};

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
