//! `vvm storage check`: the check of a redb file that no node works with.

use std::{panic, process::ExitCode};

use istorage_redb::{Checked, RedbConfig};

use crate::{
    cli::{ServeArgs, StorageArgs},
    failure::Failure,
    print, serve,
    target::Target,
};

/// Runs the command.
pub(crate) fn run(args: StorageArgs) -> Result<ExitCode, Failure> {
    let config = file(args)?;
    // redb panics on damaged pages. The result says so in better words.
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let checked = istorage_redb::check(&config);
    panic::set_hook(hook);
    let checked = checked.map_err(|error| Failure::storage("the check failed", &error))?;
    print(&told(&config, &checked))?;
    if checked.is_whole() {
        return Ok(ExitCode::SUCCESS);
    }
    Err(Failure::unfinished("the storage file is damaged: restore it from a backup"))
}

/// The file that is meant.
fn file(StorageArgs { storage, config }: StorageArgs) -> Result<RedbConfig, Failure> {
    let target = match storage {
        Some(target) => target,
        None => {
            let config = serve::configuration(&ServeArgs { config, ..ServeArgs::default() })?;
            config.storage.to_target(&config.source)?
        }
    };
    match target {
        Target::Redb(config) => Ok(config),
        other => Err(Failure::usage(format!(
            "{other} has no file that could be checked here: only a redb file has. Use the tools of that database"
        ))),
    }
}

fn told(config: &RedbConfig, checked: &Checked) -> String {
    let Checked { keyspaces, rows, damages, more_damages } = checked;
    let file = config.path.display();
    let mut text = format!("{file}: {rows} rows in {keyspaces} keyspaces are whole\n");
    for damage in damages {
        text += &format!("damaged: {damage}\n");
    }
    if *more_damages > 0 {
        text += &format!("damaged: {more_damages} more\n");
    }
    text
}
