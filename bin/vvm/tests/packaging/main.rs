//! The files for installing and watching `vvm`: unit, package, container file, manual pages,
//! completions, alerts and dashboard. Tools that are not part of the project judge them. A trial
//! whose tool is missing is reported as ignored.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod command_line;
mod container;
mod deb;
#[allow(dead_code, reason = "this suite needs a part of it")]
#[path = "../support/node.rs"]
mod node;
mod unit;
mod watching;

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use libtest_mimic::{Arguments, Trial};
use tck::trial::is_long;

/// A trial: its name, the programs that it needs, and the trial.
type Row = (&'static str, &'static [&'static str], fn());

const TRIALS: &[Row] = &[
    ("the_unit_is_valid_and_hardened", &["systemd-analyze"], unit::valid),
    ("the_unit_is_not_restarted_where_a_restart_is_in_vain", &[], unit::exit_codes),
    ("the_package_is_built", &["dpkg-deb", "strip"], deb::built),
    (INSTALLED, &["dpkg-deb", "strip", "unshare", "setpriv"], deb::installed),
    ("the_container_file_names_what_exists", &[], container::sources),
    ("the_container_has_all_files_of_its_build", &[], container::complete),
    ("the_container_file_fits_the_program", &[], container::settings),
    ("a_container_with_tokens_is_healthy", &[], container::healthy),
    ("the_base_image_has_the_libraries_of_the_program", &["ldd", "objdump"], container::libraries),
    (BOOTED, &["dpkg-deb", "strip", "unshare", "timeout", "pivot_root"], deb::under_systemd),
    (CONTAINER, &[], container::built),
    ("each_command_has_a_manual_page", &[], command_line::pages),
    ("the_manual_pages_are_valid", &["mandoc"], command_line::valid_pages),
    ("the_manual_pages_are_rendered", &["mandoc"], command_line::rendered_pages),
    ("bash_completes_commands", &["bash"], command_line::bash),
    ("zsh_completes_commands", &["zsh"], command_line::zsh),
    ("fish_completes_commands", &["fish"], command_line::fish),
    ("the_alerts_are_valid_and_tested", &["promtool"], watching::rules),
    ("the_panels_are_valid", &["promtool"], watching::panels),
    ("names_are_found_in_expressions", &[], watching::reader),
    ("alerts_and_dashboard_name_metrics_of_a_node", &[], watching::names),
];

/// This trial also needs the right to mount.
const INSTALLED: &str = "the_package_is_installed_upgraded_removed_and_purged";

/// This trial also needs a kernel that lets systemd boot in namespaces.
const BOOTED: &str = "the_package_works_under_systemd";

/// This trial needs a builder that works, and takes as long as a release build.
const CONTAINER: &str = "the_container_is_built";

fn main() {
    let trials = TRIALS.iter().map(|(name, tools, trial)| {
        // A condition that takes time is tested only if the trial could run.
        let missing = tools.iter().any(|tool| !is_installed(tool))
            || (*name == INSTALLED && !deb::can_overlay())
            || (*name == BOOTED && !deb::can_boot())
            || (*name == CONTAINER && (!is_long() || container::builder().is_none()));
        let run = || {
            trial();
            Ok(())
        };
        Trial::test(*name, run).with_ignored_flag(missing)
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit();
}

fn is_installed(tool: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(tool).is_file())
}

/// Returns a path of the repository.
fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Returns a command of the binary.
fn vvm(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vvm"));
    command.args(arguments);
    command
}

/// Runs a command that must succeed, and returns what it printed to stdout.
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}\n{errors}", output.status);
    text
}
