//! The threads of a driver, and the queues of jobs for them.
//!
//! Invariant: every job that was sent gets an answer. The queues are bounded. A queue ends when the
//! engine is closed or its last owner is dropped, and the threads first finish the jobs that are
//! left. If a thread panics, both queues end at once.

use std::{
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, SyncSender},
    },
    thread::{self, Builder, JoinHandle},
};

use async_channel::{Receiver, Sender, bounded};
use base::locks::lock;
use clock::{Clock, Instant};
use istorage::{AtomicBatch, Error, ErrorKind, KeyspaceName, Outcome, Result};
use tokio::sync::{oneshot, watch};

use crate::{
    background_check::BackgroundCheck,
    desk::Desk,
    errors::FileFailure,
    file::{Contents, OpenedFile, StorageFile},
    filer::FilerThread,
    layout::Keyspace,
    queue::{MOST_JOBS, QueuePlace, QueuePlaces},
    read::{self, ReadJob, ReaderThread},
    request::{WriteJob, WriteRequest},
    shared::{EngineMeters, Shared},
    tables::Tables,
    time::{Moment, SteadyTime},
    view::RowView,
    write::WriterThread,
};

/// How many jobs may wait for the readers. When their queue is full, a sender waits for a place.
/// The [places](crate::queue) bound the jobs that wait for the writer.
const QUEUE: usize = 1_024;
/// The number of reader threads. On two cores they are as fast as `spawn_blocking` for one task,
/// and four times as fast for sixteen tasks or more.
const READERS: usize = 4;

/// The running driver: its threads and their queues.
pub(crate) struct RedbEngine {
    clock: Clock,
    time: Arc<SteadyTime>,
    reads: Sender<ReadJob>,
    writes: Sender<WriteJob>,
    write_places: QueuePlaces,
    closing: AtomicBool,
    /// Ends the [check](crate::background_check) of the file when it is dropped.
    checking: Mutex<Option<SyncSender<()>>>,
    /// The reason why the driver cannot go on. `None` while the driver works.
    failed: Arc<watch::Sender<Option<FileFailure>>>,
    /// A channel that is closed when the last thread has ended.
    ended: Receiver<()>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl fmt::Debug for RedbEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedbEngine").finish_non_exhaustive()
    }
}

impl RedbEngine {
    /// Opens the file on the thread of the writer, then starts the readers.
    pub(crate) async fn start(
        file: StorageFile,
        clock: Clock,
        desk: Arc<Desk>,
    ) -> Result<RedbEngine> {
        let file = Arc::new(file);
        let time = Arc::new(SteadyTime::new(clock.clone()));
        let (reads, read_jobs) = bounded(QUEUE);
        // Each job has a place, except a `Check` of each reader. So no sender waits here.
        let (writes, write_jobs) = bounded(MOST_JOBS + READERS);
        let write_places = QueuePlaces::new();
        // Nothing is sent through `alive` and `readers_alive`. Each of the two channels ends when
        // the last thread drops its sender.
        let (alive, ended) = bounded::<()>(1);
        let (readers_alive, readers_ended) = bounded::<()>(1);
        let failed = Arc::new(watch::Sender::new(None));
        let shared = Shared {
            file: Arc::clone(&file),
            desk,
            clock: clock.clone(),
            time: Arc::clone(&time),
            failed: Arc::clone(&failed),
            meters: EngineMeters::new(),
        };
        let guard = || ThreadGuard {
            desk: Arc::clone(&shared.desk),
            reads: read_jobs.clone(),
            writes: write_jobs.clone(),
            write_places: write_places.clone(),
            failed: Arc::clone(&failed),
            _alive: alive.clone(),
        };

        let (opened, opening) = oneshot::channel();
        let opener = Opener { shared: shared.clone(), jobs: write_jobs.clone() };
        let filer_guard = guard();
        let mut threads = vec![spawn("redb-writer", guard(), move || {
            opener.run(opened, filer_guard, &readers_ended);
        })?];
        let (tables, to_check) = opening.await.unwrap_or_else(|_| Err(stopped().into()))?;

        for _ in 0..READERS {
            let reader = ReaderThread {
                file: Arc::clone(&file),
                tables: Arc::clone(&tables),
                jobs: read_jobs.clone(),
                writer: writes.clone(),
            };
            let readers_alive = readers_alive.clone();
            threads.push(spawn("redb-reader", guard(), move || {
                reader.run();
                drop(readers_alive);
            })?);
        }
        let (checking, stop) = mpsc::sync_channel(0);
        let meter = metrics::counter!("istorage_redb_damaged_rows_total");
        if !to_check.is_empty() {
            let check = BackgroundCheck { file, stop, meter, rows: 0, damaged: 0 };
            threads.push(spawn("redb-check", guard(), move || {
                check.run(to_check);
                drop(readers_alive);
            })?);
        }
        Ok(RedbEngine {
            clock,
            time,
            reads,
            writes,
            write_places,
            closing: AtomicBool::new(false),
            checking: Mutex::new(Some(checking)),
            failed,
            ended,
            threads: Mutex::new(threads),
        })
    }

