//! Orders to read the files of a port at once.
//!
//! The task that follows the files obeys them, so two looks at the files never run at the same
//! time.

use tokio::sync::watch;

/// The orders of a port. Each order has a number; the task answers the newest one, and with it all
/// earlier ones.
#[derive(Debug)]
pub(super) struct Reloads {
    ordered: watch::Sender<u64>,
    answered: watch::Sender<Answer>,
}

/// An order that the task obeys now.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReloadRequest(u64);

#[derive(Clone, Copy, Debug, Default)]
struct Answer {
    order: u64,
    is_usable: bool,
}

impl Reloads {
    pub(super) fn new() -> Reloads {
        Reloads { ordered: watch::Sender::new(0), answered: watch::Sender::new(Answer::default()) }
    }

    /// Orders a reload, and waits for its end. Returns whether the files can be used.
    ///
    /// # Cancel safety
    /// Safe: the order stays.
    pub(super) async fn order(&self) -> bool {
        let mut answers = self.answered.subscribe();
        let mut order = 0;
        self.ordered.send_modify(|last| {
            *last += 1;
            order = *last;
        });
        let answer = answers.wait_for(|answer| answer.order >= order).await;
        answer.is_ok_and(|answer| answer.is_usable)
    }

    /// Waits for an order that is not answered.
    ///
    /// # Cancel safety
    /// Safe: the order stays until it is answered.
    pub(super) async fn next(&self) -> ReloadRequest {
        let mut orders = self.ordered.subscribe();
        let answered = self.answered.borrow().order;
        // The sender lives as long as this future.
        let order = orders.wait_for(|order| *order > answered).await;
        ReloadRequest(order.map_or(answered, |order| *order))
    }

    pub(super) fn answer(&self, ReloadRequest(order): ReloadRequest, is_usable: bool) {
        self.answered.send_replace(Answer { order, is_usable });
    }
}
