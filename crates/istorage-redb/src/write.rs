//! The one thread that writes the log and the tables in memory.
//!
//! The writer takes all requests that wait, judges them one after another, and writes what they
//! write as one frame of the [log](crate::log). When the frame is on the disk, it shows the rows in
//! the [tables](crate::tables), and answers. Invariant: no request is answered with success before
//! its rows are durable and shown, and no request is done twice.
//!
//! When the segment of the log is full, the writer begins the next one and gives the table to the
//! [filer](crate::filer). It waits for the filer only if the next table is far too large, a
//! keyspace is made or dropped, a backup begins, or the file or a segment of its log has failed.

mod pressure;
mod waiting;

use std::{collections::BTreeSet, sync::Arc, thread, time::Duration};

use async_channel::Receiver;
use clock::Instant;
use istorage::{Error, KeyspaceName, Outcome, Result};
use tokio::sync::oneshot;

use self::{pressure::Pressure, waiting::WaitingJobs};
use crate::{
    backup::BackupRun,
    desk::{Also, Filing},
    errors::{self, FileFailure},
    judge::{Judge, RowWrites},
    layout::KeyspaceChange,
    log::{self, LogNeed, LogState, WriteLog},
    mem_table::MemTable,
    queue::weight_of,
    request::{WriteJob, WriteRequest},
    shared::Shared,
    tables::Tables,
    view::RowView,
};

/// Limits of waiting for a full group: how often, and for how long, the writer lets other threads
/// run until as many jobs wait as the last group had.
///
/// Callers that were just answered send their next requests at once. Without this wait, the writer
/// would start with the first of these requests, and the rest would wait for a second sync. If the
/// last group had only one request, the writer does not wait.
const GATHER_YIELDS: usize = 100;
const GATHER_TIME: Duration = Duration::from_micros(300);

/// The longest delay of a group with a lease, while the filer is at work.
const LEASE_DELAY: Duration = Duration::from_millis(5);

/// The state of the writer's thread.
pub(crate) struct WriterThread {
    shared: Shared,
    tables: Arc<Tables>,
    jobs: Receiver<WriteJob>,
    /// The jobs that were taken from the queue.
    waiting: WaitingJobs,
    view: RowView,
    /// The log of the file; `None` if the file is only read.
    log: Option<WriteLog>,
    /// The size of a segment and of its table.
    size: usize,
    /// The number of requests in the last group.
    last_group: usize,
    keyspaces: BTreeSet<KeyspaceName>,
    /// The filing that was handed over last; `None` when the writer has seen its end.
    under_way: Option<UnderWay>,
    pressure: Pressure,
    /// The time of the first failure of the log since the last frame that was written. `None` while
    /// the log works.
    failing: Option<Instant>,
    /// Whether the last try to begin a segment failed.
    cannot_freeze: bool,
}

/// A filing that the writer has handed over.
struct UnderWay {
    weight: usize,
    change: Option<KeyspaceChange>,
}

impl WriterThread {
    pub(crate) fn new(
        shared: Shared,
        tables: Arc<Tables>,
        jobs: Receiver<WriteJob>,
        log: Option<WriteLog>,
        keyspaces: BTreeSet<KeyspaceName>,
    ) -> WriterThread {
        let size = shared.file.segment_size();
        let pressure = Pressure::new(size, shared.clock.now());
        let view = RowView::new(Arc::clone(&shared.file), Arc::clone(&tables));
        WriterThread {
            shared,
            tables,
            jobs,
            waiting: WaitingJobs::default(),
            view,
            log,
            size,
            last_group: 0,
            keyspaces,
            under_way: None,
            pressure,
            failing: None,
            cannot_freeze: false,
        }
    }

    /// Writes until the queue is closed and empty, then brings all rows into the file.
    pub(crate) fn run(mut self) {
        while let Some(job) = self.next_job() {
            self.note_filed();
            match job {
                WriteJob::Write(first) => {
                    let group = self.gather(first);
                    self.write(group);
                    self.freeze_if_full();
                }
                WriteJob::Change { change, reply, place: _place } => {
                    drop(reply.send(self.change(change)));
                }
                WriteJob::Backup { reply, place: _place } => self.back_up(reply),
                WriteJob::Check => {
                    drop(self.settle());
                    self.shared.desk.check();
                }
            }
        }
        self.close();
    }

    /// Waits for a job. Returns `None` when the queue is closed and empty.
    fn next_job(&mut self) -> Option<WriteJob> {
        self.take_waiting();
        self.waiting.next().or_else(|| self.jobs.recv_blocking().ok())
    }

