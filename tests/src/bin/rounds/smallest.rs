//! The smallest part of a history that still breaks a promise.

use std::{collections::BTreeSet, io, path::Path, time::Duration};

use clock::{Clock, Instant};

use crate::{
    checks::{self, Check, Facts, Violation},
    history::{History, HistoryWriter, Line, Operation, Part, Request},
};

/// The parts of a history that are checked at most for each check, and the time for all checks. A
/// part of a long run takes a while.
const MOST_TRIES: usize = 2_000;
const MOST_TIME: Duration = Duration::from_secs(60);

/// A part of a history that breaks the promise of a check without the rest.
pub(crate) struct WrongPart<'h> {
    pub(crate) check: &'static str,
    pub(crate) operations: Vec<&'h Operation>,
    /// The lines of the final state, and the marks of what is whole in the history.
    pub(crate) end: Vec<Line>,
    history: &'h History,
    /// Why a smaller part may exist.
    pub(crate) cut: Option<String>,
}

impl<'h> WrongPart<'h> {
    /// Finds the smallest part for the first violation of each check.
    pub(crate) fn of_all(
        clock: &Clock,
        history: &'h History,
        violations: &[Violation],
    ) -> Vec<WrongPart<'h>> {
        let first = |check: &Check| violations.iter().find(|of| of.check == check.name);
        let broken = checks::ALL.iter().filter_map(|check| Some((check, first(check)?)));
        sharing(clock, broken.collect(), |(check, first), time| {
            Search::new(clock, time).part(check, first, history)
        })
    }

    /// Writes the part into a folder, as a history that can be checked again. What the part lacks
    /// must prove nothing there. So the file has all lines of a part that it marks as whole, all
    /// tries of its commands, and everything that its followers got.
    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        let mut file = HistoryWriter::create(&folder.join(format!("{}.jsonl", self.check)))?;
        for operation in self.completed_operations() {
            file.write(&Line::Operation(operation.clone()))?;
        }
        self.completed_end().iter().try_for_each(|line| file.write(line))?;
        file.end()
    }

    fn marks(&self, part: Part) -> bool {
        self.end.iter().any(|line| matches!(line, Line::Whole { part: whole } if *whole == part))
    }

    fn completed_operations(&self) -> impl Iterator<Item = &'h Operation> {
        let shown: BTreeSet<u64> = self.operations.iter().map(|of| of.number).collect();
        let series: BTreeSet<Series<'h>> =
            self.operations.iter().filter_map(|of| Series::of(of)).collect();
        self.history.operations.iter().filter(move |operation| {
            shown.contains(&operation.number)
                || Series::of(operation).is_some_and(|of| series.contains(&of))
                || self.marks(Part::Operations(operation.ws))
        })
    }

    fn completed_end(&self) -> Vec<Line> {
        let is_marked = |line: &Line| line.part().is_some_and(|part| self.marks(part));
        let shown = self.end.iter().filter(|line| !is_marked(line)).cloned();
        // A mark comes after all lines of its part.
        let mut lines = self.history.end.lines();
        lines.retain(is_marked);
        lines.extend(shown);
        lines
    }
}

/// Operations that say less if some of them are missing: the tries of a command or of a batch, and
/// the reads of a follower.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Series<'h> {
    Command(&'h str),
    Follower(u64, u32),
}

impl<'h> Series<'h> {
    fn of(operation: &'h Operation) -> Option<Series<'h>> {
        match &operation.request {
            Request::Write { id, .. } => Some(Series::Command(id)),
            Request::Follow { follower, .. } | Request::FollowEnd { follower, .. } => {
                Some(Series::Follower(operation.ws, *follower))
            }
            _ => None,
        }
    }
}

/// Searches one after another. The searches share the time: what one leaves is for the others.
fn sharing<I, T>(clock: &Clock, items: Vec<I>, search: impl Fn(I, Duration) -> T) -> Vec<T> {
    let (end, count) = (clock.now() + MOST_TIME, items.len());
    let searches = items.into_iter().enumerate().map(|(place, item)| {
        let left = u32::try_from(count - place).unwrap_or(u32::MAX);
        search(item, end.saturating_since(clock.now()) / left)
    });
    searches.collect()
}

/// A search for the smallest part.
struct Search {
    clock: Clock,
    begin: Instant,
    time: Duration,
    tries: usize,
    /// Why the search ended before all parts were tried.
    cut: Option<String>,
}

impl Search {
    fn new(clock: &Clock, time: Duration) -> Search {
        Search { clock: clock.clone(), begin: clock.now(), time, tries: 0, cut: None }
    }

