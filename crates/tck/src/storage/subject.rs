//! The subject of the suite: a database, and the way to reach it.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use clock::Clock;
use istorage::{Result, StorageDriver};

/// A database, and the way to reach it.
#[async_trait]
pub trait Subject: Send + Sync {
    /// The clock of the nodes. Deadlines are taken from this clock.
    fn clock(&self) -> Clock;

    /// The rough cost of a call.
    fn scale(&self) -> Scale;

    /// Another node of the same database, with a connection of its own. The calendar of the node is
    /// `wall_ahead_ms` ahead of [`clock`](Subject::clock). If the database belongs to one process,
    /// the one driver of the process is returned.
    ///
    /// # Errors
    /// Those of the connection.
    async fn node(&self, wall_ahead_ms: i64) -> Result<Arc<dyn StorageDriver>>;

    /// A driver that a trial may close without closing the nodes. The driver has a connection or a
    /// database of its own.
    ///
    /// # Errors
    /// Those of the connection.
    async fn spare(&self) -> Result<Arc<dyn StorageDriver>> {
        self.node(0).await
    }

    /// Lets time pass. A clock that is moved by hand is moved; with any other clock this waits.
    async fn pass(&self, duration: Duration) {
        self.clock().sleep(duration).await;
    }

    /// The number of trials that may run at once. If time is moved by hand, it passes for all
    /// trials, so only one may run.
    fn max_concurrent_trials(&self) -> usize {
        8
    }
}

/// The rough cost of a call. It decides only how often races are repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// The database is in this process.
    Embedded,
    /// Each call goes over the network.
    Server,
}

impl Scale {
    /// The number of rounds of a race.
    pub(crate) fn rounds(self) -> usize {
        match self {
            Scale::Embedded => 1_000,
            Scale::Server => 50,
        }
    }
}
