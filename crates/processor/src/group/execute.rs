//! Executes one command: looks for its stored answer, finds the kind of its workspace, and runs its
//! handler.
//!
//! Invariant: a command keeps its offset and its numbers only when nothing can fail any more.

use std::{mem, panic::AssertUnwindSafe, sync::Arc};

use base::with_causes;
use bytes::Bytes;
use clock::Instant;
use eventlog::{
    AppRow, DrawnNumber, Event, EventPlace, Idempotency, Offset, PreparedEvent, RecordChange,
    RecordId, StoredRecord, Value, Version, istorage::FoundRow,
};
use futures::FutureExt;
use isequencer::{JoinError, StorageError, Transaction, WsKind, standard};
use tracing::warn;

use super::{CommandGroup, CommandOutcome, WaitingCommand};
use crate::{
    Answer, Busy, Command, CommandContext, Done, Handler, HandlerError, MOST_RESULT_BYTES, Refused,
    Rejection, RejectionKind,
    builtin::{CREATE_WORKSPACE, NewWorkspace},
    command_context::{DraftedRows, EventDraft, EventHead, Numbers},
    outdated::OutdatedRecord,
    partition_context::PartitionContext,
    queue::QueuedCommand,
    system_tables::{DESCRIPTOR_ID, KIND},
};

/// The reason why running a command made no event.
pub(super) enum RunError {
    Rejected(Rejection),
    /// A row that the command needs cannot be read.
    Unreadable(eventlog::Error),
    /// The numbers of the workspace cannot be read.
    NoNumbers(JoinError),
    /// The handler was not done at the deadline of its command.
    TimedOut,
    /// The command must wait for the next group.
    Deferred(Box<Command>),
}

impl From<Rejection> for RunError {
    fn from(rejection: Rejection) -> RunError {
        RunError::Rejected(rejection)
    }
}

impl From<eventlog::Error> for RunError {
    fn from(error: eventlog::Error) -> RunError {
        RunError::Unreadable(error)
    }
}

impl From<HandlerError> for RunError {
    fn from(error: HandlerError) -> RunError {
        match error {
            HandlerError::Rejected(rejection) => RunError::Rejected(rejection),
            HandlerError::Storage(error) => RunError::Unreadable(error),
        }
    }
}

/// The effects of a handler that succeeded.
struct HandlerEffects {
    changes: Vec<RecordChange>,
    /// The stored rows of the records that the command replaces.
    before: Vec<(RecordId, FoundRow)>,
    answer: Answer,
}

impl CommandGroup {
    /// Runs a command. The command is returned if the group has no room for it, or if its handler
    /// is not done at `until`.
    pub(crate) async fn add(
        &mut self,
        partition: &mut PartitionContext,
        transaction: &mut Transaction<'_>,
        queued: QueuedCommand,
        until: Instant,
    ) -> Option<QueuedCommand> {
        let QueuedCommand { command, reply, since, was_read_ahead } = queued;
        if !reply.take() {
            return None;
        }
        // While the end of the log is not fenced, a rejection also rests on the fence: the first
        // entry of the group.
        let rests_on = self.events.len().max(usize::from(!partition.is_fenced()));
        let outcome = match self.run(partition, transaction, command, until).await {
            Ok(outcome) => outcome,
            Err(RunError::Deferred(command)) => {
                reply.put_back();
                return Some(QueuedCommand { command, reply, since, was_read_ahead });
            }
            Err(RunError::Rejected(rejection)) => {
                CommandOutcome::Refused(Refused::Rejected(rejection))
            }
            Err(RunError::Unreadable(error)) => CommandOutcome::Refused(self.refuse_unread(&error)),
            Err(RunError::NoNumbers(error)) => {
                self.unread.ends_group = true;
                if let JoinError::Storage(.., StorageError(error)) = &error
                    && let Some(error) = error.downcast_ref::<eventlog::Error>()
                {
                    let damaged = error.obstacle().map(|row| (row, with_causes(error)));
                    self.unread.damaged.extend(damaged);
                }
                CommandOutcome::Refused(Refused::Busy(Busy::Storage(with_causes(&error))))
            }
            Err(RunError::TimedOut) => CommandOutcome::Refused(Refused::Busy(Busy::TimedOut)),
        };
        self.waiting.push(WaitingCommand { reply, outcome, rests_on });
        None
    }

