//! Events in the log whose rows may be missing.

use bytes::Bytes;
use hashbrown::HashMap;
use istorage::FoundRow;

use super::{Applier, CONDITIONAL_CHUNKS_AT_ONCE, combined_result, keys_of, run_all};
use crate::{
    AppRow, Entry, Epoch, PreparedEvent, Result, conflict,
    plan::{GroupWrites, RowKind, RowWrite, WriteMode},
};

impl Applier {
    /// Applies events that are in the log: writes what was planned for a group of them. Some of
    /// their rows may already be written.
    ///
    /// Invariant: a violation is returned only after all other rows are written. A simpler version
    /// returns at the first foreign row that it reads. Before the recovery, a write in workspace 1
    /// got no answer; the recovery finds a foreign row of workspace 2, and does not send the write
    /// again. So the outcome in workspace 1 stays unknown while the foreign row stays.
    pub(crate) async fn apply_again(
        &self,
        group: &[PreparedEvent],
        writes: GroupWrites,
    ) -> Result<()> {
        let GroupWrites { plog, rest, changes } = writes;
        self.write_log_again(plog, group).await?;
        let mut failed = Vec::new();
        let rest = self.still_needed(rest, &mut failed).await?;
        let changes = self.still_needed(changes, &mut failed).await?;
        if failed.is_empty() {
            return self.apply(rest, changes).await;
        }
        // After a violation no record is changed: it may be the record of another event.
        failed.push(self.apply(rest, Vec::new()).await);
        combined_result(failed)
    }

    /// Puts the events again that level 2 may have put into the log, with their orders.
    ///
    /// Invariant: an event that a recovery applies stays in the log. A simpler version trusts the
    /// read of the log. Leader A puts event 8, the put reaches one server of three, and A dies;
    /// leader B finds event 8 on that server and answers its command; the read of B was
    /// linearizable, and such a read repairs only what consensus has left open; the server is lost.
    /// So the next leader finds no event 8, and does the command again.
    ///
    /// The put does no harm if a later leader has another event in this place: the order of that
    /// event is higher, or consensus wrote it.
    async fn write_log_again(&self, plog: Vec<RowWrite>, group: &[PreparedEvent]) -> Result<()> {
        if !self.calls.reads_back() {
            return Ok(());
        }
        // Consensus wrote the other events, and all markers. It repairs them when they are read.
        let was_put =
            |event: &PreparedEvent| event.marked.is_none() && self.strays.may_be_stray(event.epoch);
        let put = plog.into_iter().zip(group).filter(|(_, event)| was_put(event));
        let put: Vec<RowWrite> = put.map(|(write, _)| write).collect();
        let until = self.calls.clock.now() + self.calls.settings.apply_for;
        let written = match put.is_empty() {
            true => Ok(()),
            false => self.calls.put_in_parts(&put, &self.calls.parts.log_puts, until).await,
        };
        self.note_applied(&written);
        written
    }

    /// Returns the writes that are still needed. Adds the violations of the others to `failed`.
    async fn still_needed(
        &self,
        writes: Vec<RowWrite>,
        failed: &mut Vec<Result<()>>,
    ) -> Result<Vec<RowWrite>> {
        // A record may hide ordered writes, at every level. Other ordered rows are not read first:
        // the storage keeps the right write.
        let depends = |write: &RowWrite| {
            write.is_judged() || matches!(write.kind, RowKind::Marker | RowKind::Record { .. })
        };
        let (looked_at, mut left): (Vec<_>, Vec<_>) = writes.into_iter().partition(depends);
        if looked_at.is_empty() {
            return Ok(left);
        }
        self.settle_writes_over_strays(&looked_at).await?;
        // These reads may be outdated. The conditions of the writes detect that.
        let until = self.calls.clock.now() + self.calls.settings.apply_for;
        let found = self.calls.read_rows(&keys_of(&looked_at), until).await?;
        for (write, found) in looked_at.into_iter().zip(found) {
            let there = found.as_ref().map(|found| &found.value);
            // A row that was read is not lost, so a row that is already written counts as
            // acknowledged. These are the rows whose writes are noted when they are read back.
            let written = match write.mode {
                WriteMode::ReadBack(_) => write.version(),
                WriteMode::Conditional(_) | WriteMode::Ordered(_) => None,
            };
            let needed = match self.replace_across_marker(write, there).await {
                Ok(write) => self.needed_over(write, found).await,
                Err(error) => Err(error),
            };
            match needed {
                Ok(Some(needed)) => left.push(needed),
                Ok(None) => self.acknowledged.note(written.into_iter()),
                Err(error) => failed.push(Err(error)),
            }
        }
        Ok(left)
    }

