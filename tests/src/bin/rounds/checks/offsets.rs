//! Dense offsets, epochs that never fall, and logs that agree.

use std::collections::BTreeMap;

use super::{Facts, Found};
use crate::history::{Part, PartitionEvent};

pub(super) fn find(facts: &Facts<'_>) -> Found {
    // Logs that are not read to their ends do not agree.
    let is_other = |part: &Part| matches!(part, Part::Records(_) | Part::List(_));
    let is_whole = facts.end.unreadable.keys().all(is_other);
    let mut found = Found::new();
    let mut report = |text: String| found.push((text, Vec::new()));
    let mut in_partitions: BTreeMap<(u64, u64), &PartitionEvent> = BTreeMap::new();
    for (partition, events) in &facts.end.partitions {
        let mut epoch = 0;
        for (expected, event) in (1..).zip(events) {
            let offset = event.version.offset;
            if offset != expected {
                report(format!("partition {partition} has offset {offset} in place of {expected}"));
                break;
            }
            if event.version.epoch < epoch {
                report(format!(
                    "the epoch of partition {partition} falls from {epoch} to {} at offset {offset}",
                    event.version.epoch
                ));
            }
            epoch = event.version.epoch;
            if let Some(other) = in_partitions.insert((event.ws, event.wlog), event) {
                report(format!(
                    "event {} of workspace {} is in the log of partition {partition} twice: {other:?}, {event:?}",
                    event.wlog, event.ws
                ));
            }
        }
    }
    for (ws, events) in &facts.end.logs {
        for (expected, event) in (1..).zip(events) {
            if event.wlog != expected {
                report(format!("workspace {ws} has offset {} in place of {expected}", event.wlog));
                break;
            }
            if !is_whole {
                continue;
            }
            match in_partitions.remove(&(*ws, event.wlog)) {
                Some(of) if (of.version, &of.request) == (event.version, &event.request) => {}
                Some(of) => report(format!(
                    "event {} of workspace {ws} is {:?} of {:?}, and in the log of the partition {of:?}",
                    event.wlog, event.version, event.request
                )),
                None => report(format!(
                    "event {} of workspace {ws} is not in the log of a partition",
                    event.wlog
                )),
            }
        }
    }
    for (ws, wlog) in in_partitions.keys().filter(|_| is_whole) {
        report(format!("event {wlog} of workspace {ws} is only in the log of its partition"));
    }
    found
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
        assert!(texts(find(&Facts::of(&scene.history)))[0].contains("has offset 2 in place of 1"));
        let mut scene = two_events();
        scene.partition().remove(0);
        assert!(texts(find(&Facts::of(&scene.history)))[0].contains("partition 1 has offset 2"));
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
