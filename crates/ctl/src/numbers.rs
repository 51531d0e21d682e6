//! `vvm numbers`: the document numbers of a running node. The node keeps reserved counters in
//! memory, and only the node knows which of them it has issued. So these commands ask the node.

use std::{process::ExitCode, time::Duration};

use clap::{Args, Subcommand};
use docnumbers::jiff::Timestamp;
use serde_json::{Value, json};
use sysvvm::AppName;

use crate::{
    CommandError,
    answer_text::{array, shown, table_of},
    client::{
        ConnectionArgs, NodeAddress, NodeClient, NodeRequest, NodeTarget, path_of_app, query_part,
    },
    terminal::{print, say},
};

#[derive(Debug, Subcommand)]
pub enum NumbersCommand {
    /// List the series of an application.
    List(NumbersArgs),
    /// Show a series, and the number that would be next.
    Show {
        /// The id of the series.
        series: String,
        #[command(flatten)]
        args: NumbersArgs,
    },
    /// Draw numbers of a fast series. Numbers that are drawn are used up.
    Next {
        /// The id of the series.
        series: String,
        /// How many numbers to draw.
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
        count: u32,
        #[command(flatten)]
        args: NumbersArgs,
    },
    /// List the numbers that were reserved and not issued, with the reason.
    Gaps {
        /// The id of the series.
        series: String,
        /// The period of the counter, such as 2026, 2026-05, 2026-W21 or 2026-05-22. The default
        /// is the present one.
        #[arg(long, value_name = "PERIOD")]
        period: Option<String>,
        /// The counter to begin with.
        #[arg(long, value_name = "COUNTER", default_value_t = 0)]
        from: u64,
        /// The most ranges to list.
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000))]
        limit: u32,
        #[command(flatten)]
        args: NumbersArgs,
    },
}

impl NumbersCommand {
    fn args(&self) -> &NumbersArgs {
        match self {
            NumbersCommand::List(args)
            | NumbersCommand::Show { args, .. }
            | NumbersCommand::Next { args, .. }
            | NumbersCommand::Gaps { args, .. } => args,
        }
    }
}

/// The arguments that all commands for document numbers have.
#[derive(Debug, Args)]
pub struct NumbersArgs {
    /// The API of a node. If the nodes have no cluster port: of the node that owns the partition of
    /// the workspace.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8822")]
    node: NodeAddress,

    /// The application.
    #[arg(long, value_name = "OWNER/NAME", default_value = "demo/shop")]
    app: AppName,

    /// The workspace.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    ws: u64,

    /// Print the result as JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    connection: ConnectionArgs,
}

/// The most time to wait for an answer. The node itself gives up after `http.command_seconds`.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

pub(crate) async fn run(command: NumbersCommand) -> Result<ExitCode, CommandError> {
    let args = command.args();
    let node = NumbersApi::new(args)?;
    let (answer, text_of): (Value, fn(&Value) -> String) = match &command {
        NumbersCommand::List(_) => (node.get("").await?, text_of_list),
        NumbersCommand::Show { series, .. } => {
            let mut answer = node.get(&path_of(series)?).await?;
            // A full counter has no next number, and its definition is still of use.
            answer["next"] = match node.get(&(path_of(series)? + "/peek")).await {
                Ok(next) => next["number"].clone(),
                Err(why) => json!(format!("none: {why}")),
            };
            (answer, text_of_series)
        }
        NumbersCommand::Next { series, count, .. } => {
            let body = json!({ "count": count }).to_string();
            let path = node.base.clone() + &path_of(series)? + "/next";
            let answer = node.ask(NodeRequest::post(&path, body.into())).await?;
            if answer["nearlyFull"] == true {
                say("warning: the counter will soon need more digits than its template has");
            }
            (answer, text_of_numbers)
        }
        NumbersCommand::Gaps { series, period, from, limit, .. } => {
            let period = query_part("period", period.as_deref().map(in_query).transpose()?);
            let path = format!("{}/gaps?from={from}&limit={limit}{period}", path_of(series)?);
            (node.get(&path).await?, text_of_gaps)
        }
    };
    let as_json = args.json;
    print(&if as_json { format!("{answer:#}\n") } else { text_of(&answer) })?;
    Ok(ExitCode::SUCCESS)
}

/// The path of a series after `numbers`. The node says what is wrong with an id, if the id can
/// stand in a path.
fn path_of(series: &str) -> Result<String, CommandError> {
    in_query(series).map(|series| format!("/{series}"))
}