    /// Returns the smallest part of a history that has a violation. The operations come first,
    /// because they tell the story.
    fn part<'h>(
        mut self,
        check: &Check,
        violation: &Violation,
        history: &'h History,
    ) -> WrongPart<'h> {
        let operations = self.operations(check, violation, history);
        let end = self.end_lines(check, violation, history, &operations);
        WrongPart { check: check.name, operations, end, history, cut: self.cut }
    }

    /// Whether another part may be tried.
    fn may_try(&mut self) -> bool {
        let took = self.clock.now().saturating_since(self.begin);
        if self.tries >= MOST_TRIES || took >= self.time {
            let tries = self.tries;
            self.cut = Some(format!(
                "(a smaller part may exist: the search ended after {tries} tries and {took:.0?})"
            ));
            return false;
        }
        self.tries += 1;
        true
    }

    /// Returns operations that break the promise of a check without any other ones. The final state
    /// stays as it is. If the violation is in the final state alone, there are none.
    fn operations<'h>(
        &mut self,
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
            return self.without_parts(of_violation, 1, &is_wrong);
        }
        let half = history.operations.len() / 2;
        self.without_parts(history.operations.iter().collect(), half.max(1), &is_wrong)
    }

    /// Returns the lines of the final state that break the promise of a check with these operations
    /// and without any other lines.
    fn end_lines(
        &mut self,
        check: &Check,
        violation: &Violation,
        history: &History,
        operations: &[&Operation],
    ) -> Vec<Line> {
        let lines = history.end.lines();
        let is_wrong = |lines: &[&Line]| {
            let mut part = History::default();
            lines.iter().for_each(|line| part.add((*line).clone()));
            let facts = Facts::of_part(operations.to_vec(), &part.end);
            check.run_whole(&facts).iter().any(|found| found.text == violation.text)
        };
        let all: Vec<&Line> = lines.iter().collect();
        if !is_wrong(&all) {
            return Vec::new();
        }
        // The search would need many tries to leave out the other workspaces.
        let is_near =
            |line: &Line| operations.iter().any(|of| line.ws().is_none_or(|ws| ws == of.ws));
        let near: Vec<&Line> = lines.iter().filter(|line| is_near(line)).collect();
        let lines = if is_wrong(&near) { near } else { all };
        let half = (lines.len() / 2).max(1);
        self.without_parts(lines, half, &is_wrong).into_iter().cloned().collect()
    }

    /// Leaves out parts of a length as long as the rest is wrong, and then parts of half this
    /// length.
    fn without_parts<'h, T>(
        &mut self,
        mut items: Vec<&'h T>,
        mut length: usize,
        is_wrong: &dyn Fn(&[&'h T]) -> bool,
    ) -> Vec<&'h T> {
        loop {
            let mut at = 0;
            while at < items.len() {
                if !self.may_try() {
                    return items;
                }
                let end = items.len().min(at + length);
                let rest = [&items[..at], &items[end..]].concat();
                if is_wrong(&rest) {
                    items = rest;
                } else {
                    at += length;
                }
            }
            if length == 1 {
                return items;
            }
            length /= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use clock::ManualClock;

    use super::*;
    use crate::{
        checks::testing::{FIRST_ID, PARTITION, Scene, WS, article, refusal},
        history::{self, Outcome},
    };

    fn search() -> Search {
        Search::new(&ManualClock::new(1).clock(), MOST_TIME)
    }

    fn check_of(violation: &Violation) -> &'static Check {
        checks::ALL.iter().find(|check| check.name == violation.check).unwrap()
    }

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
        let check = check_of(violation);
        let smallest = search().operations(check, violation, &scene.history);
        let numbers: Vec<u64> = smallest.iter().map(|operation| operation.number).collect();
        assert_eq!(numbers, violation.operations);
    }

    /// The file is the story of a defect that a run found.
    #[test]
    fn the_smallest_part_is_written_as_a_history_with_the_same_violation() {
        let mut scene = Scene::new();
        let id = scene.create("a");
        let old = scene.record(id);
        scene.update("b", id, None);
        for other in 0..100 {
            scene.create(&format!("other {other}"));
        }
        scene.read_as(id, old, false);
        let violations = checks::run_all(&scene.history);
        let parts = WrongPart::of_all(&Clock::system(), &scene.history, &violations);
        let [part] = &parts[..] else { panic!("{violations:?}") };
        let folder = tempfile::tempdir().unwrap();
        part.write(folder.path()).unwrap();
        let small = history::read(&folder.path().join("documents.jsonl")).unwrap();
        assert!(small.end.lines().len() < 5, "{:?}", small.end);
        assert_eq!(small.operations.len(), part.operations.len());
        let again = checks::run_all(&small);
        assert!(again.contains(&violations[0]), "{again:?}");
    }

    /// Writes the part for a violation, and reads the file again.
    fn written(scene: &Scene, check: &str) -> (History, Vec<Line>) {
        let violations = checks::run_all(&scene.history);
        let parts = WrongPart::of_all(&Clock::system(), &scene.history, &violations);
        let part = parts.iter().find(|part| part.check == check).unwrap();
        let folder = tempfile::tempdir().unwrap();
        part.write(folder.path()).unwrap();
        let small = history::read(&folder.path().join(format!("{check}.jsonl"))).unwrap();
        let first = violations.iter().find(|of| of.check == check).unwrap();
        let again = checks::run_all(&small);
        assert!(again.contains(first), "{again:?}");
        let is_known = |of: &&Violation| violations.iter().any(|known| known.text == of.text);
        assert!(again.iter().all(|of| is_known(&of)), "{again:?}");
        (small, part.end.clone())
    }

    #[test]
    fn a_part_that_lacks_an_event_keeps_the_mark_and_all_of_the_log() {
        let mut scene = Scene::new();
        (0..50).for_each(|name| _ = scene.create(&format!("{name}")));
        scene.create("lost");
        scene.log().pop();
        scene.partition().pop();
        scene.history.end.records.pop_last();
        scene.history.end.listed.pop_last();
        let (small, shown) = written(&scene, "answers");
        let mark = Line::Whole { part: Part::Log(WS) };
        assert_eq!(shown, [mark], "the report shows the mark alone");
        assert_eq!(small.end.whole.iter().collect::<Vec<_>>(), [&Part::Log(WS)]);
        assert_eq!(small.end.logs[&WS], *scene.log());
        assert_eq!(small.operations.len(), 1);
        assert!(small.end.records.is_empty() && small.end.partitions.is_empty());
    }

    #[test]
    fn a_part_with_a_record_that_is_missing_keeps_the_mark_and_all_records() {
        let mut scene = Scene::new();
        (0..9).for_each(|name| _ = scene.create(&format!("{name}")));
        scene.history.end.records.pop_first();
        let (small, _) = written(&scene, "records");
        assert_eq!(small.end.whole.iter().collect::<Vec<_>>(), [&Part::Records(WS)]);
        assert_eq!(small.end.records, scene.history.end.records);
    }

    #[test]
    fn a_part_has_all_tries_of_its_commands() {
        let mut scene = Scene::new();
        scene.create_with_key("a");
        let first = scene.history.operations[0].outcome.clone();
        scene.history.operations[0].outcome = Outcome::Unknown { why: "cut".into() };
        scene.create("other");
        scene.again(0, first.clone());
        scene.again(0, first);
        scene.again(0, refusal(503, "stopping"));
        let (small, _) = written(&scene, "keys");
        let numbers: Vec<u64> = small.operations.iter().map(|of| of.number).collect();
        assert_eq!(numbers, [0, 2, 3, 4]);
    }

    #[test]
    fn a_part_with_an_event_that_nobody_sent_keeps_the_operations_of_the_workspace() {
        let mut scene = Scene::new();
        scene.create("a");
        scene.refused("b");
        scene.history.operations[1].ws += 1;
        scene.event_of("unsent", article(FIRST_ID + 1, "c"));
        let (small, _) = written(&scene, "answers");
        assert!(small.end.whole.contains(&Part::Operations(WS)));
        assert_eq!(small.operations.len(), 1, "those of the other workspace are left out");
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
        let operations: Vec<&Operation> = scene.history.operations.iter().collect();
        let mut search = search();
        let smallest = search.without_parts(operations, 25, &needed);
        let numbers: Vec<u64> = smallest.iter().map(|operation| operation.number).collect();
        assert_eq!(numbers, [7, 30]);
        assert_eq!(search.cut, None);
    }

    /// The parts that were left out until then stay out.
    #[test]
    fn a_search_ends_when_its_time_is_over() {
        let items: Vec<u64> = (0..100).collect();
        for (seconds, most) in [(0, 1), (7, 100)] {
            let manual = ManualClock::new(1);
            let mut search = Search::new(&manual.clock(), MOST_TIME);
            let slow = |items: &[&u64]| {
                manual.advance(Duration::from_secs(seconds));
                items.iter().any(|item| **item == 7)
            };
            let left = search.without_parts(items.iter().collect(), 50, &slow);
            let cut = "(a smaller part may exist: the search ended after 9 tries and 63s)";
            assert_eq!(search.cut.as_deref(), (seconds > 0).then_some(cut));
            assert!(left.len() <= most && left.contains(&&7), "{left:?}");
            assert_eq!(left.len() > 1, seconds > 0, "{left:?}");
        }
    }

    /// Each check had the whole time, so the report of many broken checks took many minutes.
    #[test]
    fn all_searches_share_the_time() {
        let times = |used: [u64; 3]| {
            let manual = ManualClock::new(1);
            sharing(&manual.clock(), used.to_vec(), |used, time| {
                manual.advance(time.min(Duration::from_secs(used)));
                time.as_secs()
            })
        };
        assert_eq!(times([100; 3]), [20; 3]);
        assert_eq!(times([0, 100, 100]), [20, 30, 30]);
        assert_eq!(times([100, 0, 100]), [20, 20, 40]);
    }

    #[test]
    fn a_search_ends_after_the_most_tries() {
        let items: Vec<usize> = (0..3 * MOST_TRIES).collect();
        let mut search = search();
        let all = search.without_parts(items.iter().collect(), 1, &|part| part.len() > items.len());
        assert_eq!(all.len(), items.len());
        assert!(search.cut.is_some_and(|cut| cut.contains("after 2000 tries")));
    }

    #[test]
    fn a_hole_in_a_log_is_shown_by_the_lines_around_it() {
        let mut scene = Scene::new();
        for name in 0..300 {
            scene.create(&format!("{name}"));
        }
        scene.log().remove(250);
        scene.partition().remove(260);
        let violations = checks::run_all(&scene.history);
        let mut shown = Vec::new();
        for violation in violations.iter().filter(|of| of.text.contains("after offset")) {
            let check = check_of(violation);
            assert!(search().operations(check, violation, &scene.history).is_empty());
            for line in search().end_lines(check, violation, &scene.history, &[]) {
                shown.push(match line {
                    Line::LogEvent { event, .. } => ("workspace", event.wlog),
                    Line::PartitionEvent { event, .. } => ("partition", event.version.offset),
                    // A hole is one only in a log that is whole.
                    Line::Whole { part: Part::Log(WS) } => ("mark", 0),
                    Line::Whole { part: Part::Partition(PARTITION) } => ("mark", 1),
                    other => panic!("{other:?}"),
                });
            }
        }
        let around = [
            [("partition", 260), ("partition", 262), ("mark", 1)],
            [("workspace", 250), ("workspace", 252), ("mark", 0)],
        ];
        assert_eq!(shown, around.concat());
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
        let check = check_of(violation);
        assert!(search().operations(check, violation, &scene.history).is_empty());
        let lines = search().end_lines(check, violation, &scene.history, &[]);
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
        assert_eq!(again.end.whole, scene.history.end.whole);
    }
}
