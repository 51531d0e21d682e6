//! `vvm logs follow`: prints the events of a log as they are applied.
//!
//! The command asks for server-sent events, because each of them has an id: after its connection
//! has ended, the command goes on after the last id.

mod event_reader;

use std::{process::ExitCode, time::Duration};

use base::with_causes;
use clap::{ArgGroup, Args, Subcommand};
use clock::{Clock, Instant};
use hyper::{
    StatusCode,
    header::{ACCEPT, HeaderName, HeaderValue},
};
use sysvvm::AppName;

use self::event_reader::EventReader;
use crate::{
    CommandError,
    client::{
        ConnectionArgs, NodeAddress, NodeAnswer, NodeClient, NodeRequest, NodeTarget, path_of_app,
        query_part,
    },
    terminal::{print_piece, say},
};

#[derive(Debug, Subcommand)]
pub enum LogsCommand {
    /// Print the events of a log as they are applied, one JSON object in each line. The command
    /// connects again when its connection ends, and prints each event once.
    Follow(FollowArgs),
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("log").args(["ws", "partition"]).required(true)))]
pub struct FollowArgs {
    /// The API of a node. With several addresses (repeat the option) the command goes on at the
    /// next node when one does not answer.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8822")]
    node: Vec<NodeAddress>,

    /// The application.
    #[arg(long, value_name = "OWNER/NAME", default_value = "demo/shop")]
    app: AppName,

    /// The workspace whose log is followed.
    #[arg(long, value_name = "NUMBER")]
    ws: Option<u64>,

    /// The partition whose log is followed, in place of a workspace. The log has the events of all
    /// workspaces of the partition.
    #[arg(long, value_name = "NUMBER")]
    partition: Option<u16>,

    /// The offset of the first event, or `end` for the first event from now on.
    #[arg(long, value_name = "OFFSET", default_value = "1", value_parser = from)]
    from: String,

    /// The number of events after which the command ends.
    #[arg(long, value_name = "N", value_parser = limit)]
    limit: Option<u64>,

    /// How long the command tries to reach a node again before it ends with 4.
    #[arg(long, value_name = "N", default_value_t = 300)]
    retry_seconds: u64,

    #[command(flatten)]
    connection: ConnectionArgs,
}

fn from(text: &str) -> Result<String, &'static str> {
    let is_offset = text.parse::<u64>().is_ok_and(|offset| offset > 0);
    match is_offset || text == "end" {
        true => Ok(text.to_owned()),
        false => Err("an offset of 1 or more is expected, or `end`"),
    }
}

fn limit(text: &str) -> Result<u64, &'static str> {
    let limit = text.parse().ok().filter(|limit| *limit > 0);
    limit.ok_or("a number of events of 1 or more is expected")
}

/// The longest wait for the beginning of an answer. The node itself gives up after
/// `http.command_seconds`.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// The longest silence. A node sends something each 15 s.
const QUIET: Duration = Duration::from_secs(45);

/// The pause before another try.
const PAUSE: Duration = Duration::from_secs(1);

/// The pause after an answer that ended in order: the partition moves, or the node stops.
const SHORT_PAUSE: Duration = Duration::from_millis(100);

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

pub(crate) async fn run(LogsCommand::Follow(args): LogsCommand) -> Result<ExitCode, CommandError> {
    let mut log = PrintedLog::new(&args)?;
    let (clock, retry) = (Clock::system(), Duration::from_secs(args.retry_seconds));
    let mut failures = 0;
    for address in args.node.iter().cycle() {
        // The token file may hold a new token by now.
        let node = &args.connection.target(address.clone())?;
        let why = match log.print_from(node, &clock).await? {
            AnswerEnd::All => break,
            AnswerEnd::Whole => {
                clock.sleep(SHORT_PAUSE).await;
                continue;
            }
            AnswerEnd::Lost(why) => why,
        };
        failures += 1;
        let gives_up = match log.heard {
            Some(heard) => clock.now() >= heard + retry,
            // A wrong address shows at once.
            None => failures >= args.node.len(),
        };
        if gives_up {
            return Err(node.unreachable(why));
        }
        say(format!("{node}: {why}; the command goes on at the next try"));
        clock.sleep(PAUSE).await;
    }
    Ok(ExitCode::SUCCESS)
}

/// The end of an answer.
enum AnswerEnd {
    /// All events that the command wants are printed, or nobody reads stdout any more.
    All,
    /// The node ended the answer in order.
    Whole,
    Lost(String),
}

