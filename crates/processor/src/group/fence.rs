//! The fencing entry of a group without events.

use eventlog::Offset;
use isequencer::Transaction;

use super::CommandGroup;
use crate::partition_context::PartitionContext;

impl CommandGroup {
    /// Adds a fencing entry to a group without events, if the end of the log is not
    /// [fenced](eventlog::Log::is_fenced).
    ///
    /// Invariant: a leader answers no rejection before an entry of its own is in the log. A simpler
    /// version answers at once. Leader A's insert of event 7, the command with key K, gets no
    /// answer; A loses its lease; leader B recovers the log up to event 6; the client sends the
    /// command again, and B rejects it: there is no such workspace. So the client takes the command
    /// for refused. The insert of A lands, the next write of B meets event 7, and B applies it. So
    /// the command is done, although it was refused for good.
    ///
    /// If a read of the group has failed, nothing is added: the storage may not work. Then
    /// rejections of the group are answered "busy".
    pub(crate) fn fence(
        &mut self,
        partition: &PartitionContext,
        transaction: &mut Transaction<'_>,
    ) {
        if partition.is_fenced() || !self.events.is_empty() || self.has_failed_read {
            return;
        }
        partition.time.advance(partition.clock.wall());
        let plog = Offset(transaction.keep_without_numbers().get());
        let entry = partition.log.fencing_entry(plog, partition.time.last());
        self.bytes += entry.bytes();
        self.events.push(entry);
    }
}
