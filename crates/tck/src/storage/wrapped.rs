//! Subjects with each storage or driver wrapped: in a wrapper that is to be proved, or in a defect.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use clock::Clock;
use istorage::{Result, SharedStorage, StorageDriver, WrappedDriver};

use crate::storage::{Scale, Subject};

/// Wraps the driver of a node. The number says by how many ms the calendar of the node is ahead.
type WrapDriver = Box<dyn Fn(Arc<dyn StorageDriver>, i64) -> Arc<dyn StorageDriver> + Send + Sync>;

/// A [`Subject`] with every storage wrapped.
pub struct WrappedSubject<S> {
    inner: S,
    wrap: WrapDriver,
}

impl<S: Subject> WrappedSubject<S> {
    /// Wraps the storages of `inner`. `wrap` also gets the clock of the node that opens the
    /// storage.
    pub fn new(
        inner: S,
        wrap: impl Fn(SharedStorage, Clock) -> SharedStorage + Send + Sync + 'static,
    ) -> WrappedSubject<S> {
        let (clock, wrap) = (inner.clock(), Arc::new(wrap));
        WrappedSubject::with_drivers(inner, move |driver, wall_ahead_ms| {
            let (clock, wrap) = (clock.with_wall_offset(wall_ahead_ms), Arc::clone(&wrap));
            Arc::new(WrappedDriver::new(driver, move |storage| wrap(storage, clock.clone())))
        })
    }

    /// Wraps the drivers of `inner`.
    pub(crate) fn with_drivers<W>(inner: S, wrap: W) -> WrappedSubject<S>
    where
        W: Fn(Arc<dyn StorageDriver>, i64) -> Arc<dyn StorageDriver> + Send + Sync + 'static,
    {
        WrappedSubject { inner, wrap: Box::new(wrap) }
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
        Ok((self.wrap)(self.inner.node(wall_ahead_ms).await?, wall_ahead_ms))
    }

    async fn spare(&self) -> Result<Arc<dyn StorageDriver>> {
        Ok((self.wrap)(self.inner.spare().await?, 0))
    }

    async fn pass(&self, duration: Duration) {
        self.inner.pass(duration).await;
    }

    fn max_concurrent_trials(&self) -> usize {
        self.inner.max_concurrent_trials()
    }
}
