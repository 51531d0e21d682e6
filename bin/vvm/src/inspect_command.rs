//! `vvm inspect`: the rows of a storage, read by a node or by the command itself. Both give the same
//! lines.

use std::{process::ExitCode, sync::Arc, time::Duration};

use clock::Clock;
use futures::TryStreamExt;
use httpapi::inspect::{InspectError, Inspector, View};
use hyper::Method;
use istorage::{ErrorKind, KeyspaceName, StorageDriver};
use istorage_redb::RedbDriver;
use serde_json::Value;

use crate::{
    cli::{InspectArgs, InspectCommand, ServeArgs},
    command_error::CommandError,
    node_stream::NodeStream,
    print, serve,
    storage_target::StorageTarget,
};

/// The most time to connect to a storage and to open its system keyspace.
const OPEN_TIME: Duration = Duration::from_secs(30);

pub(crate) async fn run(command: InspectCommand) -> Result<ExitCode, CommandError> {
    let args = command.args();
    let (name, query) = command.view();
    // The command line is checked before anybody is asked.
    let view = View::parse(name, Some(&query));
    let view = view.map_err(|error| CommandError::usage(error.to_string()))?;
    if args.storage.storage.is_some() || args.storage.config.is_some() {
        offline(args, view).await?;
    } else {
        online(args, &format!("/inspect/{name}?{query}")).await?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn online(args: &InspectArgs, path: &str) -> Result<(), CommandError> {
    let node = serve::admin_target(args.admin.clone(), &args.connection)?;
    let mut answer = NodeStream::open(&node, (Method::GET, path)).await?;
    // The beginning of a line.
    let mut rest = Vec::new();
    while let Some(piece) = answer.next().await? {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            rest.extend_from_slice(part);
            if rest.ends_with(b"\n") {
                let line = serde_json::from_slice(&rest).map_err(|error| {
                    CommandError::unfinished(format!("{node} sent no JSON: {error}"))
                })?;
                show(args, &line)?;
                rest.clear();
            }
        }
    }
    Ok(())
}

async fn offline(args: &InspectArgs, view: View) -> Result<(), CommandError> {
    let (target, keyspace) = storage(args)?;
    let clock = Clock::system();
    let deadline = clock.now() + OPEN_TIME;
    let driver: Arc<dyn StorageDriver> = match &target {
        StorageTarget::Mem => {
            let why = "a storage in memory belongs to its node: ask the node with --admin";
            return Err(CommandError::usage(why));
        }
        StorageTarget::Redb(config) => {
            let opened = RedbDriver::open_for_reading(config.clone(), clock.clone()).await;
            Arc::new(opened.map_err(|error| unopened(&target, &error))?)
        }
        target => target
            .connect(clock.clone(), deadline)
            .await
            .map_err(|error| unopened(target, &error))?,
    };
    let shown = async {
        let inspector =
            Inspector::open(Arc::clone(&driver), keyspace, clock.clone(), deadline).await?;
        inspector.lines(view).await
    };
    let failed = |error: InspectError| failed(&target, &error);
    let shown = async {
        let mut lines = shown.await.map_err(failed)?;
        while let Some(line) = lines.try_next().await.map_err(failed)? {
            show(args, &line)?;
        }
        Ok(())
    };
    let shown = shown.await;
    driver.close().await;
    shown
}

/// The storage, and the name of its system keyspace.
fn storage(args: &InspectArgs) -> Result<(StorageTarget, KeyspaceName), CommandError> {
    let default = || {
        KeyspaceName::new(vvm::NodeSettings::SYSTEM)
            .map_err(|error| CommandError::storage("the name of the system keyspace", &error))
    };
    if let Some(target) = &args.storage.storage {
        return Ok((target.clone(), default()?));
    }
    let config = args.storage.config.clone();
    let config = serve::configuration(&ServeArgs { config, ..ServeArgs::default() })?;
    let target = config.storage.to_target(&config.source)?;
    Ok((target, config.storage.system_keyspace.map_or_else(default, Ok)?))
}

fn show(args: &InspectArgs, line: &Value) -> Result<(), CommandError> {
    print(&if args.json { format!("{line}\n") } else { text_of(line) })
}

/// A line for people: the name and the value of each field.
fn text_of(line: &Value) -> String {
    let field = |(name, value): (&String, &Value)| match value {
        Value::String(text) => format!("{name}={text}"),
        value => format!("{name}={value}"),
    };
    let fields = line.as_object().map(|fields| fields.iter().map(field).collect::<Vec<_>>());
    fields.unwrap_or_default().join("  ") + "\n"
}

fn unopened(target: &StorageTarget, error: &istorage::Error) -> CommandError {
    let mut what = format!("cannot open {target}");
    if error.kind() == ErrorKind::Unavailable && target.is_embedded() {
        what += " (if a node uses the file, ask the node: leave out --storage and --config, and give --admin)";
    }
    CommandError::storage(&what, error)
}

fn failed(target: &StorageTarget, error: &InspectError) -> CommandError {
    let what = format!("cannot read {target}");
    match error {
        InspectError::System(error @ sysvvm::Error::DoesNotExist { .. }) => {
            CommandError::unfinished(error.to_string())
        }
        InspectError::System(error) => CommandError::system(&what, error),
        InspectError::Storage(error) => CommandError::storage(&what, error),
        error => CommandError::unfinished(format!("{what}: {}", causes::with_causes(error))),
    }
}
