//! What a run prints.

use std::{collections::BTreeMap, fmt::Write, time::Duration};

use crate::{
    bounds::Bounds,
    checks::{self, Violation},
    faults::FaultKind,
    history::{History, Operation, Outcome},
    smallest::WrongPart,
};

/// The operations of a violation that are printed.
const MOST_OPERATIONS: usize = 12;

/// Returns what a run did and measured. `kinds` are the faults that it could have.
pub(crate) fn measured_text(
    seed: u64,
    history: &History,
    bounds: &Bounds,
    kinds: &[FaultKind],
) -> String {
    let mut text = format!(
        "\nseed {seed}: {} rounds, {} operations, {} events\n",
        bounds.rounds.len(),
        history.operations.len(),
        history.end.logs.values().map(Vec::len).sum::<usize>()
    );
    for (outcome, count) in outcomes(history) {
        line(&mut text, format!("{count:9} {outcome}"));
    }
    line(
        &mut text,
        format!("memory at most {} MiB, open files at most {}", bounds.memory >> 20, bounds.files),
    );
    add_times(&mut text, "all works again after", &bounds.ready_after);
    add_times(&mut text, "longest wait for a command of a workspace", &bounds.gaps);
    let without = bounds.without_effect(kinds);
    if !without.is_empty() {
        let names: Vec<String> = without.iter().map(ToString::to_string).collect();
        line(&mut text, format!("these faults had no effect: {}", names.join(", ")));
    }
    text
}

/// Adds times by the kinds of faults, if there are any.
fn add_times(text: &mut String, what: &str, times: &BTreeMap<String, Vec<Duration>>) {
    if !times.is_empty() {
        line(text, format!("{what} (median, longest):"));
    }
    for (faults, times) in times {
        let (median, longest) = spread(times);
        line(text, format!("{median:>6.1?} {longest:>6.1?} {:4} times {faults}", times.len()));
    }
}

fn line(text: &mut String, line: String) {
    // Writing into a string does not fail.
    let _ = writeln!(text, "{line}");
}

fn outcomes(history: &History) -> BTreeMap<String, usize> {
    let mut outcomes = BTreeMap::new();
    for operation in &history.operations {
        let name = match &operation.outcome {
            Outcome::Written(_) => "commands done".to_owned(),
            Outcome::Refused { status, code } => format!("refused {status} {code}"),
            Outcome::Unknown { .. } => "unknown".to_owned(),
            Outcome::Wrong { .. } => "wrong answers".to_owned(),
            Outcome::Document { .. } => "documents read".to_owned(),
            Outcome::Listed { .. } => "lists".to_owned(),
            Outcome::Events { .. } => "parts of logs".to_owned(),
            Outcome::Drawn { .. } => "draws of numbers".to_owned(),
        };
        *outcomes.entry(name).or_default() += 1;
    }
    outcomes
}

fn spread(times: &[Duration]) -> (Duration, Duration) {
    let mut times = times.to_vec();
    times.sort_unstable();
    let longest = times.last().copied().unwrap_or_default();
    (times.get(times.len() / 2).copied().unwrap_or_default(), longest)
}

/// What the run itself found broken, and the violations of each check.
pub(crate) fn violations_text(history: &History, violations: &[Violation]) -> String {
    let mut text = String::new();
    for broken in &history.broken {
        line(&mut text, format!("BROKEN: {broken}"));
    }
    for check in &checks::ALL {
        let mut found = violations.iter().filter(|of| of.check == check.name).peekable();
        let verdict = if found.peek().is_none() { "kept:  " } else { "BROKEN:" };
        line(&mut text, format!("{verdict} {} ({})", check.promise, check.name));
        found.for_each(|violation| line(&mut text, format!("        {violation}")));
    }
    text
}

/// The smallest parts of the history that show the first violations.
pub(crate) fn parts_text(parts: &[WrongPart<'_>]) -> String {
    let mut text = String::new();
    for part in parts {
        line(
            &mut text,
            format!("the smallest part that shows the first violation ({}):", part.check),
        );
        add_part(&mut text, part);
    }
    text
}

/// Adds the operations of a part, or the lines of the final state if it has no operations.
fn add_part(text: &mut String, part: &WrongPart<'_>) {
    for operation in part.operations.iter().take(MOST_OPERATIONS) {
        line(text, format!("        {}", operation_text(operation)));
    }
    let mut count = part.operations.len();
    if part.operations.is_empty() {
        for of in part.end.iter().take(MOST_OPERATIONS) {
            line(text, format!("        {of:?}").chars().take(600).collect());
        }
        count = part.end.len();
    }
    if count > MOST_OPERATIONS {
        line(text, format!("        and {} more", count - MOST_OPERATIONS));
    }
    if let Some(cut) = &part.cut {
        line(text, format!("        {cut}"));
    }
}

fn operation_text(operation: &Operation) -> String {
    let Operation { number, client, begin, end, ws, request, outcome, .. } = operation;
    let seconds = |micros: &u64| *micros as f64 / 1e6;
    let outcome = format!("{outcome:?}");
    let outcome: String = outcome.chars().take(400).collect();
    format!(
        "{number}: client {client}, {:.6} to {:.6} s, workspace {ws}: {request:?}: {outcome}",
        seconds(begin),
        seconds(end)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::Scene;

    #[test]
    fn what_the_run_itself_found_broken_is_printed() {
        let mut scene = Scene::new();
        scene.history.broken.push("node 1 has 600 MiB of memory".into());
        let text = violations_text(&scene.history, &[]);
        assert_eq!(text.lines().next(), Some("BROKEN: node 1 has 600 MiB of memory"));
        assert_eq!(text.matches("BROKEN").count(), 1);
    }

    #[test]
    fn faults_without_an_effect_are_named() {
        let text = |kinds: &[FaultKind]| {
            measured_text(1, &Scene::new().history, &Bounds::default(), kinds)
        };
        assert!(!text(&[]).contains("no effect"));
        let both = text(&[FaultKind::Kill, FaultKind::FullDisk]);
        assert!(both.ends_with("these faults had no effect: kill, full_disk\n"), "{both}");
    }
}
