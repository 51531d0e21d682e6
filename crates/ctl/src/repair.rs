//! `vvm repair`: the rows that keep partitions of a running node from working, and their repair.

use std::{
    fmt::Display,
    io::{self, BufRead, IsTerminal, Write},
    process::ExitCode,
    time::Duration,
};

use bytes::Bytes;
use clap::{Args, Subcommand};
use docnumbers::jiff::Timestamp;
use serde_json::Value;
use sysvvm::AppName;

use crate::{
    CommandError, NodeConfiguration,
    answer_text::array,
    client::{ConnectionArgs, NodeAddress, NodeClient, NodeRequest, NodeTarget, query_part},
    terminal::print,
};

#[derive(Debug, Subcommand)]
pub enum RepairCommand {
    /// List the partitions that run no commands, with the row that keeps each from working, the
    /// damaged rows of the other partitions, and the last repairs.
    List(RepairArgs),
    /// Restore an event that cannot be read from its whole copy in the log of the workspace. Put a
    /// marker in its place if there is no whole copy, at trust level 2, and if the copy is older
    /// than the last change from level 2: then the content of the event is lost. A damaged fencing
    /// entry is written again. The partition then goes on by itself.
    Mark {
        #[command(flatten)]
        event: MarkArgs,
        #[command(flatten)]
        args: RepairArgs,
    },
    /// Remove the foreign row in the way of a partition, if it still holds the bytes that were
    /// shown. The partition then goes on by itself, and writes the right row.
    Remove {
        #[command(flatten)]
        row: RemoveArgs,
        #[command(flatten)]
        args: RepairArgs,
    },
    /// Store a number in a row of the stored numbers that holds none, if the row still holds the
    /// bytes that were shown. The partition then goes on by itself.
    Number {
        #[command(flatten)]
        row: NumberArgs,
        #[command(flatten)]
        args: RepairArgs,
    },
}

impl RepairCommand {
    fn args(&self) -> &RepairArgs {
        match self {
            RepairCommand::List(args)
            | RepairCommand::Mark { args, .. }
            | RepairCommand::Remove { args, .. }
            | RepairCommand::Number { args, .. } => args,
        }
    }
}

/// The partition that is repaired.
#[derive(Debug, Args)]
pub(crate) struct PartitionArgs {
    /// The application.
    #[arg(long, value_name = "OWNER/NAME")]
    app: AppName,

    /// The partition, as `vvm repair list` shows it.
    #[arg(long, value_name = "NUMBER")]
    partition: u16,
}

impl PartitionArgs {
    /// The path of a repair of the partition, with the beginning of its query.
    fn path(&self, repair: &str) -> String {
        let PartitionArgs { app, partition } = self;
        format!("/repairs/{repair}?app={app}&partition={partition}")
    }
}

/// The place of an event, and its numbers.
#[derive(Debug, Args)]
pub struct MarkArgs {
    #[command(flatten)]
    place: PartitionArgs,

    /// The offset of the event in the log of the partition, as `vvm repair list` shows it.
    #[arg(long, value_name = "OFFSET")]
    event: u64,

    /// The workspace of the event.
    #[arg(long, value_name = "NUMBER", required_unless_present = "fencing")]
    ws: Option<u64>,

    /// The offset of the event in the log of its workspace.
    #[arg(long, value_name = "OFFSET", required_unless_present = "fencing")]
    offset: Option<u64>,

    /// State that the row is a damaged fencing entry, which has no workspace and no numbers. The
    /// entry is written again.
    #[arg(long, conflicts_with_all = ["ws", "offset", "numbers", "no_numbers"])]
    fencing: bool,

    /// The last number that the event drew of a sequence, such as 2:322680000135167. Leave the
    /// option out first: if numbers are needed, the refusal lists safe ones.
    #[arg(long = "number", value_name = "SEQUENCE:NUMBER")]
    numbers: Vec<String>,

    /// State that the event drew no numbers besides its offsets.
    #[arg(long, conflicts_with = "numbers")]
    no_numbers: bool,

    /// Use the given workspace and offset, or `--fencing`, although the damaged bytes name another
    /// place.
    #[arg(long)]
    ignore_hint: bool,

    /// Check the repair and show it. Write nothing.
    #[arg(long)]
    dry_run: bool,

    /// Repair without asking for a confirmation.
    #[arg(long)]
    yes: bool,
}

/// The row in the way of a partition.
#[derive(Debug, Args)]
pub struct RemoveArgs {
    #[command(flatten)]
    place: PartitionArgs,

    /// State that no node wrote the row, so that it is not a damaged event. If it was an event, its
    /// content is lost, and its numbers are given again.
    #[arg(long)]
    foreign: bool,

    /// Check the removal and show it. Write nothing.
    #[arg(long)]
    dry_run: bool,

