//! Requests that wait for a partition: until it has an owner, or until its owner is ready.
//!
//! Invariant: at most [`LANES`] requests of a partition that was not ready are tried again at the
//! same time. The others wait in order, behind them. Otherwise a thousand requests that wait would
//! all ask the owner again and again, while the owner recovers the partition. A read that waited
//! for a place of its principal has given its lane back, and its next try is as that of a new
//! request.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use clock::Clock;
use http_server::limits::Limit;
use metrics::Gauge;
use tokio::sync::Semaphore;

use crate::{
    quota::{Quota, QuotaLimits},
    read_places::reads,
};

/// The number of requests of a partition that are tried again at the same time.
const LANES: usize = 16;

/// The number of requests of a partition that use connections to its owner at the same time: half
/// of the connections. The partition may be slow, and the owner has others.
const FORWARDED: usize = 32;

/// The partitions of a node, by the number of the application and of the partition.
#[derive(Debug)]
pub(crate) struct Parking {
    limits: QuotaLimits,
    clock: Clock,
    partitions: Mutex<HashMap<(usize, u16), Arc<ParkedPartition>>>,
}

/// The requests for a partition that wait, or that another node answers.
#[derive(Debug)]
pub(crate) struct ParkedPartition {
    pub(crate) quota: Arc<Quota>,
    pub(crate) lanes: Arc<Semaphore>,
    /// The connections to the owner that the requests may use at the same time.
    pub(crate) connections: Semaphore,
    /// The shares of principals in these connections.
    pub(crate) reads: Arc<Limit>,
}

impl Parking {
    pub(crate) fn new(limits: QuotaLimits, clock: Clock) -> Parking {
        Parking { limits, clock, partitions: Mutex::default() }
    }

    pub(crate) fn of(&self, app: usize, partition: u16) -> Arc<ParkedPartition> {
        let mut all = self.partitions.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry((app, partition)).or_insert_with(|| {
            Arc::new(ParkedPartition {
                quota: Quota::new(self.limits),
                lanes: Arc::new(Semaphore::new(LANES)),
                connections: Semaphore::new(FORWARDED),
                reads: reads(
                    FORWARDED,
                    self.limits,
                    &self.clock,
                    "partition_busy",
                    "reads of this partition",
                ),
            })
        }))
    }
}

/// Counts a request that waits, until it is dropped.
#[derive(Debug)]
pub(crate) struct Parked(Gauge);

impl Parked {
    pub(crate) fn new(gauge: &Gauge) -> Parked {
        gauge.increment(1);
        Parked(gauge.clone())
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        self.0.decrement(1);
    }
}