    /// Waits until a sync fails or a thread panics. If neither happens, the call never returns.
    pub(crate) async fn failed(&self) -> Error {
        let mut failed = self.failed.subscribe();
        // `wait_for` fails only if the sender is dropped, and `self` holds the sender.
        let why = failed.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
        why.unwrap_or_else(stopped).into()
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The time that judges expiry.
    pub(crate) fn now(&self) -> Moment {
        self.time.now()
    }

    /// Fails with `Closed` once `close` was called.
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closing.load(Ordering::Acquire) { Err(Error::closed()) } else { Ok(()) }
    }

    /// Writes the whole batch or nothing.
    pub(crate) async fn write(
        &self,
        keyspace: &Arc<Keyspace>,
        batch: AtomicBatch,
        deadline: Instant,
    ) -> Result<Outcome> {
        let keyspace = Arc::clone(keyspace);
        let place = self.clock.timeout_at(deadline, self.write_places.of_write(&batch)).await;
        let place = place.map_err(|_| {
            Error::unavailable("the storage had no room for a write in time; nothing was written")
        })?;
        let place = place.ok_or_else(|| self.ended())?;
        self.ask(|reply| WriteJob::Write(WriteRequest { keyspace, batch, deadline, place, reply }))
            .await
    }

    /// Gives the writer a job other than a write, and waits for the answer.
    pub(crate) async fn ask_writer<T>(
        &self,
        job: impl FnOnce(QueuePlace, oneshot::Sender<Result<T>>) -> WriteJob,
    ) -> Result<T> {
        let place = self.write_places.of_other().await.ok_or_else(|| self.ended())?;
        self.ask(|reply| job(place, reply)).await
    }

    async fn ask<T>(&self, job: impl FnOnce(oneshot::Sender<Result<T>>) -> WriteJob) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        self.writes.send(job(reply)).await.map_err(|_| self.ended())?;
        let lost =
            |_| Err(Error::outcome_unknown("the storage's writer stopped before it answered"));
        answer.await.unwrap_or_else(lost)
    }

    /// Reads rows of a keyspace, once more if the file is unavailable.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        keyspace: &Arc<Keyspace>,
        read: impl Fn(&mut RowView, &Keyspace) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let keyspace = Arc::clone(keyspace);
        self.ask_reader(move |view| view.again(&keyspace, |view| read(view, &keyspace))).await
    }

    /// Runs a read on the threads of the readers.
    pub(crate) async fn ask_reader<T: Send + 'static>(
        &self,
        read: impl FnOnce(&mut RowView) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let job: ReadJob = Box::new(move |view, is_last| read::answer(view, is_last, reply, read));
        self.reads.send(job).await.map_err(|_| self.ended())?;
        answer.await.unwrap_or_else(|_| Err(stopped().into()))
    }

    fn ended(&self) -> Error {
        self.check_open().err().unwrap_or_else(|| stopped().into())
    }

    /// Lets the threads answer the jobs in the queues, then waits until the threads have ended and
    /// the file is closed.
    pub(crate) async fn close(&self) {
        self.closing.store(true, Ordering::Release);
        drop(lock(&self.checking).take());
        self.reads.close();
        self.writes.close();
        self.write_places.close();
        // `recv` ends with an error when the last thread has ended: no thread ever sends.
        let _ = self.ended.recv().await;
        let threads = std::mem::take(&mut *lock(&self.threads));
        for thread in threads {
            // The thread has nothing left to do, so `join` returns soon.
            if thread.join().is_err() {
                tracing::error!("a thread of the storage panicked");
            }
        }
    }
}

/// Opens the file for the writer and the filer, on the thread of the writer.
struct Opener {
    shared: Shared,
    jobs: Receiver<WriteJob>,
}

/// An open file, with those who write it.
struct Opened {
    tables: Arc<Tables>,
    /// The keyspaces that are to be checked.
    to_check: Vec<KeyspaceName>,
    writer: WriterThread,
    filer: FilerThread,
}

impl Opener {
    /// Opens the file, tells `opened` what the readers need, and writes until the queue has ended.
    /// Closes the file when the last reader has ended, too.
    fn run(
        self,
        opened: oneshot::Sender<Result<(Arc<Tables>, Vec<KeyspaceName>)>>,
        filer_guard: ThreadGuard,
        readers_ended: &Receiver<()>,
    ) {
        let file = Arc::clone(&self.shared.file);
        let started = self.open().and_then(|Opened { tables, to_check, writer, filer }| {
            let filer = spawn("redb-filer", filer_guard, move || filer.run())?;
            Ok((tables, to_check, writer, filer))
        });
        let (tables, to_check, writer, filer) = match started {
            Ok(started) => started,
            Err(error) => return drop(opened.send(Err(error))),
        };
        // If the caller no longer waits for the result, the queue of writes has ended too, and
        // `WriterThread::run` returns.
        let _ = opened.send(Ok((tables, to_check)));
        writer.run();
        if filer.join().is_err() {
            tracing::error!("the thread that writes the storage file panicked");
        }
        // `recv_blocking` ends with an error when the last reader has ended: no reader ever sends.
        let _ = readers_ended.recv_blocking();
        file.close();
    }

