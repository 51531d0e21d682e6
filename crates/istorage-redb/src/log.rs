//! The write-ahead log of a storage file.
//!
//! A group of writes is durable when its frame is in the log and synced: this costs one sync, while
//! a commit of redb costs two syncs and the map of free pages. redb commits the group in memory
//! only. From time to time a group is committed durably, and then the log begins a new segment.
//!
//! Two files hold the log, beside the storage file. They take turns: segment `n` is in the first
//! file if `n` is even. The first two frames of a segment are empty. The first one is synced before
//! the durable commit that names it, and no other frame is written before that commit. So the
//! storage file always names a frame that is in the log, and lacks only the frames after it in the
//! same segment.
//!
//! # Invariants
//! - Each transaction writes the position of its frame into the file. So each opening can compare
//!   the file with the log, whatever redb has made durable.
//! - One frame is under way at a time. It is synced before the next one is written. So after a
//!   frame that is not intact there is no intact one, unless the disk lost synced bytes.
//! - At the first opening in a process, the log goes on in a new segment, after a durable commit.
//!   No call is served before this commit: then a frame that only the memory of the system held is
//!   in the file, or nowhere. At a later opening the segment is synced, and the next transaction is
//!   committed durably, in a new segment.
//! - After a failed sync, nothing more is written.

mod effects;
mod files;
mod frame;
mod position;
mod tail;

use redb::{Database, Durability, WriteTransaction};

pub(crate) use self::{
    effects::Effects,
    files::{LogFiles, LogSizes},
    position::{LogPosition, LogState},
    tail::{LogTail, refuse_foreign},
};
use crate::{
    disk::LogFile,
    errors::FileFailure,
    layout::{FORMAT, META, META_FORMAT, META_LOG},
};

/// The log of an open file, for the one writer.
#[derive(Debug)]
pub(crate) struct WriteLog {
    files: LogFiles,
    /// The file of `position`; `None` until the segment of the position is begun.
    segment: Option<LogFile>,
    position: LogPosition,
    /// Whether the next transaction must begin a segment, because a write to this one failed: the
    /// segment may have other writes than redb.
    must_begin: bool,
}

impl WriteLog {
    /// Takes up the log of a database that holds all frames, in a new segment. `last` is the place
    /// after the last frame.
    pub(crate) fn start(
        files: LogFiles,
        database: &Database,
        last: LogPosition,
    ) -> Result<WriteLog, FileFailure> {
        let segment = files.begin_segment(&last)?;
        let txn = database.begin_write()?;
        // An earlier version of this driver does not know the log, and must refuse the file.
        txn.open_table(META)?.insert(META_FORMAT, &FORMAT.to_be_bytes()[..])?;
        commit_durably(txn, segment.position, false)?;
        let position = segment.position;
        let mut log = WriteLog { files, segment: None, position, must_begin: true };
        log.begin(segment.file)?;
        Ok(log)
    }

    /// Takes up the log of a database that holds all frames in memory. The next transaction is
    /// committed durably, in a new segment.
    ///
    /// No sync of this process may have failed. Then the effects that reads show are on the disk,
    /// because the segment is synced here. So a full disk can be read, although nothing can be
    /// committed.
    pub(crate) fn resume(files: LogFiles, last: LogPosition) -> Result<WriteLog, FileFailure> {
        files.sync_segment(&last)?;
        Ok(WriteLog { files, segment: None, position: last, must_begin: true })
    }