    /// Commits or rules out the conditional writes over strays that former leaders left open, in
    /// the storage partitions of new records.
    ///
    /// A simpler version does nothing. At level 0 leader A replaces a stray conditionally; servers
    /// accept this write, and A dies before it is committed; the put of the same event by its first
    /// leader lands; leader B finds the right row, and puts an update; a later conditional write of
    /// a neighbour commits that of A, which hides the update. So an acknowledged update would be
    /// missing.
    async fn settle_writes_over_strays(&self, writes: &[RowWrite]) -> Result<()> {
        if self.calls.settings.stray_before == Epoch(0) || !self.calls.reads_back() {
            return Ok(());
        }
        let is_new =
            |write: &&RowWrite| matches!(write.kind, RowKind::Record { replaces: None, .. });
        let partitions: HashMap<_, _> =
            writes.iter().filter(is_new).map(|write| (&write.key.pkey, write.row)).collect();
        let reads = partitions.into_values().map(async |row| self.calls.get(row).await.map(drop));
        run_all(reads, CONDITIONAL_CHUNKS_AT_ONCE).await
    }

    /// Returns a write if it is still needed over the row that was found.
    ///
    /// Invariant: a row that hides ordered writes and is behind is written conditionally, at every
    /// level. A simpler version puts records at levels 1 and 2. At level 2 leader A puts event 9,
    /// which updates a record that hides ordered writes, and crashes before the conditional write
    /// of the record; leader B puts the record, and the put is hidden. So the record stays behind.
    ///
    /// At levels 1 and 2 a foreign record stays, and hides the record of the event.
    async fn needed_over(
        &self,
        mut write: RowWrite,
        found: Option<FoundRow>,
    ) -> Result<Option<RowWrite>> {
        let there = found.as_ref().map(|found| &found.value);
        let hides_ordered = found.as_ref().is_some_and(|found| found.hides_ordered);
        let needs_condition = write.is_conditional() || hides_ordered;
        match conflict::judge_applied_row(&write, there) {
            Ok(None) => return Ok(None),
            Ok(Some(condition)) if needs_condition => write.mode = condition,
            Ok(Some(_)) => {}
            Err(_) if !write.is_judged() && !hides_ordered => {}
            Err(violation) => {
                let stray = match found {
                    Some(found) if self.strays.is_stray(&write, &found).await? => Some(found.value),
                    _ => None,
                };
                match stray {
                    Some(stray) if needs_condition => {
                        write.mode = WriteMode::Conditional(Some(stray));
                    }
                    None if write.is_judged() => return Err(violation.into()),
                    Some(_) | None => {}
                }
            }
        }
        Ok(Some(write))
    }

    /// Lets an event replace an older version of a record, if the event between the two versions is
    /// marked.
    ///
    /// A marked event is not applied, so the record may be older than the version that the next
    /// event replaces. The next event can replace the older version, because an event contains the
    /// whole of each record that it writes.
    async fn replace_across_marker(
        &self,
        mut write: RowWrite,
        there: Option<&Bytes>,
    ) -> Result<RowWrite> {
        let Some((older, replaced)) =
            there.and_then(|there| conflict::skipped_versions(&write, there))
        else {
            return Ok(write);
        };
        let row = AppRow::Plog(self.calls.partition, replaced.plog);
        let entry = self
            .calls
            .get(row)
            .await?
            .map(|bytes| self.calls.reader.entry(row, &bytes))
            .transpose()?;
        if let (Some(Entry::Marker(_)), RowKind::Record { replaces, .. }) = (entry, &mut write.kind)
        {
            *replaces = Some(older);
        }
        Ok(write)
    }
}
