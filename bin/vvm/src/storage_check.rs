//! `vvm storage check`: checks a redb file that no node uses.

use std::{panic, process::ExitCode};

use istorage_redb::{CheckReport, RedbConfig};

use crate::{
    cli::{ServeArgs, StorageArgs},
    command_error::CommandError,
    print, serve,
    storage_target::StorageTarget,
};

/// Runs the command.
pub(crate) fn run(args: StorageArgs) -> Result<ExitCode, CommandError> {
    let config = file(args)?;
    // redb panics on damaged pages. The message of the panic is hidden, because the result
    // describes the damage better.
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let report = istorage_redb::check(&config);
    panic::set_hook(hook);
    let report = report.map_err(|error| CommandError::storage("the check failed", &error))?;
    print(&report_text(&config, &report))?;
    if report.is_intact() {
        return Ok(ExitCode::SUCCESS);
    }
    Err(CommandError::unfinished("the storage file is damaged: restore it from a backup"))
}

/// Returns the file that the command line or the configuration names.
pub(crate) fn file(
    StorageArgs { storage, config }: StorageArgs,
) -> Result<RedbConfig, CommandError> {
    let target = match storage {
        Some(target) => target,
        None => {
            let config = serve::configuration(&ServeArgs { config, ..ServeArgs::default() })?;
            config.storage.to_target(&config.source)?
        }
    };
    match target {
        StorageTarget::Redb(config) => Ok(config),
        StorageTarget::Mem => Err(CommandError::usage(
            "a storage in memory has no file, and ends with its node: the command works on redb files only",
        )),
        other => Err(CommandError::usage(format!(
            "{other} is not redb: the command works on redb files only; use the tools of that database"
        ))),
    }
}

fn report_text(config: &RedbConfig, report: &CheckReport) -> String {
    let CheckReport { keyspaces, rows, damage, more_damage } = report;
    let file = config.path.display();
    let mut text = format!("{file}: {rows} rows in {keyspaces} keyspaces are whole\n");
    for finding in damage {
        text += &format!("damaged: {finding}\n");
    }
    if *more_damage > 0 {
        text += &format!("damaged: {more_damage} more\n");
    }
    text
}
