//! Executes one command: looks for its stored answer, finds the kind of its workspace, and runs its
//! handler.
//!
//! Invariant: a command keeps its offset and its numbers only when nothing can fail any more.

use std::{mem, panic::AssertUnwindSafe, sync::Arc};

use clock::{Clock, Instant, WallTime};
use eventlog::{
    Drawn, Event, Idempotency, Log, Offset, Place, Prepared, RecordId, Row, StoredRecord, Value,
    Version, WsId,
};
use futures::FutureExt;
use isequencer::{NotJoined, Transaction, WsKind, standard};
use tracing::warn;

use super::{CommandGroup, CommandOutcome, ReadAheadRows, WaitingCommand};
use crate::{
    Answer, Application, Busy, Command, CommandContext, Done, HandlerError, Refused, Rejection,
    RejectionKind,
    application::{DESCRIPTOR_ID, KIND},
    builtin::{CREATE_WORKSPACE, NewWorkspace},
    handler::PositionIndex,
    in_full,
    queue::QueuedCommand,
    recent::Recent,
    state::{GroupView, LogEnd, Overlay},
};

/// The state of a partition that its groups share.
#[derive(Debug)]
pub(crate) struct PartitionContext {
    pub(crate) application: Arc<Application>,
    pub(crate) log: Arc<Log>,
    pub(crate) clock: Clock,
    /// The kinds of workspaces that have a stored descriptor.
    pub(crate) kinds: Recent<WsId, WsKind>,
    /// The time of the last event.
    pub(crate) time: WallTime,
    /// The end of the log as this node knows it.
    pub(crate) log_end: LogEnd,
    /// The offset up to which the replay looks for events that rows named and that this node had
    /// not seen.
    pub(crate) searched_to: Offset,
}

impl PartitionContext {
    fn state<'g>(&'g self, overlay: &'g Overlay, ahead: &'g ReadAheadRows) -> GroupView<'g> {
        GroupView { overlay, ahead, reader: self.log.reader(), log_end: self.log_end }
    }
}

/// The result of running a command that was to join a group.
enum Step {
    CommandOutcome(CommandOutcome),
    /// The command must wait for the next group.
    Full(Command),
}

impl From<Refused> for Step {
    fn from(refused: Refused) -> Step {
        Step::CommandOutcome(CommandOutcome::Refused(refused))
    }
}

fn rejected(rejection: Rejection) -> Step {
    Refused::Rejected(rejection).into()
}

impl CommandGroup {
    /// Refuses a command because a row that it needs cannot be read. A damaged row stays damaged
    /// until an operator puts it right, and other commands do not need that row. So damage rejects
    /// only this command, and any other error ends the group.
    fn not_read(&mut self, error: &eventlog::Error) -> Step {
        let what = in_full(error);
        if error.is_lasting() {
            warn!(what, "a command needs a row that cannot be read");
            let what = format!("{what}: an operator must put it right");
            return rejected(Rejection::new(RejectionKind::Internal, what));
        }
        self.is_hindered = true;
        if let eventlog::Error::Overtaken(by) = error {
            self.overtaken = self.overtaken.max(Some(*by));
        }
        Refused::Busy(Busy::Storage(what)).into()
    }

    /// Runs a command. The command is returned if the group has no room for it, or if its handler
    /// is not done at `until`.
    pub(crate) async fn add(
        &mut self,
        partition: &mut PartitionContext,
        transaction: &mut Transaction<'_>,
        queued: QueuedCommand,
        until: Instant,
    ) -> Option<QueuedCommand> {
        let QueuedCommand { command, reply, since, is_read_for } = queued;
        if !reply.take() {
            return None;
        }
        let sees = self.events.len();
        match self.run(partition, transaction, command, until).await {
            Step::CommandOutcome(outcome) => {
                self.waiting.push(WaitingCommand { reply, outcome, sees });
                None
            }
            Step::Full(command) => {
                reply.put_back();
                Some(QueuedCommand { command, reply, since, is_read_for })
            }
        }
    }

