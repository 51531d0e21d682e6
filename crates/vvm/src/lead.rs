//! The lead of a slot, as the logs of its partitions ask for it.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use clock::Instant;
use eventlog::{Epoch, Lead, LeadLost};
use ielections::Work;

/// The work of all partitions of a slot under one lead.
#[derive(Debug)]
pub(crate) struct UnderLead {
    epoch: Epoch,
    work: Mutex<Option<Work>>,
}

impl UnderLead {
    pub(crate) fn new(work: Work) -> UnderLead {
        UnderLead { epoch: Epoch(work.epoch().0), work: Mutex::new(Some(work)) }
    }

    /// All that was written was answered, and nothing is written any more. Without this nobody knows.
    pub(crate) fn finish(&self) {
        if let Some(work) = self.take() {
            work.finish();
        }
    }

    /// Nobody works any more, and what was sent may be on its way still. Who holds the lead yet, to read, can do nothing with it.
    pub(crate) fn abandon(&self) {
        drop(self.take());
    }

    fn take(&self) -> Option<Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// How long it lasts if it is not renewed; `None` if it is over.
    pub(crate) fn left(&self, now: Instant) -> Option<Duration> {
        let work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        let until = work.as_ref()?.valid_until();
        (now < until).then(|| until - now)
    }

    fn ask(&self, timeout: Duration) -> Result<(), LeadLost> {
        let work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        match &*work {
            Some(work) => work.may_send(timeout).map_err(|lost| LeadLost(lost.to_string())),
            None => Err(LeadLost("its work is done".to_owned())),
        }
    }
}

impl Lead for UnderLead {
    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn may_send(&self, timeout: Duration) -> bool {
        self.ask(timeout).is_ok()
    }

    fn lost(&self) -> Option<LeadLost> {
        self.ask(Duration::ZERO).err()
    }
}