    /// Repair without asking for a confirmation.
    #[arg(long)]
    yes: bool,
}

/// A row of the stored numbers.
#[derive(Debug, Args)]
pub struct NumberArgs {
    #[command(flatten)]
    place: PartitionArgs,

    /// The workspace of the number. Leave this option and --sequence out for the stored offset of
    /// the partition.
    #[arg(long, value_name = "NUMBER", requires = "sequence")]
    ws: Option<u64>,

    /// The sequence of the number, as `vvm repair list` shows it.
    #[arg(long, value_name = "NUMBER", requires = "ws")]
    sequence: Option<u16>,

    /// The number to be stored: not below the last one that was given. The default is a safe
    /// number. For the stored offset: the next event to replay. The default, 1, replays the whole
    /// log.
    #[arg(long, value_name = "NUMBER")]
    number: Option<u64>,

    /// Check the repair and show it. Write nothing.
    #[arg(long)]
    dry_run: bool,

    /// Repair without asking for a confirmation.
    #[arg(long)]
    yes: bool,
}

/// The arguments that all commands for repairs have.
#[derive(Debug, Args)]
pub struct RepairArgs {
    /// The admin endpoint of the node that owns the partition. The default is the address in
    /// VVM__ADMIN__LISTEN, or else 127.0.0.1:55555.
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<NodeAddress>,

    /// Print the result as JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    connection: ConnectionArgs,
}

/// The most time to wait for an answer. A repair reads the log of its partition.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) async fn run(
    command: RepairCommand,
    node: NodeConfiguration,
) -> Result<ExitCode, CommandError> {
    let args = command.args();
    let (admin, json) = (&node.admin_target(args.admin.clone(), &args.connection)?, args.json);
    let (answer, text) = match command {
        RepairCommand::List(_) => {
            let answer = ask(admin, NodeRequest::get("/repairs"), "").await?;
            let text = text_of_list(&answer, admin);
            (answer, text)
        }
        RepairCommand::Mark { event, .. } => {
            let path = path_of(&event)?;
            repair(admin, &path, event.dry_run, event.yes).await?
        }
        RepairCommand::Number { row, .. } => {
            repair(admin, &path_of_number(&row), row.dry_run, row.yes).await?
        }
        RepairCommand::Remove { row, .. } => {
            let path = format!("{}&foreign={}", row.place.path("remove"), row.foreign);
            repair(admin, &path, row.dry_run, row.yes).await?
        }
    };
    print(&if json { format!("{answer:#}\n") } else { text })?;
    Ok(ExitCode::SUCCESS)
}

/// Plans a repair, asks for a confirmation, and does the repair.
async fn repair(
    admin: &NodeTarget,
    path: &str,
    is_dry_run: bool,
    is_confirmed: bool,
) -> Result<(Value, String), CommandError> {
    let planned = format!("{path}&dryRun=true");
    let plan = ask(admin, NodeRequest::post(&planned, Bytes::new()), "").await?;
    if is_dry_run {
        let text = format!("nothing was written. The repair would be:\n{}", text_of(&plan));
        return Ok((plan, text));
    }
    if !is_confirmed {
        let stdin = io::stdin();
        let is_terminal = stdin.is_terminal();
        confirm(&plan, is_terminal, stdin.lock(), io::stderr())?;
    }
    // What was confirmed must be what is done.
    let path = match plan["action"].as_str() {
        Some("removed") => format!("{path}&digest={}", word(&plan["digest"])),
        Some("numbered") => {
            let (number, digest) = (number_of(&plan), word(&plan["digest"]));
            // A number that was given is in the path already.
            let number =
                if path.contains("&number=") { String::new() } else { format!("&number={number}") };
            format!("{path}{number}&digest={digest}")
        }
        _ => format!("{path}&action={}", word(&plan["action"])),
    };
    const MAY_BE_DONE: &str =
        "; the repair may be done: run `vvm repair list` before you repeat it";
    let done = ask(admin, NodeRequest::post(&path, Bytes::new()), MAY_BE_DONE).await?;
    let what = match word(&done["action"]) {
        "removed" => "the row is removed".to_owned(),
        "numbered" => "the number is stored".to_owned(),
        "fenced" => "the fencing entry is written again".to_owned(),
        action => format!("the event is {action}"),
    };
    let text = format!("{what}:\n{}", text_of(&done));
    Ok((done, text))
}