    /// Refuses a command because a row that it needs cannot be read. A damaged row stays damaged
    /// until an operator repairs it, and other commands do not need that row. So damage rejects
    /// only this command, and any other error ends the group.
    ///
    /// An outdated record stops the partition: the storage has lost a write, and perhaps more than
    /// this one.
    fn refuse_unread(&mut self, error: &eventlog::Error) -> Refused {
        let what = with_causes(error);
        if let Some(outdated) = OutdatedRecord::of(error) {
            self.unread.outdated = Some(outdated);
            self.unread.ends_group = true;
            return Refused::Busy(Busy::Violation(what));
        }
        if error.is_lasting() {
            warn!(error = what, "a command needs a damaged row");
            self.unread.damaged.extend(error.obstacle().map(|row| (row, what.clone())));
            let what = format!("{what}: repair the row");
            return Refused::Rejected(Rejection::new(RejectionKind::Internal, what));
        }
        self.unread.ends_group = true;
        if let eventlog::Error::UnexpectedEvent(by) = error {
            self.unread.unexpected_event = self.unread.unexpected_event.max(Some(*by));
        }
        Refused::Busy(Busy::Storage(what))
    }

    /// Runs a command and adds its event to the group.
    ///
    /// Invariant: every step that can fail comes before `keep`. A simpler version keeps the offset
    /// first. Command 1 keeps offset 7, and is then refused because its event is too large; command
    /// 2 keeps offset 8, and its event is written. So offset 7 is a gap in the log, and no replay
    /// gets past the gap.
    async fn run(
        &mut self,
        partition: &mut PartitionContext,
        transaction: &mut Transaction<'_>,
        command: Box<Command>,
        until: Instant,
    ) -> Result<CommandOutcome, RunError> {
        if let Some(outcome) = self.done_before(partition, &command).await? {
            return Ok(outcome);
        }
        let ws = command.ws;
        let (application, carried) = (Arc::clone(&partition.application), command.bytes());
        let Some(handler) = application.handler(&command.name) else {
            let what = format!("there is no command {}", command.name);
            return Err(Rejection::not_found(what).into());
        };
        let kind = self.kind(partition, &command).await?;
        let mut joined = match transaction.join(kind, ws).await {
            Ok(joined) => joined,
            Err(JoinError::Full) => return Err(RunError::Deferred(command)),
            Err(error @ JoinError::UnknownKind(_)) => {
                return Err(Rejection::new(RejectionKind::Internal, error.to_string()).into());
            }
            Err(error @ JoinError::Storage(..)) => return Err(RunError::NoNumbers(error)),
        };
        let no_number = |what| Rejection::new(RejectionKind::NoNumber, what);
        if joined.offset() > Offset::LAST {
            let what = "the log of the partition has no offset left: the partition takes no \
                        commands any more, and its data can be read";
            return Err(no_number(what.to_owned()).into());
        }
        let wlog = joined.next(standard::WLOG_OFFSET);
        let wlog = Offset(wlog.map_err(|error| no_number(error.to_string()))?);
        // The time of the event is fixed before the handler runs: the handler draws document
        // numbers of the period in which the event is.
        //
        // All events of a group have one time. A simpler version reads the clock for each event.
        // The clock steps by a day between events 7 and 8; both are written, and the node ends
        // before their answers are stored. The next leader would take event 7 for a day old, and
        // would leave out its answer, so its command would be done again.
        if self.events.is_empty() {
            partition.time.advance(partition.clock.wall());
        }
        let head = EventHead { kind, ws, wlog, time: partition.time.last() };
        let (command, HandlerEffects { changes, before, answer }) =
            self.handle(partition, handler.as_ref(), head, &mut joined, command, until).await?;
        let place = {
            let (epoch, plog) = (partition.log.fence().epoch(), joined.offset());
            EventPlace { epoch, plog, ws, wlog }
        };
        let drawn =
            joined.drawn().map(|(key, last)| DrawnNumber { seq: key.seq.0, last }).collect();
        let Command { name, params, request, principal, idempotency_key, .. } = *command;
        let idempotency = idempotency_key.map(|own| Idempotency {
            key: own.key,
            body: own.body,
            answer: answer.to_bytes(),
        });
        let event = Event {
            place,
            time: head.time,
            request,
            principal,
            idempotency,
            command: name,
            params,
            changes,
            drawn,
        };
        let prepared = prepare(&event, &before, partition.log.largest_row())?;
        let now = partition.clock.now();
        partition.write_allowance.count(&event.principal, carried, prepared.bytes(), now);
        // From here on nothing can fail any more, so the offset and the numbers are given for good.
        let offset = joined.keep();
        debug_assert_eq!(offset.0, place.plog.0);
        Ok(CommandOutcome::Event(self.push(event, prepared), answer))
    }

