//! Drivers that wrap their storages in a wrapper that is to be proved, or in a defect.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use clock::Clock;
use istorage::{Result, SharedStorage, StorageDriver, WrappedDriver};

use crate::storage::{Scale, Subject};

type Wrap = Arc<dyn Fn(SharedStorage, Clock) -> SharedStorage + Send + Sync>;

/// A [`Subject`] with every storage wrapped.
pub struct WrappedSubject<S> {
    inner: S,
    wrap: Wrap,
}

impl<S: Subject> WrappedSubject<S> {
    /// Wraps the storages of `inner`. `wrap` also gets the clock of the node that opens the
    /// storage.
    pub fn new(
        inner: S,
        wrap: impl Fn(SharedStorage, Clock) -> SharedStorage + Send + Sync + 'static,
    ) -> WrappedSubject<S> {
        WrappedSubject { inner, wrap: Arc::new(wrap) }
    }

    fn driver(&self, inner: Arc<dyn StorageDriver>, wall_ahead_ms: i64) -> Arc<dyn StorageDriver> {
        let clock = self.inner.clock().with_wall_offset(wall_ahead_ms);
        let wrap = Arc::clone(&self.wrap);
        Arc::new(WrappedDriver::new(inner, move |storage| wrap(storage, clock.clone())))
    }
}

impl<S: fmt::Debug> fmt::Debug for WrappedSubject<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WrappedSubject").field("inner", &self.inner).finish_non_exhaustive()
    }
}

#[async_trait]
impl<S: Subject> Subject for WrappedSubject<S> {
    fn clock(&self) -> Clock {
        self.inner.clock()
    }

    fn scale(&self) -> Scale {
        self.inner.scale()
    }

    async fn node(&self, wall_ahead_ms: i64) -> Result<Arc<dyn StorageDriver>> {
        Ok(self.driver(self.inner.node(wall_ahead_ms).await?, wall_ahead_ms))
    }

    async fn spare(&self) -> Result<Arc<dyn StorageDriver>> {
        Ok(self.driver(self.inner.spare().await?, 0))
    }

    async fn pass(&self, duration: Duration) {
        self.inner.pass(duration).await;
    }

    fn max_concurrent_trials(&self) -> usize {
        self.inner.max_concurrent_trials()
    }
}