/// A log that is being printed.
struct PrintedLog {
    path: String,
    from: String,
    /// The id of the last event that is printed, or the id before the first event.
    last: Option<u64>,
    left: Option<u64>,
    /// When a node last sent something of the log.
    heard: Option<Instant>,
}

impl PrintedLog {
    fn new(args: &FollowArgs) -> Result<PrintedLog, CommandError> {
        let base = path_of_app(&args.app);
        let path = match (args.partition, args.ws) {
            (Some(partition), _) => format!("{base}/partitions/{partition}/plog"),
            (None, Some(ws)) => format!("{base}/workspaces/{ws}/wlog"),
            (None, None) => return Err(CommandError::usage("--ws or --partition names the log")),
        };
        Ok(PrintedLog { path, from: args.from.clone(), last: None, left: args.limit, heard: None })
    }

    /// Prints the events that follow, until the answer of the node ends.
    ///
    /// # Errors
    /// If the node refuses the request for good, or if stdout cannot be written.
    async fn print_from(
        &mut self,
        node: &NodeTarget,
        clock: &Clock,
    ) -> Result<AnswerEnd, CommandError> {
        let limit = query_part("limit", self.left);
        let path = format!("{}?follow=true&from={}{limit}", self.path, self.from);
        let mut headers = vec![(ACCEPT, HeaderValue::from_static("text/event-stream"))];
        headers.extend(self.last.map(|last| (LAST_EVENT_ID, last.into())));
        let request = NodeRequest { headers: &headers, ..NodeRequest::get(&path) };
        let mut pieces = match NodeClient::open(clock, node, request, ANSWER_TIMEOUT).await {
            Ok(Ok(pieces)) => pieces,
            Ok(Err(answer)) => return refusal(node, &answer, self.heard.is_some()),
            Err(why) => return Ok(AnswerEnd::Lost(why)),
        };
        let mut events = EventReader::default();
        loop {
            self.heard = Some(clock.now());
            let piece = match clock.timeout_at(clock.now() + QUIET, pieces.next()).await {
                Ok(Some(Ok(piece))) => piece,
                Ok(Some(Err(error))) => return Ok(AnswerEnd::Lost(with_causes(&error))),
                Ok(None) if self.left == Some(0) => return Ok(AnswerEnd::All),
                Ok(None) => return Ok(AnswerEnd::Whole),
                Err(_) => return Ok(AnswerEnd::Lost(format!("silence for {QUIET:?}"))),
            };
            let received = events.read(&piece);
            if received.count > 0
                && print_piece(&String::from_utf8_lossy(&received.lines))?.is_break()
            {
                return Ok(AnswerEnd::All);
            }
            self.last = received.last.or(self.last);
            self.left = self.left.map(|left| left.saturating_sub(received.count));
            if self.left == Some(0) {
                return Ok(AnswerEnd::All);
            }
        }
    }
}

/// The end of an answer that has no log. If the command has heard the log before, a lack of places
/// does not end it: the former connection may still take its place.
fn refusal(
    node: &NodeTarget,
    answer: &NodeAnswer,
    was_heard: bool,
) -> Result<AnswerEnd, CommandError> {
    let why = answer.reason(node);
    match answer.status {
        StatusCode::SERVICE_UNAVAILABLE => Ok(AnswerEnd::Lost(why)),
        StatusCode::TOO_MANY_REQUESTS if was_heard => Ok(AnswerEnd::Lost(why)),
        _ => Err(answer.refused(node, format!("{node} refused the request: {why}"))),
    }
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use crate::command::parsed;

    /// The error without a log named only `--ws`.
    #[test]
    fn one_log_must_be_named() {
        let followed = |log: &[&str]| {
            let line = [&["vvm", "logs", "follow"], log].concat();
            parsed(line).map(drop).map_err(|error| (error.kind(), error.to_string()))
        };
        for log in [["--ws", "1"], ["--partition", "1"]] {
            followed(&log).unwrap();
        }
        let (kind, text) = followed(&[]).unwrap_err();
        assert_eq!(kind, ErrorKind::MissingRequiredArgument);
        assert!(text.contains("<--ws <NUMBER>|--partition <NUMBER>>"), "{text}");
        let (kind, text) = followed(&["--ws", "1", "--partition", "1"]).unwrap_err();
        assert_eq!(kind, ErrorKind::ArgumentConflict, "{text}");
    }
}