    /// The answer to a command with an idempotency key that was done before; `None` if the command
    /// was not done.
    ///
    /// Invariant: a stored answer counts only if the log has its event. A simpler version trusts
    /// every stored answer. At trust level 2, leader A sends its event 7 with the stored answer,
    /// and stalls; leader B recovers, and writes another event 7; then the answer of A lands. So
    /// the command of A was not done, although its answer is stored.
    async fn done_before(
        &self,
        partition: &PartitionContext,
        command: &Command,
    ) -> Result<Option<CommandOutcome>, RunError> {
        let Some(own) = command.idempotency_key.as_ref() else { return Ok(None) };
        let reused = || {
            let what = "the idempotency key was used before, for another command";
            Err(Rejection::new(RejectionKind::KeyReused, what).into())
        };
        if let Some((event, body)) = self.keys_in_group.get(&(command.ws, own.key)) {
            return if *body == own.body {
                Ok(Some(CommandOutcome::DuplicateInGroup(*event)))
            } else {
                reused()
            };
        }
        let row = AppRow::Answer(command.ws, own.key);
        let bytes = match self.known_rows.get(&row) {
            Some(found) => found.map(|found| found.value),
            None => partition.log.reader().row(row).await?,
        };
        let Some(bytes) = bytes else { return Ok(None) };
        let stored = row.answer(&bytes).map_err(eventlog::Error::from)?;
        let EventPlace { epoch, plog, wlog, .. } = stored.place;
        partition.log_end.check(row, Version { epoch, plog })?;
        // Events past the end of the log are not in the log, even if their rows are there.
        if plog >= partition.log_end.next || !partition.log.has_event(stored.place).await? {
            return Ok(None);
        }
        if stored.body != own.body {
            return reused();
        }
        let Some(answer) = Answer::from_bytes(&stored.answer) else {
            let what = "the stored answer of the command cannot be read";
            return Err(Rejection::new(RejectionKind::Internal, what).into());
        };
        let done = Done { epoch, plog, wlog, answer, is_repeated: true };
        Ok(Some(CommandOutcome::AlreadyDone(done)))
    }

    /// The kind of the workspace of a command, as the earlier commands of the group leave the
    /// workspace. For a command that creates a workspace: the kind that the workspace will have.
    ///
    /// Invariant: only the kind of a stored workspace is remembered. A simpler version remembers
    /// every kind. Command 1 creates a workspace; command 2 of the same group finds its kind; the
    /// write of the group fails. So command 3 would run in a workspace that does not exist.
    pub(super) async fn kind(
        &self,
        partition: &mut PartitionContext,
        command: &Command,
    ) -> Result<WsKind, RunError> {
        let ws = command.ws;
        if command.name.as_str() == CREATE_WORKSPACE {
            let NewWorkspace { kind, .. } = NewWorkspace::read(&command.params)?;
            let known = partition.application.declarations().kinds().get(&kind).copied();
            return known.ok_or_else(|| {
                let what = format!("the application has no kind of workspaces `{kind}`");
                Rejection::invalid(what).into()
            });
        }
        if let Some(kind) = partition.kinds.get(&ws) {
            return Ok(*kind);
        }
        let view = partition.view(&self.overlay, &self.known_rows);
        let Some(read) = view.read(ws, DESCRIPTOR_ID).await? else {
            return Err(Rejection::not_found(format!("there is no workspace {}", ws.0)).into());
        };
        let StoredRecord { record, .. } = &read.stored;
        let kind = match record.fields.get(KIND) {
            Some(Value::String(kind)) => {
                partition.application.declarations().kinds().get(kind).copied()
            }
            _ => None,
        };
        let Some(kind) = kind else {
            let what = format!("the application does not declare the kind of workspace {}", ws.0);
            return Err(Rejection::new(RejectionKind::Internal, what).into());
        };
        if read.row.is_some() {
            partition.kinds.put(ws, kind);
        }
        Ok(kind)
    }

