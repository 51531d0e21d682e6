//! Two nodes elect a leader over a store of their own: a table of text keys with one conditional
//! write, as many databases have it.
//!
//! Run it with `cargo run -p ielections --example custom_store`.
//!
//! The table is in the memory of this process, so each call ends at once with a known outcome. A
//! store in a network has two more duties. It ends each call at its `deadline`. If it sent a write
//! and got no answer, the call fails with [`StoreError::Unknown`], because the write may still be
//! done.

use std::{
    collections::BTreeMap,
    error::Error,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use ielections::{
    ConditionalOutcome, ElectionRow, Elections, ObservedLease, Seat, StoreError, Timing, TtlStore,
    async_trait,
    bytes::Bytes,
    clock::{Clock, Instant},
};

/// A table of a database. `None` instead of a value is a row that does not exist.
#[derive(Debug)]
struct Table {
    /// Each value, and when its row expires.
    rows: Mutex<BTreeMap<String, (Bytes, Instant)>>,
    clock: Clock,
}

impl Table {
    fn rows(&self) -> BTreeMap<String, (Bytes, Instant)> {
        let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        rows.iter()
            .filter(|(_, row)| now < row.1)
            .map(|(k, row)| (k.clone(), row.clone()))
            .collect()
    }

    /// The conditional write: replaces a row that is as expected, in one atomic step.
    fn replace(
        &self,
        row: ElectionRow,
        expected: Option<Bytes>,
        new: Option<(Bytes, Option<Duration>)>,
    ) -> Result<ConditionalOutcome, StoreError> {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        let live = rows.get(&key(row)).filter(|(_, expires)| now < *expires);
        let actual = live.map(|(value, _)| value.clone());
        if actual != expected {
            return Ok(ConditionalOutcome::Refused(actual));
        }
        match new {
            Some((value, ttl)) => {
                let expires = ttl.map_or(Instant::FAR_FUTURE, |ttl| now + ttl);
                rows.insert(key(row), (value, expires));
            }
            None => drop(rows.remove(&key(row))),
        }
        Ok(ConditionalOutcome::Done)
    }
}

fn key(row: ElectionRow) -> String {
    match row {
        ElectionRow::Lease(seat) => format!("lease/{seat}"),
        ElectionRow::Epoch(seat) => format!("epoch/{seat}"),
    }
}

#[async_trait]
impl TtlStore for Table {
    fn expiry_delay(&self) -> Duration {
        Duration::ZERO
    }

    async fn leases(&self, _: Instant) -> Result<Vec<ObservedLease>, StoreError> {
        let now = self.clock.now();
        let lease = |(key, (value, expires)): (String, (Bytes, Instant))| {
            let seat = Seat::new(key.strip_prefix("lease/")?.parse().ok()?)?;
            Some(ObservedLease { seat, value, left: expires - now })
        };
        Ok(self.rows().into_iter().filter_map(lease).collect())
    }

    async fn get(&self, row: ElectionRow, _: Instant) -> Result<Option<Bytes>, StoreError> {
        Ok(self.rows().remove(&key(row)).map(|(value, _)| value))
    }

    async fn insert_if_not_exists(
        &self,
        row: ElectionRow,
        value: Bytes,
        ttl: Option<Duration>,
        _: Instant,
    ) -> Result<ConditionalOutcome, StoreError> {
        self.replace(row, None, Some((value, ttl)))
    }

    async fn compare_and_swap(
        &self,
        row: ElectionRow,
        old: Bytes,
        new: Bytes,
        ttl: Option<Duration>,
        _: Instant,
    ) -> Result<ConditionalOutcome, StoreError> {
        self.replace(row, Some(old), Some((new, ttl)))
    }

    async fn compare_and_delete(
        &self,
        row: ElectionRow,
        old: Bytes,
        _: Instant,
    ) -> Result<ConditionalOutcome, StoreError> {
        self.replace(row, Some(old), None)
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let clock = Clock::system();
    let store: Arc<dyn TtlStore> = Arc::new(Table { rows: Mutex::default(), clock: clock.clone() });
    let node = |address: &str| -> Result<Elections, Box<dyn Error>> {
        Ok(Elections::new(Arc::clone(&store), clock.clone(), address.parse()?, Timing::default())?)
    };
    let (first, second) = (node("10.0.0.1:8822")?, node("10.0.0.2:8822")?);
    let until = clock.now() + Duration::from_secs(60);

    let leadership = first.acquire(Seat::FIRST, until).await?;
    println!("10.0.0.1 leads seat 1 in epoch {}", leadership.epoch());
    leadership.work()?.finish(); // the place for work, which asks `WorkGuard::may_send`

    // The second node waits until the first one has released the lease.
    let release = async {
        let stopped = leadership.stopped(clock.now() + Duration::from_secs(1)).await?;
        stopped.release().await;
        println!("10.0.0.1 has released the lease");
        Ok::<_, Box<dyn Error>>(())
    };
    let take_over = async { Ok(second.acquire(Seat::FIRST, until).await?) };
    // If the release fails, the program ends at once and does not wait for the lease to expire.
    let (next, ()) = tokio::try_join!(take_over, release)?;
    println!("10.0.0.2 leads seat 1 in epoch {}", next.epoch());
    Ok(())
}
