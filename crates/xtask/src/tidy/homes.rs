//! The homes of the methods that `clippy.toml` forbids: only these files may switch the lint off.

use super::SourceFile;

/// Files, and folders with a slash at their end. Each may read time or randomness, spawn, or end
/// the process.
const HOMES: &[&str] = &[
    // The only reader of time and randomness.
    "crates/clock/src/system.rs",
    // The task that renews a lease, and the thread that ends the process.
    "crates/ielections/src/renewal.rs",
    // The write of the lock file, beside the wait for it.
    "crates/ielections/src/runner.rs",
    "crates/ielections/src/killer.rs",
    // The task that stores numbers.
    "crates/isequencer/src/sequencer.rs",
    // The task of a partition.
    "crates/processor/src/partition.rs",
    // The tasks of a fast series.
    "crates/docnumbers/src/fast/shared.rs",
    // The task of a node, and the tasks of its services.
    "crates/vvm/src/launch.rs",
    "crates/vvm/src/service.rs",
    // The end of the process.
    "bin/vvm/src/serve/killer.rs",
    // The task that proves that the runtime of requests is alive, and the variables of the
    // supervisor.
    "bin/vvm/src/serve/supervisor.rs",
    // The variable with the filter of the log, and the thread that writes lines.
    "bin/vvm/src/logs.rs",
    "crates/ctl/src/terminal/stderr.rs",
    // The connection of a client.
    "crates/ctl/src/client/node_client.rs",
    // The thread that writes, and the threads that read.
    "crates/istorage-redb/src/engine.rs",
    // The thread that renders metrics.
    "crates/http-admin/src/shared_renderer.rs",
    // The tasks of trials, and the variable that asks for long rounds.
    "crates/tck/src/trial/tasks.rs",
    "crates/tck/src/trial/long.rs",
    "crates/xtask/src/",
    "tests/",
];

/// The attributes that would switch a ban off. Each word is broken so that this file does not
/// contain it.
const SWITCHES: &[&str] = &[
    concat!("clippy::", "disallowed_methods"),
    concat!("clippy::", "disallowed_types"),
    concat!("allow(clippy::", "all)"),
    concat!("allow(clippy::", "style)"),
    concat!("allow(", "warnings)"),
];

/// Returns the lines outside of the homes that switch a ban off. Tests may switch bans off: they
/// come after `#[cfg(test)]` at the end of a file, are in files of their own, or are named by
/// `cfg_attr(test, …)`.
pub(super) fn check(files: &[SourceFile]) -> Vec<String> {
    let outside =
        files.iter().filter(|file| file.path.ends_with(".rs") && !is_home_or_test(&file.path));
    outside.flat_map(check_file).collect()
}

fn is_home_or_test(path: &str) -> bool {
    let is_home = |home: &str| match home.ends_with('/') {
        true => path.starts_with(home),
        false => path == home,
    };
    HOMES.iter().any(|home| is_home(home))
        || path.ends_with("/tests.rs")
        || path.contains("/tests/")
}

fn check_file(file: &SourceFile) -> Vec<String> {
    let lines = file.text.lines().enumerate().take_while(|(_, line)| line.trim() != "#[cfg(test)]");
    lines
        .filter(|(_, line)| !line.contains("cfg_attr(test,"))
        .filter(|(_, line)| SWITCHES.iter().any(|switch| line.contains(switch)))
        .map(|(i, _)| {
            format!(
                "{}:{}: this file must not switch off a ban: tidy/homes.rs lists the files that may",
                file.path,
                i + 1
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violations(path: &str, text: &str) -> usize {
        check(&[SourceFile { path: path.to_owned(), text: text.to_owned() }]).len()
    }

    #[test]
    fn a_ban_is_switched_off_only_at_home() {
        let switch = format!("//!\n#[expect({}, reason = \"\")]\n", SWITCHES[0]);
        assert_eq!(violations("crates/istorage/src/lib.rs", &switch), 1);
        assert_eq!(violations("bin/vvm/src/cli.rs", &switch), 1);
        assert_eq!(violations("crates/clock/src/system.rs", &switch), 0);
        assert_eq!(violations("tests/floors/main.rs", &switch), 0);
        assert_eq!(violations("crates/istorage/src/lib.rs", &format!("#![{}]", SWITCHES[2])), 1);
    }

    #[test]
    fn tests_may_do_what_the_code_may_not() {
        let switch = format!("#[expect({}, reason = \"\")]\n", SWITCHES[0]);
        assert_eq!(
            violations("crates/a/src/x.rs", &format!("#[cfg(test)]\nmod tests {{\n{switch}}}")),
            0
        );
        assert_eq!(
            violations("crates/a/src/x.rs", &format!("{switch}#[cfg(test)]\nmod tests {{}}")),
            1
        );
        assert_eq!(violations("crates/a/src/x/tests.rs", &switch), 0);
        let attribute = format!("#![cfg_attr(test, allow({}))]", SWITCHES[0]);
        assert_eq!(violations("crates/a/src/lib.rs", &attribute), 0);
    }
}