    /// Runs the handler of a command. Returns the command without its rows.
    async fn handle(
        &self,
        partition: &PartitionContext,
        handler: &dyn Handler,
        head: EventHead,
        numbers: &mut dyn Numbers,
        mut command: Box<Command>,
        until: Instant,
    ) -> Result<(Box<Command>, HandlerEffects), RunError> {
        let declarations = partition.application.declarations();
        // The rows for commands of the system were read ahead. A handler of the application reads
        // by itself, and the rest of the group would wait for these reads. So only such a handler
        // is deferred.
        let may_come_back = until < command.deadline && command.name.package() != "sys";
        let rows = mem::take(&mut command.rows);
        // The handler consumes its rows, even if the handler is dropped before it is done.
        let again = may_come_back.then(|| rows.clone());
        let view = partition.view(&self.overlay, &self.known_rows);
        let draft = EventDraft::new(declarations, head, &view, numbers, rows.len());
        let mut context = CommandContext { draft, has_failed: false };
        let ran = async {
            let result = handler.run(&command.params, rows, &mut context).await?;
            if context.has_failed {
                let name = &command.name;
                let what = format!("the handler of {name} went on after rows could not be written");
                return Err(Rejection::new(RejectionKind::Internal, what).into());
            }
            context.draft.judge().await?;
            Ok::<_, HandlerError>(result)
        };
        let ran = AssertUnwindSafe(ran).catch_unwind();
        let until = if again.is_some() { until } else { command.deadline };
        let result = match partition.clock.timeout_at(until, ran).await {
            Ok(Ok(result)) => result?,
            Ok(Err(_)) => {
                let what = format!("the handler of {} panicked", command.name);
                return Err(Rejection::new(RejectionKind::Internal, what).into());
            }
            Err(_) => {
                return Err(match again {
                    Some(rows) => {
                        command.rows = rows;
                        RunError::Deferred(command)
                    }
                    None => RunError::TimedOut,
                });
            }
        };
        let DraftedRows { changes, before, ids } = context.draft.into_rows();
        check_result(&command, &result)?;
        let answer = Answer { ids, result, ..Answer::default() };
        let answer = answer.with_drawn(declarations.schema(), &changes);
        Ok((command, HandlerEffects { changes, before, answer }))
    }

    /// Adds an event to the group. Returns the index of the event.
    fn push(&mut self, event: Event, prepared: PreparedEvent) -> usize {
        let (index, place) = (self.events.len(), event.place);
        if let Some(own) = &event.idempotency {
            self.keys_in_group.insert((place.ws, own.key), (index, own.body));
        }
        self.bytes += prepared.bytes();
        self.events.push(prepared);
        self.overlay.add(place, event.changes);
        index
    }
}

/// Refuses a result that is larger than the command allows, or than any command may.
fn check_result(command: &Command, result: &Bytes) -> Result<(), Rejection> {
    let most = command.most_result_bytes.min(MOST_RESULT_BYTES);
    if result.len() <= most {
        return Ok(());
    }
    let (name, bytes) = (&command.name, result.len());
    let what =
        format!("the result of {name} has {bytes} bytes, and at most {most} are allowed here");
    Err(Rejection::new(RejectionKind::ResultTooLarge, what))
}

/// Packs an event. Refuses an event with a row that is larger than `limit`.
fn prepare(
    event: &Event,
    before: &[(RecordId, FoundRow)],
    limit: usize,
) -> Result<PreparedEvent, Rejection> {
    let read =
        |id: RecordId| before.iter().find(|(read, _)| *read == id).map(|(_, row)| row.clone());
    let prepared = PreparedEvent::new(event, read);
    let largest = prepared.largest_row();
    if largest > limit {
        let what =
            format!("the command writes a row of {largest} bytes, and a row has room for {limit}");
        return Err(Rejection::new(RejectionKind::TooLarge, what));
    }
    Ok(prepared)
}
