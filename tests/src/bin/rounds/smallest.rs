//! The smallest part of a history that still breaks a promise.

use std::collections::BTreeSet;

use crate::{
    checks::{Check, Facts, Violation},
    history::{History, Line, Operation},
};

/// The parts of a history that are checked at most. A part of a long run takes a while.
const MOST_TRIES: usize = 2_000;

/// Returns operations that break the promise of a check without any other ones. The final state
/// stays as it is, because it is not a part of the order of the operations. If the violation is in
/// the final state alone, there are none: [`end_lines`] returns its lines.
pub(crate) fn operations<'h>(
    check: &Check,
    violation: &Violation,
    history: &'h History,
) -> Vec<&'h Operation> {
    let is_wrong = |operations: &[&'h Operation]| {
        let facts = Facts::of_part(operations.to_vec(), &history.end);
        check.run_whole(&facts).iter().any(|found| found.text == violation.text)
    };
    let named: BTreeSet<u64> = violation.operations.iter().copied().collect();
    let of_violation =
        history.operations.iter().filter(|operation| named.contains(&operation.number));
    let of_violation: Vec<&Operation> = of_violation.collect();
    if is_wrong(&of_violation) {
        return without_parts(of_violation, 1, &is_wrong);
    }
    let half = history.operations.len() / 2;
    without_parts(history.operations.iter().collect(), half.max(1), &is_wrong)
}

/// Returns lines of the final state that break the promise of a check without any operations and
/// without any other lines. There are none if the violation needs operations.
pub(crate) fn end_lines(check: &Check, violation: &Violation, history: &History) -> Vec<Line> {
    let lines = history.end.lines();
    let is_wrong = |lines: &[&Line]| {
        let mut part = History::default();
        lines.iter().for_each(|line| part.add((*line).clone()));
        let found = check.run_whole(&Facts::of(&part));
        found.iter().any(|found| found.text == violation.text)
    };
    let lines: Vec<&Line> = lines.iter().collect();
    if !is_wrong(&lines) {
        return Vec::new();
    }
    let half = (lines.len() / 2).max(1);
    without_parts(lines, half, &is_wrong).into_iter().cloned().collect()
}

/// Leaves out parts of a length as long as the rest is wrong, and then parts of half this length.
fn without_parts<'h, T>(
    mut items: Vec<&'h T>,
    mut length: usize,
    is_wrong: &dyn Fn(&[&'h T]) -> bool,
) -> Vec<&'h T> {
    let mut tries = 0;
    loop {
        let mut at = 0;
        while at < items.len() && tries < MOST_TRIES {
            tries += 1;
            let end = items.len().min(at + length);
            let rest = [&items[..at], &items[end..]].concat();
            if is_wrong(&rest) {
                items = rest;
            } else {
                at += length;
            }
        }
        if length == 1 || tries == MOST_TRIES {
            return items;
        }
        length /= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        checks::{
            self,
            testing::{PARTITION, Scene, WS},
        },
        history::Outcome,
    };

    #[test]
    fn a_stale_read_among_many_operations_is_shown_with_the_read_before_it() {
        let mut scene = Scene::new();
        let id = scene.create("a");
        let old = scene.record(id);
        let write = scene.update("b", id, None);
        scene.history.operations[write].outcome = Outcome::Unknown { why: "cut".into() };
        for other in 0..100 {
            scene.create(&format!("other {other}"));
            scene.read(id);
        }
        scene.read_as(id, old, false);
        let violations = checks::run_all(&scene.history);
        let [violation] = &violations[..] else { panic!("{violations:?}") };
        let check = checks::ALL.iter().find(|check| check.name == violation.check).unwrap();
        let smallest = operations(check, violation, &scene.history);
        let numbers: Vec<u64> = smallest.iter().map(|operation| operation.number).collect();
        assert_eq!(numbers, violation.operations);
    }

    #[test]
    fn parts_that_are_not_needed_are_left_out() {
        let mut scene = Scene::new();
        for name in 0..50 {
            scene.create(&format!("{name}"));
        }
        let needed = |operations: &[&Operation]| {
            [7, 30].iter().all(|number| operations.iter().any(|of| of.number == *number))
        };
        let smallest = without_parts(scene.history.operations.iter().collect(), 25, &needed);
        let numbers: Vec<u64> = smallest.iter().map(|operation| operation.number).collect();
        assert_eq!(numbers, [7, 30]);
    }

    #[test]
    fn a_violation_of_the_final_state_is_shown_by_its_lines() {
        let mut scene = Scene::new();
        for name in 0..50 {
            scene.create(&format!("{name}"));
        }
        let (_, record) = scene.history.end.records.iter_mut().nth(20).unwrap();
        record.row.fields["name"] = "torn".into();
        let violations = checks::run_all(&scene.history);
        let [violation] = &violations[..] else { panic!("{violations:?}") };
        let check = checks::ALL.iter().find(|check| check.name == violation.check).unwrap();
        assert!(operations(check, violation, &scene.history).is_empty());
        let lines = end_lines(check, violation, &scene.history);
        let is_small =
            matches!(lines[..], [Line::LogEvent { ws: WS, .. }, Line::FinalRecord { ws: WS, .. }]);
        assert!(is_small, "{lines:?}");
    }

    #[test]
    fn the_lines_of_a_final_state_are_the_whole_state() {
        let mut scene = Scene::new();
        scene.create("a");
        let mut again = History::default();
        scene.history.end.lines().into_iter().for_each(|line| again.add(line));
        assert_eq!(again.end.logs, scene.history.end.logs);
        assert_eq!(again.end.partitions[&PARTITION], *scene.partition());
        assert_eq!(again.end.records, scene.history.end.records);
        assert_eq!(again.end.listed, scene.history.end.listed);
    }
}