    /// Brings the effects of a transaction to the disk. Returns the transaction if a frame of the
    /// log has them: [`WriteLog::commit_logged`] comes next. Returns `None` if the transaction was
    /// committed durably.
    ///
    /// A transaction is committed durably, and begins a new segment, if its effects are too large
    /// for a frame, if the segment has no room for them, or if the segment was removed.
    pub(crate) fn make_durable(
        &mut self,
        txn: WriteTransaction,
        effects: Effects,
    ) -> Result<Option<WriteTransaction>, FileFailure> {
        let effects = effects.into_bytes();
        let has_room = self.files.has_room(&self.position, effects.len()) && self.is_in_place();
        let segment = match &self.segment {
            Some(segment) if has_room && !self.must_begin => segment,
            _ => return self.commit_durably(txn).map(|()| None),
        };
        let (position, frame) = frame::encode(&self.position, &effects);
        self.must_begin = true;
        // A full disk is found here, before anything is written.
        self.files.allocate(segment, &self.position, position.end)?;
        note(&txn, position, false)?;
        self.files.append(segment, &self.position, &frame)?;
        self.position = position;
        Ok(Some(txn))
    }

    /// Commits the transaction of the last frame in memory. Snapshots show its effects afterwards.
    ///
    /// After an error the file must be opened again: then the frame is replayed.
    pub(crate) fn commit_logged(&mut self, txn: WriteTransaction) -> Result<(), FileFailure> {
        commit_in_memory(txn)?;
        self.must_begin = false;
        Ok(())
    }

    /// Commits a transaction durably, and begins a new segment.
    pub(crate) fn commit_durably(&mut self, txn: WriteTransaction) -> Result<(), FileFailure> {
        self.must_begin = true;
        let segment = self.files.begin_segment(&self.position)?;
        commit_durably(txn, segment.position, false)?;
        // The former segment has another name than the new position. If it were kept and `begin`
        // failed, the log would look as if it was removed, and the storage file would stay open.
        (self.position, self.segment) = (segment.position, None);
        self.begin(segment.file)
    }

    /// Begins to use a segment that the file names. A second empty frame says that the file names
    /// it: an older copy of the file beside this log is then refused.
    fn begin(&mut self, segment: LogFile) -> Result<(), FileFailure> {
        let (position, frame) = frame::encode(&self.position, &[]);
        self.files.append(&segment, &self.position, &frame)?;
        (self.position, self.segment) = (position, Some(segment));
        self.must_begin = false;
        Ok(())
    }

    /// Commits the last transaction durably. Afterwards the file needs no log.
    pub(crate) fn close(self, txn: WriteTransaction) -> Result<(), FileFailure> {
        commit_durably(txn, self.position, true)
    }

    /// Whether the present segment is still found under its name.
    pub(crate) fn is_in_place(&self) -> bool {
        let segment = self.segment.as_ref();
        segment.is_none_or(|segment| self.files.is_in_place(segment, &self.position))
    }
}

/// Commits a transaction so that it is on the disk, and so that redb opens the file at once after a
/// crash.
///
/// Quick repair makes the file open at once: without it, redb would first read the file from one
/// end to the other. Quick repair costs a second sync for each commit, and a map of the free pages:
/// 64 KiB for each GiB of the file. A single commit without it would break the promise, so every
/// durable commit has it.
fn commit_durably(
    mut txn: WriteTransaction,
    position: LogPosition,
    is_closed: bool,
) -> Result<(), FileFailure> {
    note(&txn, position, is_closed)?;
    txn.set_quick_repair(true);
    txn.commit().map_err(|error| FileFailure::outcome_unknown(error.into()))
}

/// Commits a transaction in memory only: the log has it.
fn commit_in_memory(mut txn: WriteTransaction) -> Result<(), FileFailure> {
    // Only a transaction with a savepoint refuses this, and none has one.
    txn.set_durability(Durability::None)
        .map_err(|error| FileFailure::outcome_unknown(error.into()))?;
    txn.commit().map_err(|error| FileFailure::outcome_unknown(error.into()))
}

fn note(txn: &WriteTransaction, position: LogPosition, is_closed: bool) -> Result<(), FileFailure> {
    let state = LogState { position, is_closed }.encode();
    txn.open_table(META)?.insert(META_LOG, &state[..])?;
    Ok(())
}
