//! The history of a run while it happens.

use std::{
    io,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use clock::{Clock, Instant};

use crate::history::{History, HistoryWriter, Line, Operation, Outcome, Request};

/// The time for tasks that were aborted to end.
const TASKS_END: Duration = Duration::from_secs(10);

/// Takes the operations of all clients, and what happens to the cluster.
pub(crate) struct Recorder {
    clock: Clock,
    start: Instant,
    recorded: Mutex<Recorded>,
}

struct Recorded {
    history: History,
    notes: Vec<(u64, String)>,
    writer: HistoryWriter,
    /// The first write that failed.
    failed: Option<io::Error>,
}

/// What the run recorded.
pub(crate) struct Recording {
    pub(crate) history: History,
    pub(crate) notes: Vec<(u64, String)>,
}

impl Recorder {
    pub(crate) fn create(file: &Path, clock: Clock, first: &Line) -> io::Result<Recorder> {
        let mut writer = HistoryWriter::create(file)?;
        writer.write(first)?;
        let recorded =
            Recorded { history: History::default(), notes: Vec::new(), writer, failed: None };
        Ok(Recorder { start: clock.now(), clock, recorded: Mutex::new(recorded) })
    }

    /// Waits until nothing else records. Tasks that were aborted end a little later. `None` if one
    /// does not.
    pub(crate) async fn alone(mut recorder: Arc<Recorder>) -> Option<Recorder> {
        let clock = recorder.clock.clone();
        let deadline = clock.now() + TASKS_END;
        loop {
            recorder = match Arc::try_unwrap(recorder) {
                Ok(alone) => return Some(alone),
                Err(_) if clock.now() >= deadline => return None,
                Err(shared) => shared,
            };
            clock.sleep(Duration::from_millis(20)).await;
        }
    }

    /// Microseconds since the start of the run.
    pub(crate) fn now(&self) -> u64 {
        let since = self.clock.now().saturating_since(self.start);
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }

    /// Records an operation that ends now.
    pub(crate) fn operation(
        &self,
        client: u32,
        begin: u64,
        ws: u64,
        request: Request,
        outcome: Outcome,
    ) {
        self.operation_at(None, client, begin, ws, request, outcome);
    }

    /// Records an operation that ends now, with the place of the node.
    pub(crate) fn operation_at(
        &self,
        node: Option<usize>,
        client: u32,
        begin: u64,
        ws: u64,
        request: Request,
        outcome: Outcome,
    ) {
        let end = self.now();
        self.with(|recorded| {
            let number = recorded.history.operations.len() as u64;
            let operation = Operation { number, client, node, begin, end, ws, request, outcome };
            recorded.add(Line::Operation(operation));
        });
    }

    /// Notes what happens to the cluster.
    pub(crate) fn note(&self, text: String) {
        let at = self.now();
        println!("{:8.2} s  {text}", at as f64 / 1e6);
        self.with(|recorded| {
            recorded.notes.push((at, text.clone()));
            recorded.add(Line::Note { at, text });
        });
    }

    /// Records a violation that the run itself found, for the report and for later checks.
    pub(crate) fn broken(&self, text: String) {
        self.add(Line::Broken { text });
    }

    /// Looks at what was recorded until now.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&History) -> T) -> T {
        self.with(|recorded| look(&recorded.history))
    }

    pub(crate) fn add(&self, line: Line) {
        self.with(|recorded| recorded.add(line));
    }

    fn with<T>(&self, change: impl FnOnce(&mut Recorded) -> T) -> T {
        // A client that panicked ends the run, and left nothing half done here.
        change(&mut self.recorded.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends the file.
    pub(crate) fn end(self) -> io::Result<Recording> {
        let recorded = self.recorded.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = recorded.failed {
            return Err(error);
        }
        recorded.writer.end()?;
        Ok(Recording { history: recorded.history, notes: recorded.notes })
    }
}

impl Recorded {
    fn add(&mut self, line: Line) {
        if let Err(error) = self.writer.write(&line) {
            self.failed.get_or_insert(error);
        }
        self.history.add(line);
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;

    use super::*;

    /// The history of a run that broke off was lost while a client still ended.
    #[tokio::test]
    async fn a_task_that_ends_late_keeps_no_history_from_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let first = Line::Run { seed: 1, settings: String::new() };
        let (file, clock) = (folder.path().join("history.jsonl"), Clock::system());
        let recorder = Arc::new(Recorder::create(&file, clock.clone(), &first).unwrap());
        let late = Arc::clone(&recorder);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            clock.sleep(Duration::from_millis(100)).await;
            late.broken("late".to_owned());
        });
        let alone = Recorder::alone(recorder).await.unwrap();
        assert_eq!(alone.end().unwrap().history.broken, ["late"]);
        tasks.join_next().await.unwrap().unwrap();
    }
}