fn in_query(text: &str) -> Result<&str, CommandError> {
    match text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte)) {
        true => Ok(text),
        false => Err(CommandError::usage(format!(
            "`{text}` has characters other than letters, digits, `_`, `.` and `-`"
        ))),
    }
}

/// The routes for document numbers of a workspace.
struct NumbersApi {
    node: NodeTarget,
    base: String,
}

impl NumbersApi {
    fn new(args: &NumbersArgs) -> Result<NumbersApi, CommandError> {
        let NumbersArgs { node, app, ws, connection, .. } = args;
        let base = format!("{}/workspaces/{ws}/numbers", path_of_app(app));
        Ok(NumbersApi { node: connection.target(node.clone())?, base })
    }

    async fn get(&self, rest: &str) -> Result<Value, CommandError> {
        self.ask(NodeRequest::get(&format!("{}{rest}", self.base))).await
    }

    async fn ask(&self, request: NodeRequest<'_>) -> Result<Value, CommandError> {
        NodeClient::ask(&self.node, request, ANSWER_TIMEOUT).await?.object(&self.node)
    }
}

fn text_of_list(answer: &Value) -> String {
    const KEYS: [&str; 5] = ["series", "policy", "template", "reset", "scope"];
    let series = array(&answer["series"]);
    if series.is_empty() {
        return "the application declares no series\n".to_owned();
    }
    table_of(KEYS, series.iter().map(|one| KEYS.map(|key| shown(&one[key]))))
}

fn text_of_series(answer: &Value) -> String {
    let Some(answer) = answer.as_object() else { return String::new() };
    answer.iter().map(|(key, value)| format!("{key}: {}\n", shown(value))).collect()
}

fn text_of_numbers(answer: &Value) -> String {
    array(&answer["numbers"]).iter().map(|number| shown(number) + "\n").collect()
}

fn text_of_gaps(answer: &Value) -> String {
    let (series, period) = (shown(&answer["series"]), shown(&answer["period"]));
    if let Some(reason) = answer["reason"].as_str() {
        return format!("{series} has no gaps: {reason}\n");
    }
    let gaps = array(&answer["gaps"]);
    if gaps.is_empty() {
        return format!("{series} has no such gaps in the period {period}\n")
            + &reserved_to(answer);
    }
    let rows = gaps.iter().map(|gap| {
        let meaning = match gap["state"].as_str() {
            Some("in_use") => "in use: the present leadership reserved these numbers",
            Some("open") => "unknown: their owner did not give the rest back",
            Some("not_issued") => "never issued",
            _ => "?",
        };
        let at =
            gap["reservedAtMicros"].as_i64().and_then(|at| Timestamp::from_microsecond(at).ok());
        let at = at.map_or_else(|| "?".to_owned(), |at| format!("{at:.0}"));
        let (first, last) = (shown(&gap["first"]), shown(&gap["last"]));
        [first, last, meaning.to_owned(), shown(&gap["owner"]), at]
    });
    let mut text = table_of(["first", "last", "state", "owner", "reserved"], rows);
    if let Some(next) = answer["next"].as_u64() {
        text += &format!("there may be more: go on with --from {next}\n");
    }
    text + &reserved_to(answer)
}

fn reserved_to(answer: &Value) -> String {
    let next = answer["reserved"].as_u64();
    next.map_or_else(String::new, |next| format!("the next range begins at {next}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_explained() {
        let gap = |state, first| {
            json!({
                "first": first, "last": first + 9, "count": 10, "state": state, "owner": "node 1",
                "reservedAtMicros": 1_763_899_200_000_000_u64,
            })
        };
        let mut answer = json!({
            "series": "order", "policy": "fast", "period": "2026-11-23", "reserved": 300,
            "gaps": [gap("not_issued", 10), gap("open", 120), gap("in_use", 200)], "next": 300,
        });
        let text = text_of_gaps(&answer);
        for part in [
            "never issued",
            "did not give the rest back",
            "in use",
            "129",
            "2025-11-23T12:00:00Z",
            "--from 300",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        answer["gaps"] = json!([]);
        let text =
            "order has no such gaps in the period 2026-11-23\nthe next range begins at 300\n";
        assert_eq!(text_of_gaps(&answer), text);
        answer["reason"] = json!("a reason");
        assert_eq!(text_of_gaps(&answer), "order has no gaps: a reason\n");
    }

    #[test]
    fn a_text_that_would_change_the_path_is_refused() {
        assert_eq!(path_of("order_1.a-B").unwrap(), "/order_1.a-B");
        for bad in ["a/b", "a?b", "a b", "ä", "a%20"] {
            assert!(path_of(bad).is_err(), "{bad}");
        }
    }
}
