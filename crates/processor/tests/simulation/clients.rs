//! The commands that clients send, and the answers to them.

use std::{collections::BTreeSet, sync::Arc};

use clock::Instant;
use eventlog::{Epoch, RecordId, Version, WsId};
use processor::{
    Answer, Command, Done, IdempotencyKey, Refused, Rejection, RejectionKind, RowChange,
};
use shop::{TestFence, article, bill, create_workspace, cud, new_row, qname, text, update};
use tokio::task::JoinHandle;

use crate::{call_turns::Dice, defects::Defect};

/// The workspaces of the clients, all in one partition.
const WORKSPACES: [u64; 3] = [11, 21, 31];

/// The first of the workspaces that clients create later, each in the same partition.
const FIRST_LATER_WORKSPACE: u64 = 51;
const PARTITIONS: u64 = 10;

/// The ids of the descriptor of a workspace, and of its settings.
const WORKSPACE: RecordId = RecordId(65_536);
const SETTINGS: RecordId = RecordId(65_600);

/// The number of records that clients remember. The number is small, so that commands meet at the
/// same records.
const KNOWN: usize = 6;

/// A command that is under way.
#[derive(Debug)]
pub(crate) struct PendingCommand {
    pub(crate) sent: SentCommand,
    pub(crate) deadline: Instant,
    /// The epoch of the leader that the command was sent to.
    pub(crate) epoch: u64,
    pub(crate) fence: Arc<TestFence>,
    pub(crate) task: JoinHandle<Result<Done, Refused>>,
}

/// A command that was sent.
#[derive(Clone, Debug)]
pub(crate) struct SentCommand {
    pub(crate) request: String,
    command: Command,
    /// The idempotency key, if the command can be sent again.
    key: Option<String>,
    /// Whether clients knew that the workspace existed when the command was sent.
    has_workspace: bool,
    /// Whether the outcome was unknown before.
    was_unknown: bool,
}

impl SentCommand {
    fn new(request: String, command: Command) -> SentCommand {
        SentCommand { request, command, key: None, has_workspace: false, was_unknown: false }
    }

    /// The workspace of the command.
    pub(crate) fn ws(&self) -> WsId {
        self.command.ws
    }

    pub(crate) fn command(&self, deadline: Instant) -> Command {
        let request = self.request.clone();
        Command { request, deadline, ..self.command.clone() }
    }

    /// The singleton that the command makes in its workspace, if any.
    fn makes(&self) -> Option<RecordId> {
        let is_settings = |row: &RowChange| matches!(row, RowChange::Create { table, .. } if table.as_str() == "shop.Settings");
        match self.command.name.as_str() {
            "sys.CreateWorkspace" => Some(WORKSPACE),
            _ => self.command.rows.iter().any(is_settings).then_some(SETTINGS),
        }
    }
}

/// The stored rows that clients know of, and the commands that they may send again.
#[derive(Debug, Default)]
pub(crate) struct Knowledge {
    records: Vec<(u64, RecordId, Version)>,
    keyed: Vec<SentCommand>,
    /// Commands with a key whose outcome is unknown. Clients send them again until they are
    /// settled, as the API does.
    unsettled: Vec<SentCommand>,
    workspaces: BTreeSet<u64>,
    /// Singletons that a client learned of from a conflict.
    pub(crate) singletons: BTreeSet<(WsId, RecordId)>,
    requests: u64,
    /// Whether clients mostly change the first record that they made.
    changes_one_record: bool,
    /// The number of workspaces that clients created later.
    later: u64,
    /// The workspace that a client has just created, if no command was sent to it yet.
    newest: Option<u64>,
}

impl Knowledge {
    pub(crate) fn of(defect: Option<Defect>) -> Knowledge {
        let changes_one_record = defect == Some(Defect::OlderWrittenConditionally);
        Knowledge { changes_one_record, ..Knowledge::default() }
    }

    /// The number of requests so far.
    pub(crate) fn requests(&self) -> u64 {
        self.requests
    }

    /// Whether the next command follows the one before it at once.
    pub(crate) fn follows(&self) -> bool {
        self.newest.is_some()
    }

    /// Returns one of the records that clients know of.
    pub(crate) fn record(&self, dice: &Dice) -> Option<(WsId, RecordId)> {
        dice.of_slice(&self.records).map(|(ws, id, _)| (WsId(*ws), *id))
    }

    /// Learns from a command that was done.
    pub(crate) fn learn(&mut self, sent: &SentCommand, done: &Done) {
        let (version, Done { answer: Answer { ids, .. }, is_repeated, .. }) =
            (done.version(), done);
        if sent.makes() == Some(WORKSPACE) {
            self.workspaces.insert(sent.command.ws.0);
        }
        if !*is_repeated {
            let ids = ids.iter().map(|(_, id)| (sent.command.ws.0, *id, version));
            self.records.extend(ids.filter(|(_, id, _)| id.0 > 1 << 20));
            if self.changes_one_record {
                self.records.truncate(1);
            }
            let surplus = self.records.len().saturating_sub(KNOWN);
            self.records.drain(..surplus);
        }
    }

    /// Learns that the outcome of a command is unknown, or that the command was not done now.
    pub(crate) fn learn_unsettled(&mut self, sent: &SentCommand, is_unknown: bool) {
        if sent.key.is_some() && (is_unknown || sent.was_unknown) {
            self.unsettled.push(SentCommand { was_unknown: true, ..sent.clone() });
        }
    }

