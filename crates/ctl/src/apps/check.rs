//! `vvm apps check`: the records that break the rules of their tables.

use std::{path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use base::with_causes;
use clap::Args;
use clock::Clock;
use eventlog::{BrokenRule, Reader, Schema, StoredRecord};
use futures::TryStreamExt;
use sysvvm::{AppName, System};

use crate::{
    CommandError, NodeConfiguration,
    named_storage::{NamedStorage, OPEN_TIME},
    storage_args::StorageArgs,
    terminal::{print_piece, say},
};

/// The help text of the command.
pub(super) const HELP: &str = "\
    A rule counts for the commands that come after it. This command finds the records from before: each is a line with \
    its workspace, its id and the first rule that it breaks. Such a record can be read, and changed in its other fields. Nothing is written. \
    Cassandra and DynamoDB can be read while nodes work, and a redb file only while no node uses it.\n\n\
    Exit codes: 0 no record breaks a rule; 1 some do, or a record cannot be read; 2 wrong usage; 3 wrong configuration, or the \
    application does not exist; 4 the storage could not be reached, or a node uses the redb file.";

/// The most time for one read.
const READ_TIME: Duration = Duration::from_secs(30);

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The application.
    #[arg(value_name = "OWNER/NAME")]
    app: AppName,

    /// The configuration file of the nodes, which names the tables. Without the option the defaults
    /// apply.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

pub(super) async fn run(
    CheckArgs { app, config }: CheckArgs,
    node: NodeConfiguration,
) -> Result<ExitCode, CommandError> {
    let schema = (node.tables)(config.as_deref(), &app)?;
    let advice = "ask the node for its records";
    let storage = StorageArgs { storage: None, config }.outside_memory(node, advice)?;
    let clock = Clock::system();
    let deadline = clock.now() + OPEN_TIME;
    let driver = storage.target.open_for_reading(clock.clone(), deadline).await;
    let advice = "stop the node, or check the file of a backup: vvm backup, vvm restore";
    let driver = driver.map_err(|error| storage.not_opened(&error, advice))?;
    let NamedStorage { target, system } = storage;
    let checked = async {
        let what = || format!("cannot open {app} in {target}");
        let opened = System::open(Arc::clone(&driver), system, clock.clone(), deadline).await;
        let system = opened.map_err(|error| CommandError::system(&what(), &error))?;
        let opened = system.open_app(&app, deadline).await.map_err(|error| match error {
            // The name of the application is no option here.
            sysvvm::Error::DoesNotExist { .. } => {
                CommandError::config(format!("{}: {error}", what()))
            }
            error => CommandError::system(&what(), &error),
        })?;
        let reader = Reader::new(opened.storage, clock, READ_TIME, opened.entry.partitions);
        show_broken(&schema, &reader).await
    };
    let checked = checked.await;
    driver.close().await;
    let (records, broken) = checked?;
    say(format!("{broken} of {records} records of {app} break a rule"));
    Ok(if broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Shows each record that breaks a rule. Returns the number of all records, and of these.
async fn show_broken(schema: &Schema, reader: &Reader) -> Result<(u64, u64), CommandError> {
    let unreadable = |error: eventlog::Error| {
        CommandError::unfinished(format!("a record cannot be read: {}", with_causes(&error)))
    };
    let (mut all, mut broken) = (0, 0);
    let mut records = reader.all_records();
    while let Some(stored) = records.try_next().await.map_err(unreadable)? {
        all += 1;
        let Some(rule) = broken_rule(schema, reader, &stored).await.map_err(unreadable)? else {
            continue;
        };
        broken += 1;
        let line = format!("workspace {}: record {}: {rule}\n", stored.ws.0, stored.record.id.0);
        if print_piece(&line)?.is_break() {
            break;
        }
    }
    Ok((all, broken))
}

/// The first rule that a stored record breaks. A reference may point to an inactive record: it may
/// have been active when the reference was written.
async fn broken_rule(
    schema: &Schema,
    reader: &Reader,
    StoredRecord { ws, record, .. }: &StoredRecord,
) -> eventlog::Result<Option<BrokenRule>> {
    let Some(table) = schema.table(&record.table) else { return Ok(None) };
    let mut fields = record.fields.clone();
    table.widen(&mut fields);
    if let Err(broken) = table.judge(None, &fields) {
        return Ok(Some(broken));
    }
    for (field, id) in table.new_references(None, &fields) {
        let found = reader.record(*ws, id).await?;
        let found = found.as_ref().map(|found| (&found.record.table, true));
        if let Err(broken) = table.judge_reference(field, id, found) {
            return Ok(Some(broken));
        }
    }
    Ok(None)
}
