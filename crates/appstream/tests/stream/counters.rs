//! Document numbers that a node reserves or gives back while an export reads their counter.

use std::{
    collections::HashSet,
    fmt,
    sync::{Arc, Mutex},
};

use appstream::{
    Exporter,
    clock::{Clock, Instant},
    eventlog::TrustLevel,
    istorage::{
        Call, CallAnswer, RangeRead, Result, RowStream, SharedStorage, StorageWrapper,
        WrappedDriver,
    },
};
use docnumbers::{Definition, FastSeries, FastSettings, Series, WsId};
use futures::{FutureExt, StreamExt, TryStreamExt, future::BoxFuture};

use crate::scene::{FAR, Scene, empty, import_into, name, sysvvm};

/// The series of these trials, and the size of its ranges.
const SERIES: &str = "ticket";
const RANGE: u64 = 10;

/// A node that reserves the next range when it holds fewer than `refill_below` counters.
async fn node(scene: &Scene, owner: &str, refill_below: u64) -> FastSeries {
    let series = Series::new(Definition::new(SERIES, "T{counter:4}")).unwrap();
    let settings = FastSettings { range: RANGE, refill_below, ..FastSettings::default() };
    FastSeries::open(series, scene.rows(), owner, settings, FAR).await.unwrap()
}

async fn draw(series: &FastSeries, count: usize) -> HashSet<String> {
    let mut drawn = HashSet::new();
    for _ in 0..count {
        assert!(drawn.insert(series.next(WsId(1), FAR).await.unwrap().text));
    }
    drawn
}

/// Exports the shop. A node works between the reads of the ledger and of the counter.
async fn export(scene: &Scene, work: BoxFuture<'static, ()>) -> Vec<u8> {
    let work = Arc::new(Mutex::new(Work { first: None, then: Some(work) }));
    let shared = Arc::clone(&work);
    let wrap = move |inner| Arc::new(Between { inner, work: Arc::clone(&shared) }) as SharedStorage;
    let driver = Arc::new(WrappedDriver::new(Arc::clone(&scene.driver) as _, wrap));
    let exporter = Exporter::open(driver, sysvvm(), &name(), Clock::system(), FAR).await.unwrap();
    let mut stream = Vec::new();
    exporter.write(&mut stream).await.unwrap();
    assert!(work.lock().unwrap().then.is_none(), "no node worked between the two reads");
    stream
}

/// Draws numbers of the imported shop, through several ranges.
async fn drawn_after_import(stream: &[u8]) -> HashSet<String> {
    let target = empty();
    import_into(&target, stream).await.unwrap();
    let target = Scene::open(target, TrustLevel::Zero, false).await;
    draw(&node(&target, "after the import", 0).await, 25).await
}

#[tokio::test]
async fn a_range_that_is_reserved_between_the_reads_is_not_given_twice() {
    // The node crashes, or it has issued everything that it reserved, and stops.
    for (count, stops) in [(10, false), (17, true)] {
        let scene = Scene::deployed(TrustLevel::Zero, false).await;
        let first = node(&scene, "first", 0).await;
        let mut given = draw(&first, 3).await;
        let (send, more) = tokio::sync::oneshot::channel();
        let work = async move {
            send.send(draw(&first, count).await).unwrap();
            if stops {
                first.close(FAR).await;
            }
        };
        let stream = export(&scene, work.boxed()).await;
        given.extend(more.await.unwrap());
        assert_eq!(given.len(), 3 + count);
        let after = drawn_after_import(&stream).await;
        assert!(given.is_disjoint(&after), "given twice: {:?}", given.intersection(&after));
    }
}

/// The counter was exported as it was after a whole range was given back, and the ledger as it was
/// before. After the import the series gave no number: the ledger had a range that the counter had
/// not reserved.
#[tokio::test]
async fn a_range_that_is_given_back_between_the_reads_stops_no_series() {
    let scene = Scene::deployed(TrustLevel::Zero, false).await;
    let first = node(&scene, "first", RANGE).await;
    let given = draw(&first, 3).await;
    reserved(&scene, 2 * RANGE).await;
    let work = async move { _ = first.close(FAR).await };
    let stream = export(&scene, work.boxed()).await;
    let after = drawn_after_import(&stream).await;
    assert!(given.is_disjoint(&after), "given twice: {:?}", given.intersection(&after));
}

/// Waits until the counter of the series has this number.
async fn reserved(scene: &Scene, next: u64) {
    let rows = scene.rows();
    let of = rows.counters().try_next().await.unwrap().unwrap();
    for _ in 0..1_000 {
        if rows.counter(&of, FAR).await.unwrap() == Some(next) {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("the next range is not reserved");
}

/// The work of a node after one kind of read, and before the first read of the other kind.
struct Work {
    first: Option<ReadKind>,
    then: Option<BoxFuture<'static, ()>>,
}

#[derive(Clone, Copy, PartialEq)]
enum ReadKind {
    Counter,
    Ledger,
}

/// A storage that lets a node work between the reads of a counter and of its ledger.
struct Between {
    inner: SharedStorage,
    work: Arc<Mutex<Work>>,
}

impl fmt::Debug for Between {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Between")
    }
}

impl Between {
    /// Returns the work that comes before a read.
    fn before(&self, kind: ReadKind, pkey: &[u8]) -> Option<BoxFuture<'static, ()>> {
        let is_of_series = pkey.windows(SERIES.len()).any(|part| part == SERIES.as_bytes());
        let mut work = self.work.lock().unwrap();
        if !is_of_series || *work.first.get_or_insert(kind) == kind {
            return None;
        }
        work.then.take()
    }
}

impl StorageWrapper for Between {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> Result<CallAnswer> {
        if let Call::Get(key, _) = &call
            && let Some(work) = self.before(ReadKind::Counter, &key.pkey)
        {
            work.await;
        }
        call.send(&self.inner, deadline).await
    }

    fn read(&self, read: RangeRead) -> RowStream {
        match self.before(ReadKind::Ledger, &read.pkey) {
            None => read.send(&self.inner),
            Some(work) => {
                let inner = Arc::clone(&self.inner);
                let rows = async move {
                    work.await;
                    read.send(&inner)
                };
                rows.flatten_stream().boxed()
            }
        }
    }
}