    /// Opens the file, and makes it if it does not exist.
    fn open(self) -> Result<Opened> {
        let Opener { shared, jobs } = self;
        let opened = shared.file.open(shared.clock.random())?;
        let OpenedFile { contents, log, is_to_check, keeps_index } = opened;
        if let Some(seen) = contents.time {
            shared.time.raise(seen);
        }
        let segment = contents.log.map_or(0, |state| state.position.segment);
        let tables = Arc::new(Tables::new(segment));
        let Contents { keyspaces, log: state, .. } = contents;
        let to_check = if is_to_check { keyspaces.iter().cloned().collect() } else { Vec::new() };
        let filer = FilerThread::new(shared.clone(), Arc::clone(&tables), state, keeps_index);
        let writer = WriterThread::new(shared, Arc::clone(&tables), jobs, log, keyspaces);
        Ok(Opened { tables, to_check, writer, filer })
    }
}

/// The parts of the engine that a thread holds until it ends, besides its work.
struct ThreadGuard {
    desk: Arc<Desk>,
    reads: Receiver<ReadJob>,
    writes: Receiver<WriteJob>,
    write_places: QueuePlaces,
    failed: Arc<watch::Sender<Option<FileFailure>>>,
    _alive: Sender<()>,
}

impl Drop for ThreadGuard {
    /// Empties the queues after a panic, so that every sender gets an answer.
    ///
    /// A channel keeps its jobs for as long as a sender exists, and the engine has senders. So if
    /// the thread only ended, a job left in its queue would never be answered: its caller would
    /// wait forever.
    fn drop(&mut self) {
        if thread::panicking() {
            self.desk.end();
            self.reads.close();
            self.writes.close();
            self.write_places.close();
            while self.reads.try_recv().is_ok() || self.writes.try_recv().is_ok() {}
            self.failed.send_replace(Some(stopped()));
        }
    }
}

/// Starts a thread that drops `guard` last, after everything else that the thread owns.
#[expect(
    clippy::disallowed_methods,
    reason = "the engine owns its threads and waits for their end in `close`"
)]
fn spawn(
    name: &str,
    guard: ThreadGuard,
    run: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>> {
    let thread = Builder::new().name(name.to_owned()).spawn(move || {
        let _guard = guard;
        run();
    });
    thread.map_err(|error| {
        Error::unavailable(format!("cannot start the thread {name}")).with_source(error)
    })
}

fn stopped() -> FileFailure {
    let why =
        "a thread of the storage panicked: read the panic message in the log, and restart the node";
    FileFailure::new(ErrorKind::Unavailable, why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::KeyspaceChange;

    /// A thread panicked with jobs left in its queue. The callers waited forever, because a channel
    /// keeps its jobs for as long as a sender exists. The driver did not report that it had failed.
    #[tokio::test]
    async fn jobs_left_by_a_panicked_thread_are_answered_and_the_driver_fails() {
        let (reads, read_jobs) = bounded(QUEUE);
        let (writes, write_jobs) = bounded(MOST_JOBS + READERS);
        let write_places = QueuePlaces::new();
        let (alive, ended) = bounded::<()>(1);
        let failed = Arc::new(watch::Sender::new(None));
        let guard = ThreadGuard {
            desk: Arc::default(),
            reads: read_jobs.clone(),
            writes: write_jobs.clone(),
            write_places: write_places.clone(),
            failed: Arc::clone(&failed),
            _alive: alive,
        };
        let keyspace = Arc::new(Keyspace::new(KeyspaceName::new("tests").unwrap()));
        let (reply, read) = oneshot::channel();
        let job: ReadJob = Box::new(|view, is_last| read::answer(view, is_last, reply, |_| Ok(())));
        reads.send(job).await.unwrap();
        let (reply, write) = oneshot::channel();
        let place = write_places.of_other().await.unwrap();
        let change = KeyspaceChange::Make(keyspace);
        writes.send(WriteJob::Change { change, place, reply }).await.unwrap();

        let thread = spawn("panics", guard, || panic!("as a damaged page makes redb do")).unwrap();
        assert!(read.await.is_err() && write.await.is_err(), "they are told");
        assert!(ended.recv().await.is_err());
        assert!(thread.join().is_err());
        assert!(failed.borrow().is_some());
        assert!(reads.is_closed() && writes.is_closed(), "nobody waits there any more");
        assert!(write_places.of_other().await.is_none(), "nor for a place");
    }
}