    /// Takes all jobs of the queue. The [places](crate::queue) bound their number.
    fn take_waiting(&mut self) {
        while let Ok(job) = self.jobs.try_recv() {
            self.waiting.add(job);
        }
    }

    /// Takes the requests to write together with `first`.
    fn gather(&mut self, first: WriteRequest) -> Vec<WriteRequest> {
        let end = self.shared.clock.now() + GATHER_TIME;
        for _ in 0..GATHER_YIELDS {
            let waiting = self.waiting.len() + self.jobs.len();
            if waiting + 1 >= self.last_group || self.shared.clock.now() >= end {
                break;
            }
            thread::yield_now();
        }
        self.take_waiting();
        let group = self.waiting.take_group(first);
        self.last_group = group.len();
        group
    }

    /// Writes the requests of a group, and answers them.
    fn write(&mut self, mut group: Vec<WriteRequest>) {
        // Waiting takes time, so it comes before the deadlines are compared with the time. In the
        // other order a request would pass the comparison, its deadline would pass, and the late
        // request would be written.
        if let Err(failure) = self.wait_for_room(&group) {
            return refuse(group, &failure);
        }
        self.remove_late(&mut group);
        // 1. Judge each request by the rows of the file, and of the requests before it.
        let (rows, answers) = self.judge_all(&group);
        // 2. Bring all rows to the disk, and show them. If there are none, for example because each
        // condition failed, nothing is to be done.
        if !rows.is_empty() {
            if let Err(failure) = self.append(&rows) {
                // An answer may tell of rows of the group that are not there.
                return refuse(group, &failure);
            }
            self.tables.publish(rows);
        }
        // 3. Answer.
        group.into_iter().zip(answers).for_each(|(request, answer)| request.answer(answer));
    }

    /// Takes out of the group the requests of callers that no longer wait, and those after their
    /// deadline.
    fn remove_late(&mut self, group: &mut Vec<WriteRequest>) {
        let now = self.shared.clock.now();
        group.retain(|request| !request.reply.is_closed());
        for request in group.extract_if(.., |request| now >= request.deadline) {
            request.answer(Err(Error::unavailable(
                "the deadline passed in the queue; nothing was written",
            )));
        }
    }

    /// Judges the requests one after another. Returns the rows that they write together.
    fn judge_all(&mut self, group: &[WriteRequest]) -> (MemTable, Vec<Result<Outcome>>) {
        let mut rows = MemTable::default();
        let answers = group.iter().map(|request| {
            let (outcome, writes) = self.judge(request, &rows)?;
            for (key, row) in writes {
                rows.set(&request.keyspace.name, key, row);
            }
            Ok(outcome)
        });
        let answers = answers.collect();
        // A snapshot keeps its pages, and a file that failed is not opened again before its last
        // snapshot has ended.
        self.view.forget();
        (rows, answers)
    }

    fn judge(&mut self, request: &WriteRequest, rows: &MemTable) -> Result<(Outcome, RowWrites)> {
        let keyspace = &*request.keyspace;
        if !self.keyspaces.contains(&keyspace.name) {
            return Err(errors::no_keyspace(&keyspace.name));
        }
        let now = self.shared.time.now();
        let view = &mut self.view;
        Judge { keyspace, now }.judge(&request.batch, |key| match rows.get(&keyspace.name, key) {
            Some(row) => Ok(row.clone()),
            None => view.row(keyspace, key),
        })
    }

    /// Brings a frame with some rows to the log.
    fn append(&mut self, rows: &MemTable) -> std::result::Result<(), FileFailure> {
        let Some(log) = &mut self.log else { return Err(self.shared.file.not_usable()) };
        // The file lacks rows of the segment before as long as their filing is under way.
        let filed = log.position().segment - u64::from(self.under_way.is_some());
        let written = log.append(log::encode(rows, self.shared.time.now(), filed));
        match &written {
            Err(failure) => self.note_failure(failure),
            Ok(()) => {
                if let Some(since) = self.failing.take() {
                    let failed_for = self.shared.clock.now() - since;
                    let file = self.shared.file.path().display();
                    tracing::warn!(%file, ?failed_for, "the log of the storage file works again: a write succeeded");
                }
            }
        }
        written
    }

    /// Notes a failure of the log. The node log gets one line, until a write succeeds again.
    fn note_failure(&mut self, failure: &FileFailure) {
        if self.shared.file.has_failed_sync() {
            self.shared.file.give_up(&self.shared.failed, failure);
        } else if self.failing.is_none() {
            self.failing = Some(self.shared.clock.now());
            let file = self.shared.file.path().display();
            tracing::error!(%file, error = %failure, "the log of the storage file failed");
        }
    }

