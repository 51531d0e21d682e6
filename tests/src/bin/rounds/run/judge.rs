//! The verdict on a history, by the run that made it or by a later check.

use std::{fs, path::Path};

use clock::Clock;
use vvm_tests::bench::BenchError;

use crate::{
    bounds::Bounds,
    checks,
    faults::FaultKind,
    history::{self, History},
    leaders::Watched,
    page,
    recorder::Recording,
    report,
    smallest::WrongPart,
};

/// What a run has left.
pub(super) struct Ended<'a> {
    pub(super) folder: &'a Path,
    pub(super) seed: u64,
    /// The kinds of faults that the run could have.
    pub(super) kinds: &'a [FaultKind],
    pub(super) recording: &'a Recording,
    pub(super) bounds: &'a Bounds,
    pub(super) watched: &'a Watched,
}

/// Checks what was recorded, and writes the results. Returns whether all promises were kept.
pub(super) fn judge(
    clock: &Clock,
    ended: &Ended<'_>,
    print: &mut dyn FnMut(&str),
) -> Result<bool, BenchError> {
    let Ended { folder, seed, kinds, recording, bounds, watched } = *ended;
    let history = &recording.history;
    let measured = report::measured_text(seed, history, bounds, kinds);
    let (file, mut report, mut written) = (folder.join("report.txt"), String::new(), Ok(()));
    let (is_kept, parts) = verdict(clock, history, measured, &mut |text| {
        print(text);
        report += text;
        // The search may be interrupted. Then the report still has the violations.
        let again = fs::write(&file, &report);
        if written.is_ok() {
            written = again;
        }
    });
    written?;
    parts.iter().try_for_each(|part| part.write(folder))?;
    let html = page::html(seed, history, &recording.notes, &watched.owners, &report);
    fs::write(folder.join("timeline.html"), html)?;
    Ok(is_kept)
}

/// Checks the history of an earlier run again. Returns whether all promises were kept.
pub(crate) fn judge_again(
    clock: &Clock,
    file: &Path,
    print: &mut dyn FnMut(&str),
) -> Result<bool, BenchError> {
    let history = history::read(file)?;
    Ok(verdict(clock, &history, String::new(), print).0)
}

/// Checks a history. Prints the violations at once, and then the smallest parts that show them: the
/// search for these parts takes a while. `before` is printed before the violations. Returns whether
/// all promises were kept, and the parts.
fn verdict<'h>(
    clock: &Clock,
    history: &'h History,
    before: String,
    print: &mut dyn FnMut(&str),
) -> (bool, Vec<WrongPart<'h>>) {
    let violations = checks::run_all(history);
    let is_empty = history.operations.is_empty() && history.end.lines().is_empty();
    let empty = if is_empty { "BROKEN: the history is empty, so it proves nothing\n" } else { "" };
    let limits = checks::limits(history).map(|limits| format!("{limits}\n")).unwrap_or_default();
    print(&(before + empty + &report::violations_text(history, &violations) + &limits));
    let parts = WrongPart::of_all(clock, history, &violations);
    print(&report::parts_text(&parts));
    (violations.is_empty() && history.broken.is_empty() && !is_empty, parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        checks::testing::Scene,
        history::{Line, Part},
        recorder::Recorder,
    };

    /// The lines of a history. A read in it may be wrong.
    fn lines(is_wrong: bool) -> Vec<Line> {
        let mut scene = Scene::new();
        let id = scene.create("a");
        let old = scene.record(id);
        scene.update("b", id, None);
        if is_wrong {
            scene.read_as(id, old, false);
        }
        let operations = scene.history.operations.iter().cloned().map(Line::Operation);
        operations.chain(scene.history.end.lines()).collect()
    }

    /// The verdict of a run on these lines and that of a later check, with everything that was
    /// printed.
    fn verdicts(lines: Vec<Line>) -> [(bool, Vec<String>); 2] {
        let (folder, clock) = (tempfile::tempdir().unwrap(), Clock::system());
        let folder = folder.path();
        let file = folder.join("history.jsonl");
        let first = Line::Run { seed: 1, settings: String::new() };
        let recorder = Recorder::create(&file, clock.clone(), &first).unwrap();
        lines.into_iter().for_each(|line| recorder.add(line));
        let recording = &recorder.end().unwrap();
        let (bounds, watched) = (&Bounds::default(), &Watched::default());
        let ended = Ended { folder, seed: 1, kinds: &[], recording, bounds, watched };
        let (mut by_run, mut by_check) = (Vec::new(), Vec::new());
        let run = judge(&clock, &ended, &mut |text| by_run.push(text.to_owned())).unwrap();
        let check = judge_again(&clock, &file, &mut |text| by_check.push(text.to_owned())).unwrap();
        assert_eq!(fs::read_to_string(folder.join("report.txt")).unwrap(), by_run.concat());
        [(run, by_run), (check, by_check)]
    }

    #[test]
    fn a_later_check_has_the_verdict_of_the_run() {
        let broken = Line::Broken { text: "node 1 has 600 MiB of memory".into() };
        let cut = Line::Unreadable { part: Part::All, why: "no node started".into() };
        for others in [vec![], vec![broken.clone()], vec![cut.clone()], vec![cut, broken]] {
            for is_wrong in [false, true] {
                let is_right = others.is_empty() && !is_wrong;
                let [(run, by_run), (check, by_check)] =
                    verdicts(lines(is_wrong).into_iter().chain(others.clone()).collect());
                assert_eq!((run, check), (is_right, is_right), "{by_run:?}");
                assert!(by_run.concat().ends_with(&by_check.concat()), "{by_run:?} {by_check:?}");
                let found = by_check.concat().matches("BROKEN").count();
                assert_eq!(found, others.len() + usize::from(is_wrong), "{by_check:?}");
            }
        }
    }

    /// All promises were kept in a history of nothing.
    #[test]
    fn an_empty_history_proves_nothing() {
        for (is_kept, printed) in verdicts(Vec::new()) {
            assert!(!is_kept);
            assert_eq!(printed.concat().matches("BROKEN: the history is empty").count(), 1);
        }
    }

    /// A person saw the violations only after the search for the smallest parts.
    #[test]
    fn violations_are_printed_before_the_parts_that_show_them() {
        let [(_, by_run), (_, by_check)] = verdicts(lines(true));
        for printed in [by_run, by_check] {
            let [found, parts] = &printed[..] else { panic!("{printed:?}") };
            assert!(found.contains("BROKEN: the reads and changes of each document"), "{found}");
            assert!(!found.contains("client 1"), "{found}");
            assert!(parts.contains("(documents):") && parts.contains("client 1"), "{parts}");
        }
    }
}
