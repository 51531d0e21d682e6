//! `vvm completions` and `vvm man`: files for shells and for `man`, made from the command line.

use std::{fs, path::Path, process::ExitCode};

use clap::CommandFactory;
use clap_complete::Shell;
use ctl::{CommandError, terminal::print};

use crate::cli::Cli;

/// Prints the completions of a shell.
pub(crate) fn completions(shell: Shell) -> Result<ExitCode, CommandError> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "vvm", &mut text);
    print(&String::from_utf8_lossy(&text))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a manual page for each command into a folder.
pub(crate) fn pages(folder: &Path) -> Result<ExitCode, CommandError> {
    let written =
        fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(Cli::command(), folder));
    written.map_err(|error| {
        let folder = folder.display();
        CommandError::unfinished(format!("cannot write the pages to {folder}: {error}"))
    })?;
    Ok(ExitCode::SUCCESS)
}