    /// Learns from a command that was rejected.
    ///
    /// # Panics
    /// If the command must not be rejected for this reason.
    pub(crate) fn learn_why(&mut self, sent: &SentCommand, why: &Rejection) {
        let is_homeless = why.message.starts_with("there is no workspace");
        assert!(!is_homeless || !sent.has_workspace, "{}: {why}", sent.request);
        if why.kind == RejectionKind::Conflict
            && let Some(id) = sent.makes()
        {
            self.singletons.insert((sent.command.ws, id));
        }
    }

    /// A command that makes another workspace, and a command with a key that goes to it at once.
    pub(crate) fn pair(&mut self) -> [SentCommand; 2] {
        let ws = self.later_workspace();
        let create = create_workspace(ws, Instant::FAR_FUTURE);
        let first = cud(ws, article("first"), Instant::FAR_FUTURE);
        [(create, false), (first, true)].map(|(command, has_key)| {
            self.requests += 1;
            let mut sent = SentCommand::new(format!("r{}", self.requests), command);
            if has_key {
                sent.key = Some(sent.request.clone());
                sent.command.idempotency_key = Some(repeat(&sent, "body"));
            }
            sent
        })
    }

    /// Takes a command with a key and an unknown outcome.
    pub(crate) fn take_unsettled(&mut self) -> Option<SentCommand> {
        self.unsettled.pop()
    }

    fn later_workspace(&mut self) -> u64 {
        self.later += 1;
        FIRST_LATER_WORKSPACE + PARTITIONS * (self.later - 1)
    }

    /// The next command of a client.
    pub(crate) fn next(&mut self, dice: &Dice) -> SentCommand {
        let sent = self.any(dice);
        let has_workspace = self.workspaces.contains(&sent.command.ws.0);
        SentCommand { has_workspace, ..sent }
    }

    fn any(&mut self, dice: &Dice) -> SentCommand {
        self.requests += 1;
        if dice.one_in(2)
            && let Some(sent) = self.take_unsettled()
        {
            return sent;
        }
        if dice.one_in(4)
            && let Some(sent) = dice.of_slice(&self.keyed)
        {
            let mut sent = sent.clone();
            if dice.one_in(6) {
                // Another command with the same key.
                sent.request = format!("r{}", self.requests);
                sent.command.idempotency_key = Some(repeat(&sent, &sent.request));
            }
            return sent;
        }
        // The command to a workspace follows right after its creation. If the event of the creation
        // is not in the log, the command is rejected.
        let newest = self.newest.take();
        let command = match newest {
            Some(ws) => cud(ws, article("first"), Instant::FAR_FUTURE),
            None if dice.one_in(10) => {
                let ws = self.later_workspace();
                self.newest = Some(ws);
                create_workspace(ws, Instant::FAR_FUTURE)
            }
            None => self.command(dice),
        };
        let mut sent = SentCommand::new(format!("r{}", self.requests), command);
        if newest.is_some() || dice.one_in(2) {
            sent.key = Some(sent.request.clone());
            sent.command.idempotency_key = Some(repeat(&sent, "body"));
            self.keyed.push(sent.clone());
        }
        sent
    }

    fn command(&self, dice: &Dice) -> Command {
        let ws = *dice.of_slice(&WORKSPACES).unwrap();
        let rows = |rows| cud(ws, rows, Instant::FAR_FUTURE);
        let called = format!("x{}", self.requests);
        let unknown = (
            ws,
            RecordId(322_685_000_131_099),
            Version { epoch: Epoch(1), plog: eventlog::Offset(1) },
        );
        let (of, id, version) = dice.of_slice(&self.records).copied().unwrap_or(unknown);
        let updates = |changes| cud(of, changes, Instant::FAR_FUTURE);
        match dice.below(20) {
            _ if self.changes_one_record && !self.records.is_empty() && dice.below(10) < 9 => {
                updates(vec![update(id, None, &called)])
            }
            _ if self.requests < 20 && dice.one_in(2) => create_workspace(ws, Instant::FAR_FUTURE),
            0 => create_workspace(ws, Instant::FAR_FUTURE),

            1..7 => rows(article(&called)),
            7..9 => rows(bill(&called)),
            9..12 => updates(vec![update(id, None, &called)]),
            12..15 => updates(vec![update(id, Some(version), &called)]),
            15 => {
                // Two records, one of them changed by two calls of the handler.
                let again = update(id, None, "again");
                let order = new_row(1, "shop.Order", [("name", text("o"))]);
                let rows = updates(vec![update(id, None, &called), order, again]);
                Command { name: qname("shop.Twice"), ..rows }
            }
            16 => rows(vec![new_row(1, "shop.Settings", [("name", text(&called))])]),
            17 => rows(vec![new_row(1, "shop.Nothing", [])]),
            18 => Command { name: qname("shop.Nothing"), ..rows(vec![]) },
            // The first row is right, and takes a number.
            _ => rows(vec![
                new_row(1, "shop.Bill", []),
                new_row(2, "shop.Bill", [("cents", text("x"))]),
            ]),
        }
    }
}

fn repeat(sent: &SentCommand, body: &str) -> IdempotencyKey {
    let key = sent.key.as_deref().unwrap_or_default();
    IdempotencyKey::new("joe", key.as_bytes(), body.as_bytes())
}
