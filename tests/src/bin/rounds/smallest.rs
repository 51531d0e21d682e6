//! The smallest part of a history that still breaks a promise.

use std::collections::BTreeSet;

use crate::{
    checks::{Check, Facts, Violation},
    history::{History, Operation},
};

/// The parts of a history that are checked at most. A part of a long run takes a while.
const MOST_TRIES: usize = 2_000;

/// Returns operations that break the promise of a check without any other ones. The final state
/// stays as it is, because it is not a part of the order of the operations. If the violation is in
/// the final state alone, there are none.
pub(crate) fn operations<'h>(
    check: &Check,
    violation: &Violation,
    history: &'h History,
) -> Vec<&'h Operation> {
    let is_wrong = |operations: &[&'h Operation]| {
        let facts = Facts::of_part(operations.to_vec(), &history.end);
        check.run(&facts).iter().any(|found| found.text == violation.text)
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

/// Leaves out parts of a length as long as the rest is wrong, and then parts of half this length.
fn without_parts<'h>(
    mut operations: Vec<&'h Operation>,
    mut length: usize,
    is_wrong: &dyn Fn(&[&'h Operation]) -> bool,
) -> Vec<&'h Operation> {
    let mut tries = 0;
    loop {
        let mut at = 0;
        while at < operations.len() && tries < MOST_TRIES {
            tries += 1;
            let end = operations.len().min(at + length);
            let rest = [&operations[..at], &operations[end..]].concat();
            if is_wrong(&rest) {
                operations = rest;
            } else {
                at += length;
            }
        }
        if length == 1 || tries == MOST_TRIES {
            return operations;
        }
        length /= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        checks::{self, testing::Scene},
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
}