    async fn run(
        &mut self,
        partition: &mut PartitionContext,
        transaction: &mut Transaction<'_>,
        mut command: Command,
        until: Instant,
    ) -> Step {
        match self.repeated(partition, &command).await {
            Ok(None) => {}
            Ok(Some(step)) => return step,
            Err(error) => return self.not_read(&error),
        }
        let ws = command.ws;
        let application = Arc::clone(&partition.application);
        let Some(handler) = application.handler(&command.name) else {
            let what = format!("there is no command {}", command.name);
            return rejected(Rejection::not_found(what));
        };
        let kind = match self.kind(partition, &command).await {
            Ok(Ok(kind)) => kind,
            Ok(Err(rejection)) => return rejected(rejection),
            Err(error) => return self.not_read(&error),
        };
        let mut joined = match transaction.join(kind, isequencer::WsId(ws.0)).await {
            Ok(joined) => joined,
            Err(NotJoined::Full) => return Step::Full(command),
            Err(error @ NotJoined::UnknownKind(_)) => {
                return rejected(Rejection::new(RejectionKind::Internal, error.to_string()));
            }
            Err(error @ NotJoined::Storage(..)) => {
                self.is_hindered = true;
                return Refused::Busy(Busy::Storage(in_full(&error))).into();
            }
        };
        let wlog = match joined.next(standard::WLOG_OFFSET) {
            Ok(wlog) => Offset(wlog),
            Err(error) => return rejected(Rejection::conflict(error.to_string())),
        };
        // The rows for commands of the system were read ahead. A handler of the application reads
        // by itself, and the rest of the group waits for these reads.
        let may_come_back = until < command.deadline && !application.is_of_system(&command.name);
        let rows = mem::take(&mut command.rows);
        // The handler consumes its rows, even if the handler is dropped before it is done.
        let again = may_come_back.then(|| rows.clone());
        let state = partition.state(&self.overlay, &self.ahead);
        let mut context = CommandContext {
            application: &application,
            ws,
            kind,
            state: &state,
            numbers: &mut joined,
            changes: Vec::with_capacity(rows.len()),
            before: Vec::new(),
            ids: Vec::with_capacity(rows.len()),
            changes_by_id: PositionIndex::default(),
            ids_by_raw: PositionIndex::default(),
            bytes: 0,
            has_failed: false,
        };
        let ran = AssertUnwindSafe(handler.run(&command.params, rows, &mut context)).catch_unwind();
        let until = if again.is_some() { until } else { command.deadline };
        let ran = partition.clock.timeout_at(until, ran).await;
        let name = &command.name;
        let result = match ran {
            Ok(Ok(Ok(result))) => result,
            Ok(Ok(Err(HandlerError::Rejected(rejection)))) => return rejected(rejection),
            Ok(Ok(Err(HandlerError::Storage(error)))) => return self.not_read(&error),
            Ok(Err(_)) => {
                let what = format!("the handler of {name} panicked");
                return rejected(Rejection::new(RejectionKind::Internal, what));
            }
            Err(_) => {
                let timed_out = || Refused::Busy(Busy::TimedOut).into();
                return again
                    .map_or_else(timed_out, |rows| Step::Full(Command { rows, ..command }));
            }
        };
        let CommandContext { changes, before, ids, has_failed, .. } = context;
        if has_failed {
            let what = format!("the handler of {name} went on after rows could not be written");
            return rejected(Rejection::new(RejectionKind::Internal, what));
        }
        let Command { name, params, request, idempotency_key, .. } = command;
        let answer = Answer { ids, result };
        let (epoch, plog) = (partition.log.epoch(), Offset(joined.offset().get()));
        let place = Place { epoch, plog, ws, wlog };
        let drawn = joined.drawn().map(|(key, last)| Drawn { seq: key.seq.0, last }).collect();
        partition.time = partition.time.max(partition.clock.wall());
        let event = Event {
            place,
            time: partition.time,
            request,
            idempotency: idempotency_key.map(|own| Idempotency {
                principal: own.principal,
                key: own.key,
                body: own.body,
                answer: answer.to_bytes(),
            }),
            command: name,
            params,
            changes,
            drawn,
        };
        let read = |id: RecordId| {
            before.iter().find(|(read, _)| *read == id).map(|(_, bytes)| bytes.clone())
        };
        let prepared = Prepared::new(&event, read);
        let (largest, limit) = (prepared.largest_row(), partition.log.largest_row());
        if largest > limit {
            let what = format!(
                "what it writes needs {largest} bytes in a row, and there is room for {limit}"
            );
            return rejected(Rejection::new(RejectionKind::TooLarge, what));
        }
        // From here on nothing can fail any more, so the offset and the numbers are given for good.
        let offset = joined.keep();
        debug_assert_eq!(offset.get(), plog.0);
        let index = self.events.len();
        if let Some(own) = &event.idempotency {
            self.repeats.insert((ws, own.key), (index, own.body));
        }
        self.bytes += prepared.bytes();
        self.events.push(prepared);
        self.overlay.add(place, event.changes);
        Step::CommandOutcome(CommandOutcome::Event(index, answer))
    }

