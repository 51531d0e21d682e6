//! An application in a database of its own, and the sequencers of its partitions.

use std::{
    collections::HashMap,
    num::NonZeroU16,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use eventlog::{
    DrawnNumber, Event, EventPlace, LogSettings, LogWriter, Offset, PreparedEvent, Record,
    RecordChange, RecordId, TableKind,
};
use isequencer::{
    EventSequencer, EventSequencerFactory, Params, SeqId, SeqStorage, Sequence, SequencedEvent,
    Sequences, WsId, WsKind, standard,
};
use istorage::{KeyspaceName, SharedStorage, StorageDriver};
use seqstorage::{PartitionStorage, StoredSequence};
use shop::{ShopDatabase, TestFence, qname, text};
use tck::storage::{KeyspaceTracker, Subject};
use vvm_tests::trials::Fixture;

/// The longest time for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A flush delay after which no trial waits: numbers are stored by `close` alone.
pub(crate) const NEVER: Duration = Duration::from_secs(3_600);

const PARTITIONS: u16 = 100;

/// The kinds of workspaces. Only offices have the sequence of the application.
pub(crate) const STORE: WsKind = WsKind(1);
pub(crate) const OFFICE: WsKind = WsKind(2);
pub(crate) const INVOICES: SeqId = SeqId(256);
pub(crate) const FIRST_INVOICE: u64 = 1_000;

/// The places of the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    View,
    System,
}

impl Place {
    pub(crate) const ALL: [Place; 2] = [Place::View, Place::System];

    /// A partition whose numbers are all in this place.
    pub(crate) fn partition(self) -> u16 {
        match self {
            Place::View => 1,
            Place::System => 2,
        }
    }
}

/// A workspace of a partition.
pub(crate) fn workspace(partition: u16, n: u64) -> WsId {
    WsId(u64::from(partition) + n * u64::from(PARTITIONS))
}

/// The parameters of sequencers whose numbers wait for `flush_delay`.
pub(crate) fn params(flush_delay: Duration) -> Params {
    let mut of_office = standard::sequences();
    of_office.push(Sequence::counting_from(INVOICES, FIRST_INVOICE).unwrap());
    let sequences = Sequences::new().with(STORE, standard::sequences()).unwrap();
    let sequences = sequences.with(OFFICE, of_office).unwrap();
    let retry_after = Duration::from_millis(10);
    Params { flush_delay, retry_after, ..Params::new("acme/shop", sequences) }
}

pub(crate) struct EventsFixture {
    keyspaces: KeyspaceTracker,
    driver: Arc<dyn StorageDriver>,
    pub(crate) shop_db: Arc<ShopDatabase>,
    epochs: AtomicU64,
}

#[async_trait]
impl Fixture for EventsFixture {
    async fn new(subject: Arc<dyn Subject>) -> istorage::Result<EventsFixture> {
        let (keyspaces, clock) = (KeyspaceTracker::default(), subject.clock());
        let driver = keyspaces.track(subject.node(0).await?);
        let system = KeyspaceName::new(format!("events_{:016x}", clock.random()))?;
        let partitions = NonZeroU16::new(PARTITIONS).unwrap();
        let shop_db = ShopDatabase::new(Arc::clone(&driver), system, partitions, clock).await;
        let (shop_db, epochs) = (Arc::new(shop_db), AtomicU64::new(0));
        Ok(EventsFixture { keyspaces, driver, shop_db, epochs })
    }

    async fn remove(self) -> istorage::Result<()> {
        let left = self.keyspaces.drop_all(&*self.driver, &self.shop_db.clock).await;
        left.into_iter().try_for_each(|(_, error)| Err(error))
    }
}

impl EventsFixture {
    /// The next leadership of all partitions.
    pub(crate) fn lead(&self, place: Place, params: Params) -> Leadership {
        self.lead_over(Arc::clone(&self.shop_db.app.storage), place, params)
    }

    /// The next leadership of all partitions. `storage` is the storage of the application.
    pub(crate) fn lead_over(
        &self,
        storage: SharedStorage,
        place: Place,
        params: Params,
    ) -> Leadership {
        let fence = TestFence::of(self.epochs.fetch_add(1, Ordering::SeqCst) + 1);
        let parts: Arc<Mutex<HashMap<u16, PartitionParts>>> = Arc::default();
        let (shop_db, of_fence, made) =
            (Arc::clone(&self.shop_db), Arc::clone(&fence), Arc::clone(&parts));
        let storage_of = move |partition| {
            let settings = LogSettings::new(shop_db.app.entry.partitions);
            let (clock, fence) = (shop_db.clock.clone(), Arc::clone(&of_fence) as _);
            let log =
                Arc::new(LogWriter::new(Arc::clone(&storage), clock, fence, partition, settings));
            let numbers = Arc::new(numbers_of(&shop_db, place, &log));
            let parts = PartitionParts { log, numbers: Arc::downgrade(&numbers) };
            made.lock().unwrap().insert(partition, parts);
            numbers as Arc<dyn SeqStorage>
        };
        let clock = self.shop_db.clock.clone();
        let factory = EventSequencerFactory::new(params, Arc::new(storage_of), clock).unwrap();
        Leadership { factory, fence, parts }
    }

