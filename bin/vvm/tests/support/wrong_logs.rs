//! Wrong logs, which prove the check of what clients saw.

use std::time::Instant;

use super::load::AcknowledgedCommands;

/// The suites of nodes judge what clients saw by this comparison. It must reject each of these.
#[test]
fn wrong_logs_are_found() {
    let done = ["1-a-0", "1-a-1", "2-a-0"];
    let done = done.into_iter().zip([1, 3, 1]).map(|(name, at)| (name.into(), Instant::now(), at));
    let known = AcknowledgedCommands {
        done: done.collect(),
        open: vec!["1-a-2".into(), "1-a-3".into()],
        ..AcknowledgedCommands::default()
    };
    let wrong_with = |first: &[&str], second: &[&str]| {
        let log = |names: &[&str]| -> Vec<String> {
            names.iter().map(|name| (*name).to_owned()).collect()
        };
        known.wrong_with(&[(1, log(first)), (2, log(second))].into())
    };
    // A command with an unknown outcome is there or not.
    assert_eq!(wrong_with(&["1-a-0", "1-a-2", "1-a-1"], &["2-a-0"]), None);
    for (first, second, expected) in [
        (&["1-a-0", "1-a-2"][..], &["2-a-0"][..], "1-a-1 was acknowledged, and is missing"),
        (&["1-a-0", "1-a-2", "1-a-1"], &[], "2-a-0 was acknowledged, and is missing"),
        (&["1-a-0", "1-a-2", "2-a-0"], &["1-a-1"], "1-a-1 was acknowledged, and is missing"),
        (&["1-a-0", "1-a-1", "1-a-2"], &["2-a-0"], "1-a-1 is at 2, and 3 was acknowledged"),
        (&["1-a-0", "1-a-2", "1-a-1", "1-a-1"], &["2-a-0"], "1-a-1 was done twice in workspace 1"),
        (&["1-a-0", "1-a-2", "1-a-1", "1-a-2"], &["2-a-0"], "1-a-2 was done twice in workspace 1"),
    ] {
        assert_eq!(wrong_with(first, second).as_deref(), Some(expected));
    }
}
