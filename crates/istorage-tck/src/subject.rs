//! What is to be proved.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use clock::Clock;
use istorage::{Result, StorageDriver};

/// A database, and how to reach it.
#[async_trait]
pub trait Subject: Send + Sync {
    /// The clock of the nodes: deadlines are taken from it.
    fn clock(&self) -> Clock;

    /// What a call costs, roughly.
    fn scale(&self) -> Scale;

    /// Another node of the same database, with a connection of its own, and a calendar that is `wall_ahead_ms` ahead of
    /// [`clock`](Subject::clock). A driver whose database belongs to one process gives the one it has.
    ///
    /// # Errors
    /// Those of the connection.
    async fn node(&self, wall_ahead_ms: i64) -> Result<Arc<dyn StorageDriver>>;

    /// A driver that a trial may close without closing the nodes: on a connection, or of a database, of its own.
    ///
    /// # Errors
    /// Those of the connection.
    async fn spare(&self) -> Result<Arc<dyn StorageDriver>> {
        self.node(0).await
    }

    /// Lets time pass. A clock that is moved by hand is moved; otherwise this waits.
    async fn pass(&self, duration: Duration) {
        self.clock().sleep(duration).await;
    }

    /// How many trials may run at once. Only one if time is moved by hand, as it passes for all of them.
    fn side_by_side(&self) -> usize {
        8
    }
}

/// What a call costs, roughly: decides only how often races are repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// The database is in this process.
    Embedded,
    /// Each call goes over the network.
    Server,
}

impl Scale {
    /// How many rounds a race has.
    pub(crate) fn rounds(self) -> usize {
        match self {
            Scale::Embedded => 1_000,
            Scale::Server => 50,
        }
    }
}