    /// The stored numbers of a workspace, as a reader gets them: name and last number.
    pub(crate) async fn stored(&self, place: Place, ws: WsId) -> Vec<(String, u64)> {
        let settings = LogSettings::new(self.shop_db.app.entry.partitions);
        let (storage, clock) = (Arc::clone(&self.shop_db.app.storage), self.shop_db.clock.clone());
        let partition = (ws.0 % u64::from(PARTITIONS)) as u16;
        let log = Arc::new(LogWriter::new(storage, clock, TestFence::of(1), partition, settings));
        let stored = numbers_of(&self.shop_db, place, &log).sequences(ws).await.unwrap();
        let named = |StoredSequence { name, last, .. }| (name.into_owned(), last);
        stored.into_iter().map(named).collect()
    }
}

fn numbers_of(shop_db: &ShopDatabase, place: Place, log: &Arc<LogWriter>) -> PartitionStorage {
    match place {
        Place::View => PartitionStorage::in_view(Arc::clone(log)),
        Place::System => {
            let numbers = shop_db.system.numbers(&shop_db.app.entry);
            PartitionStorage::in_system(numbers, Arc::clone(log))
        }
    }
}

#[derive(Clone)]
struct PartitionParts {
    log: Arc<LogWriter>,
    /// Only the sequencer and its task own the storage of the numbers.
    numbers: Weak<PartitionStorage>,
}

/// A leadership of all partitions, with the factory of their sequencers.
pub(crate) struct Leadership {
    factory: EventSequencerFactory,
    pub(crate) fence: Arc<TestFence>,
    parts: Arc<Mutex<HashMap<u16, PartitionParts>>>,
}

impl Leadership {
    pub(crate) fn partition(&self, partition: u16) -> Leader {
        let sequencer = self.factory.partition(partition);
        let PartitionParts { log, numbers } = self.parts.lock().unwrap()[&partition].clone();
        Leader { sequencer, log, numbers }
    }
}

/// The leader of a partition.
pub(crate) struct Leader {
    pub(crate) sequencer: EventSequencer,
    pub(crate) log: Arc<LogWriter>,
    /// Gone as soon as neither the sequencer nor a task of it is there.
    pub(crate) numbers: Weak<PartitionStorage>,
}

/// The numbers of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub(crate) plog: u64,
    pub(crate) wlog: u64,
    /// The other numbers, in the order they were drawn.
    pub(crate) drawn: Vec<u64>,
}

impl Leader {
    /// Writes an event that draws from these sequences, and finishes the event.
    pub(crate) async fn write(&mut self, kind: WsKind, ws: WsId, seqs: &[SeqId]) -> Numbers {
        let mut event = self.sequencer.start_event(PATIENCE, kind, ws).await.unwrap();
        let numbers = draw(&mut event, seqs);
        let outcome = self.log.write(&[prepared(&self.log, ws, &event, &numbers)]).await;
        assert!(outcome.applied.is_ok() && outcome.commit_error.is_none(), "{outcome:?}");
        event.finish();
        numbers
    }

    /// Starts an event that draws from these sequences, and cancels the event.
    pub(crate) async fn cancel(&mut self, kind: WsKind, ws: WsId, seqs: &[SeqId]) -> Numbers {
        let mut event = self.sequencer.start_event(PATIENCE, kind, ws).await.unwrap();
        let numbers = draw(&mut event, seqs);
        event.cancel();
        numbers
    }
}

pub(crate) fn draw(event: &mut SequencedEvent<'_>, seqs: &[SeqId]) -> Numbers {
    let mut next = |seq: &SeqId| match *seq {
        standard::RECORD_ID => event.next_record_id().unwrap(),
        standard::CRECORD_ID => event.next_crecord_id().unwrap(),
        seq => event.next(seq).unwrap(),
    };
    let drawn = seqs.iter().map(&mut next).collect();
    Numbers { plog: event.plog_offset().0, wlog: event.wlog_offset(), drawn }
}

/// The event in the log: it has the numbers, and a record for each record id.
pub(crate) fn prepared(
    log: &LogWriter,
    ws: WsId,
    event: &SequencedEvent<'_>,
    numbers: &Numbers,
) -> PreparedEvent {
    let place = EventPlace {
        epoch: log.fence().epoch(),
        plog: Offset(numbers.plog),
        ws,
        wlog: Offset(numbers.wlog),
    };
    let ids = numbers.drawn.iter().filter(|number| **number >= standard::FIRST_RECORD_ID);
    let record = |id: &u64| {
        let is_of_collection = *id >= standard::FIRST_CRECORD_ID;
        let record = Record {
            table: qname("shop.Row"),
            kind: if is_of_collection { TableKind::CDoc } else { TableKind::WDoc },
            id: RecordId(*id),
            parent: None,
            is_active: true,
            fields: [("name".parse().unwrap(), text("a"))].into(),
        };
        RecordChange { replaces: None, record }
    };
    let drawn = event.drawn().map(|(key, last)| DrawnNumber { seq: key.seq.0, last });
    let event = Event {
        drawn: drawn.collect(),
        changes: ids.map(record).collect(),
        ..Event::new(place, log.clock().wall(), qname("sys.CUD"))
    };
    PreparedEvent::new(&event, |_| None)
}
