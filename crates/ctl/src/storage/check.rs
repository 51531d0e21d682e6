//! `vvm storage check`: checks a redb file that no node uses.

use std::process::ExitCode;

use istorage_redb::{CheckReport, RedbConfig};

use crate::{CommandError, NodeConfiguration, StorageArgs, backup::quietly, terminal::print};

pub(crate) fn run(args: StorageArgs, node: NodeConfiguration) -> Result<ExitCode, CommandError> {
    let config = args.redb_file(node)?;
    let report = quietly(|| istorage_redb::check(&config));
    let report = report.map_err(|error| CommandError::storage("the check failed", &error))?;
    print(&report_text(&config, &report))?;
    if report.is_intact() {
        return Ok(ExitCode::SUCCESS);
    }
    Err(CommandError::unfinished("the storage file is damaged: restore it from a backup"))
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
