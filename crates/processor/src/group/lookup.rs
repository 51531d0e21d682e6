//! The rows that decide about a command before its handler runs: its stored answer, and the
//! descriptor of its workspace.

use eventlog::{AppRow, EventPlace, StoredRecord, Value, Version};
use isequencer::WsKind;

use super::{CommandGroup, CommandOutcome, execute::RunError};
use crate::{
    Answer, Command, Done, Rejection, RejectionKind,
    application::{DESCRIPTOR_ID, KIND},
    builtin::{CREATE_WORKSPACE, NewWorkspace},
    partition_context::PartitionContext,
};

impl CommandGroup {
    /// The answer to a command with an idempotency key that was done before; `None` if the command
    /// was not done.
    ///
    /// Invariant: a stored answer counts only if the log has its event. A simpler version trusts
    /// every stored answer. At trust level 2, leader A sends its event 7 with the stored answer,
    /// and stalls; leader B recovers, and writes another event 7; then the answer of A lands. So
    /// the command of A was not done, although its answer is stored.
    pub(super) async fn done_before(
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
        // Events behind the end of the log are not in the log, even if their rows are there.
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
            let known = partition.application.kinds().get(&kind).copied();
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
            Some(Value::String(kind)) => partition.application.kinds().get(kind).copied(),
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
}
