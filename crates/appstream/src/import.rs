//! The import of a stream into a storage.
//!
//! Invariant: no node sees the application before all its rows are written. An import that ends
//! early leaves an application in the registry that no node opens, and that can be discarded.

use std::{future::ready, io::BufRead, sync::Arc};

use bytes::Bytes;
use clock::{Clock, Instant};
use docnumbers::DocNumberRows;
use eventlog::{Entry, Epoch, LogCopier, LogSettings, LogWriter, SingleNodeFence};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use ownership::{OwnerEpoch, PartitionId};
use seqstorage::numbers_in_view;
use sysvvm::{AppImport, AppName, ImportState, LastNumber, System};

use crate::{
    CALL_TIME, CheckedStream, ImportError, UnfinishedImport,
    persistence::persistently,
    reader::{Fact, StreamReader},
};

/// How many events, and how many bytes, are written together.
const BATCH_EVENTS: usize = 4_096;
const BATCH_BYTES: usize = 1 << 20;

/// How many rows of document numbers are written at the same time.
const ROWS_AT_ONCE: usize = 32;

/// The numbers of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportReport {
    /// The events of all partitions.
    pub events: u64,
}

/// Writes the application of a stream into a storage, under `name`. `source` is the stream that was
/// checked, from its beginning, and may block.
///
/// The import writes the logs of the partitions, and what follows from no event. Workspace logs,
/// records, answers and numbers follow when a node replays the logs.
///
/// # Errors
/// [`ImportError::Unfinished`] if the import began and failed: discard it with
/// [`System::discard_import`], and begin again. Other errors leave no import. For example,
/// [`ImportError::RowTooLarge`] if the storage cannot hold a row, and [`ImportError::System`]: with
/// [`AlreadyExists`](sysvvm::Error::AlreadyExists) if the application exists, with
/// [`Importing`](sysvvm::Error::Importing) if another import of it has not finished. If the storage
/// does not answer while the application is registered, the import may still have begun.
pub async fn import<R: BufRead + Send>(
    system: &System,
    name: &AppName,
    source: R,
    checked: &CheckedStream,
    clock: Clock,
    deadline_to_begin: Instant,
) -> Result<ImportReport, ImportError> {
    checked.check_rows(system.storage().capabilities().row.value)?;
    // A source that no longer has an export is refused before the application is registered.
    let mut reader = StreamReader::begin(source)?;
    let begun = begin(system, name, checked, &clock, deadline_to_begin).await?;
    let importer = Importer::new(system, &begun, checked, clock);
    let written = importer.write_app(&mut reader).await;
    let report = ImportReport { events: reader.events() };
    let Err(error) = written else { return Ok(report) };
    // Perhaps another command has dropped the keyspace, or the last write was done although it
    // failed.
    match system.import_state(&begun, importer.deadline()).await {
        Ok(ImportState::Finished) => Ok(report),
        Ok(ImportState::Discarded) => {
            Err(ImportError::System(sysvvm::Error::ImportDiscarded { app: name.clone() }))
        }
        Ok(ImportState::Unfinished) | Err(_) => Err(ImportError::Unfinished(error)),
    }
}

/// Registers the application. A storage that fails may have registered it: for example, the storage
/// may refuse to make the keyspace.
async fn begin(
    system: &System,
    name: &AppName,
    checked: &CheckedStream,
    clock: &Clock,
    deadline: Instant,
) -> Result<AppImport, ImportError> {
    let failed = match system.begin_import(name, checked.header.partitions, deadline).await {
        Ok(begun) => return Ok(begun),
        Err(error) => error,
    };
    let is_left = match &failed {
        sysvvm::Error::AlreadyExists { .. } | sysvvm::Error::Importing { .. } => false,
        _ => {
            // The time for the beginning may be over.
            let opened = system.open_app(name, clock.now() + CALL_TIME).await;
            matches!(opened, Err(sysvvm::Error::Importing { .. }))
        }
    };
    Err(match is_left {
        true => ImportError::Unfinished(failed.into()),
        false => ImportError::System(failed),
    })
}

struct Importer<'a> {
    system: &'a System,
    begun: &'a AppImport,
    checked: &'a CheckedStream,
    series: DocNumberRows,
    clock: Clock,
}

/// The entries of a partition that are written next.
struct Batch {
    log: Option<LogWriter>,
    entries: Vec<(Entry, Bytes)>,
    bytes: usize,
}

