//! The writing of the stream of an application.

use std::{io::Write, sync::Arc};

use clock::{Clock, Instant};
use docnumbers::{CounterKey, DocNumberRows, LedgerEntry, RangeState};
use eventlog::{
    Deployment, Entry, Epoch, EventPlace, LogSettings, LogWriter, Offset, Reader, SingleNodeFence,
    WsId, row_formats,
};
use futures::TryStreamExt;
use istorage::{KeyspaceName, ReadOnlyDriver, StorageDriver};
use sysvvm::{AppName, OpenedApp, System};

use crate::{
    CALL_TIME, ExportError, FORMAT_VERSION,
    line::{
        CounterLine, CounterName, EventLine, FencingLine, HeaderLine, Line, RangeLine, SeriesLine,
    },
    writer::{StreamWriter, Written},
};

/// How many entries of a ledger are read together.
const LEDGER_PAGE: usize = 1_000;

/// The numbers of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportReport {
    /// The events of all partitions.
    pub events: u64,
    /// The size of the stream.
    pub bytes: u64,
}

/// Exports an application. It only reads the storage.
#[derive(Debug)]
pub struct Exporter {
    pub(crate) system: System,
    pub(crate) app: OpenedApp,
    pub(crate) clock: Clock,
    name: AppName,
    deployment: Deployment,
}

impl Exporter {
    /// Opens an application for reading.
    ///
    /// # Errors
    /// [`ExportError::System`] if the application does not exist or cannot be read.
    pub async fn open(
        driver: Arc<dyn StorageDriver>,
        system: KeyspaceName,
        app: &AppName,
        clock: Clock,
        deadline: Instant,
    ) -> Result<Exporter, ExportError> {
        let driver = Arc::new(ReadOnlyDriver::new(driver));
        let system = System::open(driver, system, clock.clone(), deadline).await?;
        let name = app.clone();
        let app = system.open_app(app, deadline).await?;
        let deployment = Deployment::stored(&app.storage, deadline).await?;
        let deployment = deployment.ok_or_else(|| ExportError::NotDeployed(name.clone()))?;
        Ok(Exporter { system, app, clock, name, deployment })
    }

    /// Writes the stream to `out`, which may block.
    ///
    /// The export of a partition ends with the last event that its log had when the export got
    /// there. So while nodes work, the export has the first events of each partition, and at least
    /// those that were acknowledged before it began. Counters are read after all logs, so no
    /// counter is lower than a number in an event of the stream.
    ///
    /// # Errors
    /// If the export fails. Then the stream has no end, and cannot be imported.
    pub async fn write<W: Write + Send>(&self, out: &mut W) -> Result<ExportReport, ExportError> {
        let mut lines = StreamWriter::new(out);
        let partitions = self.app.entry.partitions.get();
        lines.write(&Line::Header(HeaderLine {
            format: FORMAT_VERSION,
            app: self.name.to_string(),
            partitions,
            trust_level: self.deployment.level as u8,
            row_formats: row_formats().to_vec(),
            schema: self.deployment.schema.to_string(),
        }))?;
        for partition in 0..partitions {
            self.write_log(&mut lines, partition).await?;
        }
        self.write_series(&mut lines).await?;
        let Written { events, bytes } = lines.end()?;
        Ok(ExportReport { events, bytes })
    }

    async fn write_log<W: Write>(
        &self,
        lines: &mut StreamWriter<'_, W>,
        partition: u16,
    ) -> Result<(), ExportError> {
        let storage = Arc::clone(&self.app.storage);
        let settings = LogSettings {
            level: self.deployment.level,
            stray_before: self.deployment.stray_before,
            timeout: CALL_TIME,
            ..LogSettings::new(self.app.entry.partitions)
        };
        // The reader is no leader, and no event is of a later one.
        let fence = Arc::new(SingleNodeFence(Epoch(u64::MAX)));
        let log = LogWriter::new(storage, self.clock.clone(), fence, partition, settings);
        let mut entries = log.entries(Offset::FIRST);
        while let Some((entry, bytes)) = entries.try_next().await? {
            let (offset, stored) = (entry.plog().0, bytes.clone());
            lines.write(&match entry.place() {
                Some(EventPlace { ws: WsId(ws), wlog: Offset(wlog), .. }) => {
                    Line::Event(EventLine { partition, offset, ws, wlog, bytes: stored })
                }
                None => Line::Fencing(FencingLine { partition, offset, bytes: stored }),
            })?;
            if let Entry::Marker(marker) = &entry {
                self.write_rows_of_marked(lines, marker, &bytes).await?;
            }
        }
        Ok(())
    }

    async fn write_series<W: Write>(
        &self,
        lines: &mut StreamWriter<'_, W>,
    ) -> Result<(), ExportError> {
        let (storage, clock) = (Arc::clone(self.system.storage()), self.clock.clone());
        let prefix = self.system.document_numbers(&self.app.entry);
        let rows = DocNumberRows::new(storage, clock, prefix, CALL_TIME);
        for (id, stored) in rows.all_definitions(self.deadline()).await? {
            lines.write(&Line::Series(SeriesLine { id: id.to_string(), stored }))?;
        }
        let mut counters = rows.counters();
        while let Some(of) = counters.try_next().await? {
            // Invariant: after an import no counter is reserved that was reserved when its row was
            // read here. A simpler version reads the row first, or writes it as it is. Node A
            // reserves 10 to 19, issues them and stops between the two reads: a row that was read
            // first names 10 again. Or node A gives 10 to 19 back between the two reads: the row
            // names 10, and the ledger has a range from 10 on, which no reservation may meet.
            let end = self.write_ledger(lines, &rows, &of).await?;
            // A counter that was given back may have left its storage partition behind.
            if let Some(next) = rows.counter(&of, self.deadline()).await?.max(end) {
                lines.write(&Line::Counter(CounterLine { of: name_of(&of), next }))?;
            }
        }
        Ok(())
    }

    /// Writes the ledger of a counter. Returns the highest end of its ranges.
    async fn write_ledger<W: Write>(
        &self,
        lines: &mut StreamWriter<'_, W>,
        rows: &DocNumberRows,
        of: &CounterKey,
    ) -> Result<Option<u64>, ExportError> {
        let (mut from, mut end) = (0, None);
        loop {
            let page = rows.ledger(of, from, LEDGER_PAGE, self.deadline()).await?;
            let Some(last) = page.last() else { return Ok(end) };
            from = last.first.saturating_add(1);
            for LedgerEntry { first, until, owner, reserved_at, state } in page {
                end = end.max(Some(until));
                lines.write(&Line::Range(RangeLine {
                    of: name_of(of),
                    first,
                    until,
                    is_open: state == RangeState::Open,
                    owner,
                    reserved_at_ms: reserved_at.as_millis(),
                }))?;
            }
        }
    }

    pub(crate) fn reader(&self) -> Reader {
        let storage = Arc::clone(&self.app.storage);
        Reader::new(storage, self.clock.clone(), CALL_TIME, self.app.entry.partitions)
    }

    fn deadline(&self) -> Instant {
        self.clock.now() + CALL_TIME
    }
}

fn name_of(CounterKey { series, period, ws }: &CounterKey) -> CounterName {
    let (series, period) = (series.to_string(), period.to_string());
    CounterName { series, period, ws: ws.map(|ws| ws.0) }
}