    /// Settles the log, if a write to it failed. Until then, nobody knows which rows there are.
    fn settle(&mut self) -> std::result::Result<(), FileFailure> {
        let file = &self.shared.file;
        let Some(log) = &mut self.log else { return Err(file.not_usable()) };
        let settled = match file.has_failed_sync() {
            true => Err(FileFailure::failed_sync(file.path())),
            false => log.settle(),
        };
        if let Err(failure) = &settled {
            self.note_failure(failure);
        }
        settled
    }

    /// Waits until the log and the tables have room for a group. After an error nothing of the
    /// group is written.
    fn wait_for_room(&mut self, group: &[WriteRequest]) -> std::result::Result<(), FileFailure> {
        self.settle()?;
        if !self.shared.file.is_open() {
            self.shared.desk.wait_for_check();
        }
        self.shared.file.check_in_place()?;
        // 1. A keyspace of which nobody knows whether it is there takes no writes, and neither does
        // a segment that was removed.
        if self.under_way.as_ref().is_some_and(|filing| filing.change.is_some()) {
            let tried = self.wait_for_filer();
            match self.shared.desk.take_also() {
                Some(done) => self.note_change(&done),
                None => tried?,
            }
        }
        if !self.log.as_ref().is_some_and(WriteLog::is_in_place) {
            self.wait_for_filer()?;
            self.begin_filing()?;
            self.wait_for_filer()?;
        }
        // 2. At the bound the writer waits for the filer.
        let weight = group.iter().map(|request| weight_of(&request.batch)).sum();
        if self.is_at_bound(weight) {
            self.wait_for_filer()?;
        }
        if self.is_at_bound(weight) {
            self.begin_filing()?;
        }
        // 3. Before that it is slowed, as the filer needs it.
        if self.under_way.is_some() {
            let (fill, now) = (self.fill(), self.shared.clock.now());
            let delay = self.pressure.delay(weight, fill, now);
            let has_lease = group.iter().any(|request| request.place.is_urgent);
            let delay = if has_lease { delay.min(LEASE_DELAY) } else { delay };
            if !delay.is_zero() {
                self.shared.meters.slowed.increment(1);
                self.shared.desk.wait_within(delay);
                self.note_filed();
            }
        }
        Ok(())
    }

    /// Whether the tables take no more rows of this weight. An empty table takes any batch.
    fn is_at_bound(&self, weight: usize) -> bool {
        let fill = self.fill();
        let is_empty = self.tables.hold().weight() == 0;
        !is_empty && fill + weight > self.size * 5 / 2
    }

    /// How full the active table or its segment is, in bytes.
    fn fill(&self) -> usize {
        let logged = self.log.as_ref().map_or(0, |log| log.position().end as usize);
        self.tables.hold().weight().max(logged)
    }

    /// Begins the next segment if this one is full and the filer is free. If that fails, this
    /// segment goes on.
    fn freeze_if_full(&mut self) {
        if self.fill() >= self.size && self.under_way.is_none() {
            // The failure is noted.
            let _ = self.begin_filing();
        }
        self.shared.meters.table.set(self.fill() as f64);
    }

    /// Begins a backup, when all rows are in the file.
    fn back_up(&mut self, reply: oneshot::Sender<Result<BackupRun>>) {
        if self.log.is_none() {
            let run = BackupRun::begin(&self.shared.file, self.shared.time.now());
            return drop(reply.send(run));
        }
        match self.free_filer().and_then(|()| self.begin_segment()) {
            Ok(state) => self.hand_over(state, Also::Backup(reply)),
            Err(failure) => drop(reply.send(Err(failure.into()))),
        }
    }

    /// Begins the next segment, and gives the table of this one to the filer, which is free.
    fn begin_filing(&mut self) -> std::result::Result<(), FileFailure> {
        let state = self.begin_segment()?;
        self.hand_over(state, Also::Nothing);
        Ok(())
    }

    /// Begins the next segment. The filer is free. Returns what the file has when it has the rows
    /// of this segment.
    fn begin_segment(&mut self) -> std::result::Result<LogState, FileFailure> {
        let Some(log) = &mut self.log else { return Err(self.shared.file.not_usable()) };
        let started = self.shared.clock.now();
        if let Err(failure) = log.begin_next() {
            self.note_failed_freeze(&failure);
            return Err(failure);
        }
        self.cannot_freeze = false;
        self.shared.meters.freezes.record(self.shared.clock.now() - started);
        Ok(LogState { position: log.position(), need: LogNeed::Needed })
    }

