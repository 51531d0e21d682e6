//! Services that are bound to the leadership of a node: they run while the node holds its seat.
//!
//! Invariant: the lease is released only after these services have ended. A service that does not
//! end leaves the lease to expire.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use eventlog::Epoch;
use ielections::{Leadership, Seat};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::{
    Node, Problem, ServiceError,
    lease_fence::LeaseFence,
    running_services::{RunningServices, keep_running},
};

/// A service that runs while its node holds a seat.
#[async_trait]
pub trait NodeService: fmt::Debug + Send + Sync + 'static {
    /// The name of the service in logs.
    fn name(&self) -> &'static str;

    /// Works for one leadership until `stop` is cancelled, and then returns soon: the lease is not
    /// released before. The node calls this method when its applications are open, and again after
    /// a pause if it returns before `stop` is cancelled. `stop` is also cancelled when the
    /// leadership is lost.
    ///
    /// The writes of the service need protection of their own. [`HeldSeat::may_work`] tells whether
    /// the leadership still lasts, and the seat with [`HeldSeat::epoch`] is a fencing token.
    ///
    /// # Errors
    /// The reason why the service cannot go on. It is logged.
    async fn run(&self, seat: HeldSeat, stop: CancellationToken) -> Result<(), ServiceError>;
}

/// A seat that this node holds, for a service. No other node holds the same seat.
#[derive(Clone, Debug)]
pub struct HeldSeat {
    node: Node,
    seat: Seat,
    fence: Arc<LeaseFence>,
}

impl HeldSeat {
    /// The node.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The number of the seat, from 1 to the number of seats.
    pub fn number(&self) -> u32 {
        self.seat.get()
    }

    /// The epoch of this leadership. Each later leadership of the seat has a higher one.
    pub fn epoch(&self) -> Epoch {
        self.fence.epoch()
    }

    /// Whether a call that takes up to `timeout` may be sent now. The clock decides, so a process
    /// that stood still learns at once that its lease is over.
    pub fn may_work(&self, timeout: Duration) -> bool {
        self.fence.left(self.node.clock().now()).is_some_and(|left| timeout < left)
    }
}

/// Starts the services of a leadership; `None` if the node has none.
pub(crate) fn start_services(
    node: &Node,
    leadership: &Leadership,
    fence: &Arc<LeaseFence>,
    runtime: &Handle,
) -> Result<Option<RunningServices>, Problem> {
    let services = node.node_services();
    if services.is_empty() {
        return Ok(None);
    }
    let work = leadership.work().map_err(Problem::LeadershipLost)?;
    let stop = leadership.token();
    let mut running = RunningServices::new(work, stop, runtime.clone());
    let seat = HeldSeat { node: node.clone(), seat: leadership.seat(), fence: Arc::clone(fence) };
    for service in services {
        let (service, seat, stop) = (Arc::clone(service), seat.clone(), running.stop());
        running.start(async move {
            let of = format!("seat {}", seat.number());
            let run = || service.run(seat.clone(), stop.clone());
            keep_running(service.name(), &of, seat.node.clock(), &stop, run).await;
        });
    }
    Ok(Some(running))
}
