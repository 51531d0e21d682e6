//! A storage in memory on a manual clock.

use std::time::Duration;

use clock::{Clock, Instant, ManualClock};
use istorage::{KeyspaceName, SharedStorage, StorageDriver, mem::MemDriver};

pub(crate) struct Fixture {
    pub(crate) manual: ManualClock,
    pub(crate) clock: Clock,
    pub(crate) storage: SharedStorage,
}

impl Fixture {
    pub(crate) async fn new() -> Fixture {
        let manual = ManualClock::new(1);
        let clock = manual.clock();
        let driver = MemDriver::new(clock.clone());
        let name = KeyspaceName::new("test").unwrap();
        driver.create(&name, Instant::FAR_FUTURE).await.unwrap();
        let storage = driver.open(&name, Instant::FAR_FUTURE).await.unwrap().unwrap();
        Fixture { manual, clock, storage }
    }

    pub(crate) fn soon(&self) -> Instant {
        self.clock.now() + Duration::from_secs(1)
    }
}