impl<'a> Importer<'a> {
    fn new(
        system: &'a System,
        begun: &'a AppImport,
        checked: &'a CheckedStream,
        clock: Clock,
    ) -> Importer<'a> {
        let prefix = system.document_numbers(&begun.app.entry);
        let storage = Arc::clone(system.storage());
        let series = DocNumberRows::new(storage, clock.clone(), prefix, CALL_TIME);
        Importer { system, begun, checked, series, clock }
    }

    /// Writes all rows of the stream, and gives the application to the nodes.
    async fn write_app<R: BufRead>(
        &self,
        reader: &mut StreamReader<R>,
    ) -> Result<(), UnfinishedImport> {
        let (header, storage) = (&self.checked.header, &self.begun.app.storage);
        persistently(&self.clock, false, || {
            header.deployment.store(storage, &self.clock, self.deadline())
        })
        .await?;
        self.write_facts(reader).await?;
        if reader.sha256() != self.checked.sha256 {
            return Err(UnfinishedImport::Changed);
        }
        self.finish().await
    }

    async fn write_facts<R: BufRead>(
        &self,
        reader: &mut StreamReader<R>,
    ) -> Result<(), UnfinishedImport> {
        let mut batch = Batch { log: None, entries: Vec::new(), bytes: 0 };
        let mut rows: FuturesUnordered<BoxFuture<'_, Result<(), UnfinishedImport>>> =
            FuturesUnordered::new();
        while let Some(fact) = reader.next()? {
            match fact {
                Fact::Entry { partition, entry, bytes } => {
                    self.begin_log(&mut batch, partition).await?;
                    batch.bytes += bytes.len();
                    batch.entries.push((entry, bytes));
                    if batch.entries.len() == BATCH_EVENTS || batch.bytes >= BATCH_BYTES {
                        self.write_batch(&mut batch).await?;
                    }
                }
                Fact::Copy { .. } | Fact::Record { .. } => {
                    self.write_row_of_marked(&batch, &fact).await?;
                }
                Fact::Number(number) => self.raise(number).await?,
                Fact::Series(..) | Fact::Counter(..) | Fact::Range(..) => {
                    rows.push(self.write_row_of_series(fact).boxed());
                    if rows.len() == ROWS_AT_ONCE {
                        rows.next().await.transpose()?;
                    }
                }
            }
        }
        self.write_batch(&mut batch).await?;
        while let Some(written) = rows.next().await {
            written?;
        }
        Ok(())
    }

    /// Writes the events of the last partition, if an event of another one follows.
    async fn begin_log(&self, batch: &mut Batch, partition: u16) -> Result<(), UnfinishedImport> {
        if batch.log.as_ref().is_some_and(|log| log.partition() == partition) {
            return Ok(());
        }
        self.write_batch(batch).await?;
        let header = &self.checked.header;
        let settings = LogSettings {
            level: header.deployment.level,
            timeout: CALL_TIME,
            ..LogSettings::new(header.partitions)
        };
        let epoch = self.checked.epochs.get(&partition).copied();
        // A stream that was changed has a partition without an epoch.
        let OwnerEpoch(epoch) = epoch.ok_or(UnfinishedImport::Changed)?;
        let fence = Arc::new(SingleNodeFence(Epoch(epoch.into())));
        let storage = Arc::clone(&self.begun.app.storage);
        batch.log = Some(LogWriter::new(storage, self.clock.clone(), fence, partition, settings));
        Ok(())
    }

    async fn write_batch(&self, batch: &mut Batch) -> Result<(), UnfinishedImport> {
        let (entries, log) = (std::mem::take(&mut batch.entries), &batch.log);
        batch.bytes = 0;
        match log {
            Some(log) if !entries.is_empty() => {
                let copier = LogCopier::new(log);
                persistently(&self.clock, false, || copier.write_copies(&entries)).await
            }
            _ => Ok(()),
        }
    }

    async fn write_row_of_marked(
        &self,
        batch: &Batch,
        fact: &Fact,
    ) -> Result<(), UnfinishedImport> {
        let Some(log) = &batch.log else { return Err(UnfinishedImport::Changed) };
        let copier = LogCopier::new(log);
        match fact {
            Fact::Copy { entry, bytes } => {
                persistently(&self.clock, false, || {
                    copier.write_copy_of_marked(entry, bytes.clone())
                })
                .await
            }
            Fact::Record { record, bytes } => {
                persistently(&self.clock, false, || {
                    copier.write_record_of_marked(record, bytes.clone())
                })
                .await
            }
            _ => Ok(()),
        }
    }

    /// Stores a number in both places, because nodes may be configured to use either one.
    async fn raise(&self, number: LastNumber) -> Result<(), UnfinishedImport> {
        let app = &self.begun.app;
        let partition = eventlog::WsId(number.ws).partition(app.entry.partitions);
        let (storage, numbers) = (Arc::clone(&app.storage), [number]);
        let view = numbers_in_view(storage, self.clock.clone(), partition);
        for rows in [self.system.numbers(&app.entry), view] {
            let deadline = || ready(Ok(self.deadline()));
            persistently(&self.clock, true, || rows.raise(&numbers, deadline)).await?;
        }
        Ok(())
    }

    /// Writes a row of document numbers. Each attempt writes different bytes, so it is repeated
    /// only if the attempt before wrote nothing.
    async fn write_row_of_series(&self, fact: Fact) -> Result<(), UnfinishedImport> {
        let series = &self.series;
        persistently(&self.clock, false, || async {
            let deadline = self.deadline();
            match &fact {
                Fact::Series(id, stored) => series.insert_definitions(id, stored, deadline).await,
                Fact::Counter(of, next) => series.insert_counter(of, *next, deadline).await,
                Fact::Range(of, entry) => series.insert_range(of, entry, deadline).await,
                _ => Ok(()),
            }
        })
        .await
    }

    /// Raises the epochs above those of the logs, and gives the application to the nodes.
    ///
    /// Invariant: each owner has a higher epoch than all events in the log. A simpler version
    /// writes no ownership rows. The first owner has epoch 1; the log has an event of epoch 5; the
    /// owner takes the event for that of a later leader, and never starts.
    async fn finish(&self) -> Result<(), UnfinishedImport> {
        let begun = self.begun;
        let app = begun.app.entry.number.get();
        let log = |(&partition, &epoch)| (PartitionId { app, partition }, epoch);
        let logs: Vec<_> = self.checked.epochs.iter().map(log).collect();
        let owners = self.system.owners();
        persistently(&self.clock, true, || owners.begin_above(&logs, self.deadline())).await?;
        persistently(&self.clock, true, || self.system.finish_import(begun, self.deadline())).await
    }

    fn deadline(&self) -> Instant {
        self.clock.now() + 3 * CALL_TIME
    }
}