fn path_of(event: &MarkArgs) -> Result<String, CommandError> {
    let MarkArgs { place, event: plog, ws, offset, .. } = event;
    let mut path = format!("{}&event={plog}", place.path("mark"));
    path += &match (ws, offset) {
        (Some(ws), Some(offset)) => format!("&ws={ws}&offset={offset}"),
        _ => "&fencing=true".to_owned(),
    };
    let is_number = |text: &String| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b':');
    if let Some(wrong) = event.numbers.iter().find(|text| !is_number(text)) {
        return Err(CommandError::usage(format!(
            "--number: `{wrong}` is not a sequence and a number, such as 3:322685000131080"
        )));
    }
    if event.no_numbers || !event.numbers.is_empty() {
        path += &format!("&numbers={}", event.numbers.join(","));
    }
    if event.ignore_hint {
        path += "&ignoreHint=true";
    }
    Ok(path)
}

fn path_of_number(row: &NumberArgs) -> String {
    row.place.path("number")
        + &query_part("ws", row.ws)
        + &query_part("sequence", row.sequence)
        + &query_part("number", row.number)
}

/// The number that the repair of a number stores.
fn number_of(note: &Value) -> &Value {
    let mut numbers = note["numbers"].as_object().into_iter().flatten();
    numbers.next().map_or(&Value::Null, |(_, number)| number)
}

/// Shows the repair, and asks whether to go on.
fn confirm(
    plan: &Value,
    is_terminal: bool,
    mut input: impl BufRead,
    mut output: impl Write,
) -> Result<(), CommandError> {
    if !is_terminal {
        let why = "the repair needs a confirmation: add --yes, or --dry-run to see it";
        return Err(CommandError::usage(why));
    }
    let failed = |error| CommandError::unfinished(format!("no confirmation: {error}"));
    let question = match plan["action"].as_str() {
        Some("restored") => "The event will be restored from its copy. Go on?",
        Some("removed") => "The row will be removed. Go on?",
        Some("fenced") => "The row will be a fencing entry again. Go on?",
        Some("numbered") => "A number that is too low would be given twice. Store this one?",
        _ => "The content of the event will be lost. Mark it?",
    };
    write!(output, "{}{question} [y/N] ", text_of(plan))
        .and_then(|()| output.flush())
        .map_err(failed)?;
    let mut answer = String::new();
    input.read_line(&mut answer).map_err(failed)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(CommandError::unfinished("nothing was written: the repair was not confirmed")),
    }
}

/// Asks the node. `without_answer` ends the error if there is no answer.
async fn ask(
    admin: &NodeTarget,
    request: NodeRequest<'_>,
    without_answer: &str,
) -> Result<Value, CommandError> {
    let answer = NodeClient::ask(admin, request, ANSWER_TIMEOUT).await;
    answer.map_err(|error| error.followed_by(without_answer))?.object(admin)
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}

fn text_of_list(answer: &Value, admin: &NodeTarget) -> String {
    let stuck = array(&answer["stuck"]);
    let mut text = match stuck {
        [] if answer["partitions"] == 0 => format!(
            "this node has no partitions: it is {}; ask the leader\n",
            word(&answer["stage"])
        ),
        [] => "all partitions of this node run commands, and have no known damage\n".to_owned(),
        _ => stuck.iter().map(|stuck| text_of_stuck(stuck, admin)).collect(),
    };
    if let Some(why) = answer["repairsError"].as_str() {
        text += &format!("the table of repairs cannot be read: {why}\n");
    }
    for repair in array(&answer["repairs"]) {
        let is_done = repair["isDone"] == true;
        text += if is_done { "repaired: " } else { "not known to be repaired: " };
        text += &text_of(repair);
    }
    text
}

fn text_of_stuck(stuck: &Value, admin: &NodeTarget) -> String {
    let (app, partition) = (word(&stuck["app"]), &stuck["partition"]);
    let mut text = format!("partition {partition} of {app}: {}\n", word(&stuck["status"]));
    if !stuck["row"].is_null() {
        text += &text_of_row(&stuck["row"], stuck, admin);
    }
    let damaged = array(&stuck["damaged"]);
    text.extend(damaged.iter().map(|row| text_of_row(row, stuck, admin)));
    text
}