    /// Gives the table of the segment before to the filer.
    fn hand_over(&mut self, state: LogState, also: Also) {
        let rows = self.tables.freeze();
        let change = match &also {
            Also::Change(change) => Some(change.clone()),
            Also::Nothing | Also::Backup(_) => None,
        };
        self.under_way = Some(UnderWay { weight: rows.weight(), change });
        self.pressure.begin(self.shared.clock.now());
        self.shared.desk.hand_over(Filing { rows, state, also });
    }

    /// Notes that no segment could be begun. The node log gets one line.
    fn note_failed_freeze(&mut self, failure: &FileFailure) {
        if self.shared.file.has_failed_sync() {
            self.note_failure(failure);
        } else if !self.cannot_freeze {
            self.cannot_freeze = true;
            let file = self.shared.file.path().display();
            tracing::error!(%file, error = %failure, "the log of the storage file cannot begin its next segment");
        }
    }

    /// Settles the log, and waits until the filer is free.
    fn free_filer(&mut self) -> std::result::Result<(), FileFailure> {
        self.settle()?;
        self.wait_for_filer()
    }

    /// Waits for one try of the filing that is under way. After an error the rows of the caller are
    /// not written.
    fn wait_for_filer(&mut self) -> std::result::Result<(), FileFailure> {
        let tried = self.shared.desk.wait_for_try();
        self.note_filed();
        tried.map_err(FileFailure::with_known_outcome)
    }

    /// Notes the end of the filing that is under way.
    fn note_filed(&mut self) {
        if self.under_way.is_none() || self.shared.desk.is_pending() {
            return;
        }
        if let Some(done) = self.shared.desk.take_also() {
            self.note_change(&done);
        }
        if let Some(UnderWay { weight, .. }) = self.under_way.take() {
            self.pressure.filed(weight, self.shared.desk.took());
        }
    }

    /// Notes that the change of a keyspace is done, or was given up.
    fn note_change(&mut self, done: &std::result::Result<(), FileFailure>) {
        let change = self.under_way.as_mut().and_then(|under_way| under_way.change.take());
        match change.filter(|_| done.is_ok()) {
            Some(KeyspaceChange::Make(keyspace)) => {
                self.keyspaces.insert(keyspace.name.clone());
            }
            Some(KeyspaceChange::Drop(keyspace)) => {
                self.keyspaces.remove(&keyspace.name);
            }
            None => {}
        }
    }

    /// Makes or drops a keyspace. All rows of the log are in the file afterwards, so no frame of
    /// another keyspace with the same name is left.
    fn change(&mut self, change: KeyspaceChange) -> Result<()> {
        self.free_filer()?;
        let is_so = match &change {
            KeyspaceChange::Make(keyspace) => self.keyspaces.contains(&keyspace.name),
            KeyspaceChange::Drop(keyspace) => !self.keyspaces.contains(&keyspace.name),
        };
        if is_so {
            return Ok(());
        }
        let state = self.begin_segment()?;
        self.hand_over(state, Also::Change(change));
        // If the try fails, the desk tells what became of the change.
        drop(self.shared.desk.wait_for_try());
        match self.shared.desk.take_also() {
            Some(done) => {
                self.note_change(&done);
                done.map_err(Error::from)?;
            }
            // It is done, or given up, before the next write.
            None => return Err(self.shared.file.not_usable().with_unknown_outcome().into()),
        }
        self.note_filed();
        // An older copy of the file, without the keyspace, is refused from now on.
        let appended = self.append(&MemTable::default());
        Ok(appended.map_err(FileFailure::with_unknown_outcome)?)
    }

    /// Brings all rows into the file, so that the file needs no log. Each part is tried once.
    fn close(&mut self) {
        let closed = self.free_filer().and_then(|()| {
            let Some(log) = &self.log else { return Ok(()) };
            let state = LogState { position: log.position(), need: LogNeed::Closed };
            let (rows, also) = (self.tables.freeze(), Also::Nothing);
            self.shared.desk.hand_over(Filing { rows, state, also });
            self.shared.desk.wait_for_try()
        });
        self.shared.desk.end();
        if let (Err(error), false) = (closed, self.shared.file.is_read_only()) {
            let file = self.shared.file.path().display();
            tracing::warn!(%file, %error, "storage file closed without a last commit: the next opening replays its log");
        }
    }
}

/// Answers all requests of a group with a failure.
fn refuse(group: Vec<WriteRequest>, failure: &FileFailure) {
    group.into_iter().for_each(|request| request.answer(Err(failure.clone().into())));
}