    /// The answer to a command with an idempotency key that was done before; `None` if the command
    /// was not done.
    async fn repeated(
        &self,
        partition: &PartitionContext,
        command: &Command,
    ) -> Result<Option<Step>, eventlog::Error> {
        let Some(own) = command.idempotency_key.as_ref() else { return Ok(None) };
        let reused = || {
            let what = "the key was used before, for a command that said something else";
            Ok(Some(rejected(Rejection::new(RejectionKind::KeyReused, what))))
        };
        if let Some((event, body)) = self.repeats.get(&(command.ws, own.key)) {
            return if *body == own.body {
                Ok(Some(Step::CommandOutcome(CommandOutcome::Same(*event))))
            } else {
                reused()
            };
        }
        let row = Row::Answer(command.ws, own.key);
        let bytes = match self.ahead.get(&row) {
            Some(bytes) => bytes,
            None => partition.log.reader().row(row).await?,
        };
        let Some(bytes) = bytes else { return Ok(None) };
        let stored = row.answer(&bytes)?;
        let Place { epoch, plog, wlog, .. } = stored.place;
        partition.log_end.check(row, Version { epoch, plog })?;
        if !partition.log.has(stored.place).await? {
            return Ok(None);
        }
        if stored.body != own.body {
            return reused();
        }
        let Some(answer) = Answer::from_bytes(&stored.answer) else {
            let what = "the first answer cannot be read";
            return Ok(Some(rejected(Rejection::new(RejectionKind::Internal, what))));
        };
        let done = Done { epoch, plog, wlog, answer, is_repeated: true };
        Ok(Some(Step::CommandOutcome(CommandOutcome::Repeated(done))))
    }

    /// The kind of the workspace of a command, as the earlier commands of the group leave the
    /// workspace. For a command that creates a workspace: the kind that the workspace will have.
    pub(super) async fn kind(
        &self,
        partition: &mut PartitionContext,
        command: &Command,
    ) -> Result<Result<WsKind, Rejection>, eventlog::Error> {
        let ws = command.ws;
        if command.name.as_str() == CREATE_WORKSPACE {
            let kind = match NewWorkspace::read(&command.params) {
                Ok(NewWorkspace { kind, .. }) => kind,
                Err(rejection) => return Ok(Err(rejection)),
            };
            let known = partition.application.kinds().get(&kind).copied();
            return Ok(known.ok_or_else(|| {
                let what = format!("the application has no kind of workspaces `{kind}`");
                Rejection::invalid(what)
            }));
        }
        if let Some(kind) = partition.kinds.get(&ws) {
            return Ok(Ok(*kind));
        }
        let state = partition.state(&self.overlay, &self.ahead);
        let Some(read) = state.read(ws, DESCRIPTOR_ID).await? else {
            return Ok(Err(Rejection::not_found(format!("there is no workspace {}", ws.0))));
        };
        let StoredRecord { record, .. } = &read.stored;
        let kind = match record.fields.get(KIND) {
            Some(Value::String(kind)) => partition.application.kinds().get(kind).copied(),
            _ => None,
        };
        let Some(kind) = kind else {
            let what = format!("workspace {} is of a kind that the application has not", ws.0);
            return Ok(Err(Rejection::new(RejectionKind::Internal, what)));
        };
        if read.bytes.is_some() {
            partition.kinds.insert(ws, kind);
        }
        Ok(Ok(kind))
    }
}