fn text_of_row(row: &Value, stuck: &Value, admin: &NodeTarget) -> String {
    let (app, partition) = (word(&stuck["app"]), &stuck["partition"]);
    let mut text = format!("  row: {}\n", word(&row["name"]));
    text += &format!("  found: {}\n", text_of_content(&row["found"]));
    if !row["expected"].is_null() {
        text += &format!("  to be written: {}\n", text_of_content(&row["expected"]));
    }
    text += &format!("  repair: {}\n", word(&row["advice"]));
    if let Some(search) = row["search"].as_str() {
        text += &format!("  place: {search}\n");
    }
    if row["repair"] == "remove" {
        text +=
            &format!("    vvm repair remove --admin {admin} --app {app} --partition {partition}\n");
    }
    if row["repair"] == "number" {
        let (ws, sequence) = (&row["number"]["ws"], &row["number"]["sequence"]);
        let of_ws =
            if ws.is_null() { String::new() } else { format!(" --ws {ws} --sequence {sequence}") };
        text += &format!(
            "    vvm repair number --admin {admin} --app {app} --partition {partition}{of_ws}\n"
        );
    }
    if row["repair"] == "mark" {
        let mark = format!(
            "    vvm repair mark --admin {admin} --app {app} --partition {partition} --event {}",
            row["event"]
        );
        let command = |ws: &dyn Display, offset: &dyn Display, why: &str| {
            format!("{mark} --ws {ws} --offset {offset}{why}\n")
        };
        let candidates = array(&row["candidates"]);
        match &row["hint"] {
            _ if row["fencing"] == true => text += &format!("{mark} --fencing\n"),
            Value::Null if candidates.is_empty() => text += &command(&"WORKSPACE", &"OFFSET", ""),
            Value::Null => text.extend(candidates.iter().map(|place| {
                let why = format!("   # {}", word(&place["why"]));
                command(&place["ws"], &place["offset"], &why)
            })),
            hint => text += &command(&hint["ws"], &hint["offset"], ""),
        }
    }
    text
}

fn text_of_content(content: &Value) -> String {
    match content {
        Value::Null => "no row".to_owned(),
        content if content["hex"] == "" && content["bytes"] == 0 => {
            word(&content["meaning"]).to_owned()
        }
        content => {
            let hex = shortened(&content["hex"]);
            format!("{} bytes ({hex}): {}", content["bytes"], word(&content["meaning"]))
        }
    }
}

/// The beginning of bytes in hexadecimal, with a sign if there are more.
fn shortened(hex: &Value) -> String {
    const SHOWN: usize = 64;
    let hex = word(hex);
    match hex.get(..SHOWN).filter(|_| hex.len() > SHOWN) {
        Some(beginning) => format!("{beginning}…"),
        None => hex.to_owned(),
    }
}

fn text_of(note: &Value) -> String {
    let at = note["atMicros"].as_i64().and_then(|at| Timestamp::from_microsecond(at).ok());
    let at = at.map_or_else(|| "?".to_owned(), |at| format!("{at:.0}"));
    let (partition, app, epoch) = (&note["partition"], word(&note["app"]), &note["epoch"]);
    let of = format!("of partition {partition} of {app}");
    if note["action"] == "removed" {
        let hex = shortened(&note["replaced"]);
        let (row, digest) = (word(&note["row"]), word(&note["digest"]));
        return format!(
            "removing {row} of {app}, bytes {hex} ({digest}), in epoch {epoch}, {at}\n"
        );
    }
    if note["action"] == "fenced" {
        let event = &note["event"];
        return format!(
            "writing fencing entry {event} of the log {of} again, in epoch {epoch}, {at}\n"
        );
    }
    if note["action"] == "numbered" {
        let (row, number) = (word(&note["row"]), number_of(note));
        let (hex, digest) = (shortened(&note["replaced"]), word(&note["digest"]));
        return format!(
            "storing {number} as {row} of {app}, over bytes {hex} ({digest}), in epoch {epoch}, {at}\n"
        );
    }
    let numbers = note["numbers"].as_object().into_iter().flatten();
    let numbers: Vec<String> = numbers.map(|(seq, last)| format!("{seq}:{last}")).collect();
    format!(
        "{} of event {} of the log {of} (event {} of workspace {}), numbers {}, in epoch {epoch}, {at}\n",
        if note["action"] == "restored" { "restoring" } else { "marking" },
        note["event"],
        note["offset"],
        note["ws"],
        numbers.join(" "),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_repair_is_done_only_after_a_yes() {
        for (action, question) in [
            ("marked", "The content of the event will be lost."),
            ("restored", "The event will be restored"),
            ("removed", "The row will be removed."),
            ("fenced", "The row will be a fencing entry again."),
            ("numbered", "A number that is too low would be given twice."),
        ] {
            let plan = json!({ "action": action, "numbers": {}, "replaced": "00" });
            for (answer, is_yes) in [
                ("y\n", true),
                ("Y\n", true),
                ("yes\n", true),
                ("n\n", false),
                ("", false),
                ("yn\n", false),
            ] {
                let mut asked = Vec::new();
                let confirmed = confirm(&plan, true, answer.as_bytes(), &mut asked);
                let code = confirmed.map_err(|refused| refused.code());
                assert_eq!(code, if is_yes { Ok(()) } else { Err(1) }, "{answer:?}");
                let asked = String::from_utf8(asked).unwrap();
                assert!(asked.contains(question) && asked.ends_with("[y/N] "), "{asked}");
            }
            let refused = confirm(&plan, false, &b"y\n"[..], Vec::new()).unwrap_err();
            assert_eq!(refused.code(), 2);
        }
    }
}
