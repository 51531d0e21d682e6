//! The settings of a node that an operator chooses.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    num::{NonZeroU16, NonZeroU32},
    sync::Arc,
    time::Duration,
};

use eventlog::{LogSettings, TrustLevel};
use ielections::{Budget, Timing};
use istorage::KeyspaceName;
use processor::Application;
use sysvvm::AppName;

use crate::InvalidNodeSettings;

/// The settings of a node.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// The system keyspace, which all nodes of the cluster share: leases, numbers, and the registry
    /// of applications.
    pub system: KeyspaceName,
    /// The number of seats (`NumVVM`), and so of nodes that own partitions at the same time. All
    /// nodes of a cluster must have the same number.
    pub seats: NonZeroU32,
    /// The address where other nodes reach this node's cluster port, if it has one.
    pub cluster: Option<SocketAddr>,
    /// The address where clients of other nodes find this node. It is the value of the node's
    /// lease.
    pub advertised: SocketAddr,
    /// The duration of a lease and the split of its time.
    pub lease: Timing,
    /// The time that the node waits for leadership; `None` without a limit. A standby waits without
    /// a limit, and then waits for its storage, too. Where each node watches leases, the node waits
    /// at least for the failover bound.
    pub acquire_within: Option<Duration>,
    /// The time limit of each storage call that reads or writes for commands. Calls of elections
    /// have [`Timing::call_timeout`].
    pub request_call_timeout: Duration,
    /// The time limit for opening the storage, including everything that is created at the first
    /// start.
    pub open_within: Duration,
    /// The time limit for giving all partitions to other nodes before the node stops. A node that
    /// is alone does not wait.
    pub drain_within: Duration,
    /// The time limit for stopping the whole node, after the drain.
    pub stop_within: Duration,
    /// The time from each earlier start of this node to this one. A node that starts again and
    /// again within 10 minutes gets no partitions from other nodes.
    pub earlier_starts: Vec<Duration>,
}

impl NodeSettings {
    /// The default name of the system keyspace.
    pub const SYSTEM: &str = "sysvvm";

    /// The default settings: one seat, leases of 20 s, 120 s to acquire leadership, 2 s for a call,
    /// 60 s to open, 30 s to drain, and 10 s to stop.
    ///
    /// # Panics
    /// Never: the name of the system keyspace is valid.
    pub fn new(advertised: SocketAddr) -> NodeSettings {
        let lease = Timing::default();
        NodeSettings {
            system: KeyspaceName::new(NodeSettings::SYSTEM).expect("it is a name"),
            seats: NonZeroU32::MIN,
            cluster: None,
            advertised,
            lease,
            acquire_within: Some(Duration::from_secs(120)),
            request_call_timeout: NodeSettings::usual_request_call_timeout(lease.duration),
            open_within: Duration::from_secs(60),
            drain_within: Duration::from_secs(30),
            stop_within: Duration::from_secs(10),
            earlier_starts: Vec::new(),
        }
    }

    /// The usual [`request_call_timeout`](NodeSettings::request_call_timeout) with leases of this
    /// length: a tenth of a lease.
    pub fn usual_request_call_timeout(lease: Duration) -> Duration {
        lease / 10
    }

    /// Checks that a node can work with these settings for these applications.
    ///
    /// # Errors
    /// The setting that does not fit.
    pub fn check(&self, apps: &[AppSettings]) -> Result<(), InvalidNodeSettings> {
        let mut names = BTreeSet::new();
        if let Some(twice) = apps.iter().find(|app| !names.insert(app.name.to_string())) {
            return Err(InvalidNodeSettings::AppTwice(twice.name.clone()));
        }
        let (call, lease) = (self.request_call_timeout, self.lease.duration);
        let room = self.lease.retry_for.saturating_sub(self.lease.call_timeout);
        if call > room { Err(InvalidNodeSettings::LongCalls { call, lease, room }) } else { Ok(()) }
    }
}

impl NodeSettings {
    /// The split of the lease's time on a storage where a write may land up to `late_write` after
    /// it was sent ([`Capabilities::late_write`](istorage::Capabilities::late_write)), for
    /// applications of these trust levels.
    ///
    /// At levels 0 and 1 a late write fails, or is older than the row that it meets. At level 2
    /// only the lease protects the next leader: leader A sends a write and stalls; leader B
    /// recovers the log; A's write would land after that recovery. So at level 2 the lease must
    /// last until the write has landed.
    ///
    /// # Errors
    /// If the lease is too short for the late writes.
    pub fn lease_for(
        &self,
        levels: impl IntoIterator<Item = TrustLevel>,
        late_write: Duration,
    ) -> Result<Timing, InvalidNodeSettings> {
        let of = |late_write| Timing { late_write, ..self.lease };
        if !levels.into_iter().any(|level| level == TrustLevel::Two) {
            return Ok(of(Duration::ZERO));
        }
        let fits = |late_write| Budget::new(of(late_write), Duration::ZERO).is_ok();
        // The election refuses a lease that is too short even without late writes, and names the
        // parts of the sum.
        if !fits(late_write) && fits(Duration::ZERO) {
            let shortest = Timing::shortest(late_write).map(|timing| timing.duration);
            let lease = self.lease.duration;
            return Err(InvalidNodeSettings::ShortLease { lease, late_write, shortest });
        }
        Ok(of(late_write))
    }

    /// The time that the node waits for leadership; `None` without a limit.
    ///
    /// A node that watches leases sees the lease of a dead leader expire only after it has watched
    /// the lease for its whole duration. Suppose that the node gave up earlier and a supervisor
    /// started it again. The new process would begin to watch anew, and no node would ever lead.
    pub(crate) fn acquire_limit(
        &self,
        expiry_is_watched: bool,
        budget: &Budget,
    ) -> Option<Duration> {
        let least = if expiry_is_watched { budget.failover_bound() } else { Duration::ZERO };
        self.acquire_within.map(|within| within.max(least))
    }
}

/// The place where the numbers of an application are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NumbersIn {
    /// The numbers are in the system keyspace.
    #[default]
    System,
    /// The numbers are in `sys.SequencesView` of the application's own keyspace.
    View,
}

/// An application and its deployment.
#[derive(Clone, Debug)]
pub struct AppSettings {
    /// The owner and the name of the application.
    pub name: AppName,
    /// The definition of the application.
    pub application: Arc<Application>,
    /// The number of partitions of the application. It is fixed at the first deployment.
    pub partitions: NonZeroU16,
    /// The trust level of the first deployment, which decides how rows are written. Afterwards only
    /// [`change_level`](crate::change_level) changes the level.
    pub level: TrustLevel,
    /// The place where the numbers are stored.
    pub numbers: NumbersIn,
    /// How long stored answers are kept. A command that is sent again within this time gets its
    /// first answer.
    pub answers_kept: Duration,
    /// The settings of each partition. The name in them is replaced.
    pub partition: processor::PartitionSettings,
}

impl AppSettings {
    /// The default number of partitions.
    pub const DEFAULT_PARTITIONS: NonZeroU16 = NonZeroU16::new(10).expect("ten is not zero");

    /// The default deployment: ten partitions at level 0, numbers in the system keyspace, answers
    /// kept for a day.
    pub fn new(name: AppName, application: Arc<Application>) -> AppSettings {
        let LogSettings { level, answers_kept, .. } =
            LogSettings::new(AppSettings::DEFAULT_PARTITIONS);
        AppSettings {
            name,
            application,
            partitions: AppSettings::DEFAULT_PARTITIONS,
            level,
            numbers: NumbersIn::default(),
            answers_kept,
            partition: processor::PartitionSettings::new(String::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn lease_for(level: TrustLevel, late_write: Duration) -> Result<Timing, InvalidNodeSettings> {
        let settings = NodeSettings::new(SocketAddr::from(([127, 0, 0, 1], 8822)));
        settings.lease_for([TrustLevel::Zero, level], late_write)
    }

    /// The node did not ask the driver how late a write may land. Each lease reserved a tenth of
    /// itself for late writes.
    #[test]
    fn at_level_2_the_lease_reserves_time_for_late_writes() {
        for late_write in [Duration::ZERO, SECOND, 4 * SECOND] {
            let timing = lease_for(TrustLevel::Two, late_write).unwrap();
            assert_eq!(timing, Timing { late_write, ..Timing::default() });
            for level in [TrustLevel::Zero, TrustLevel::One] {
                assert_eq!(lease_for(level, late_write).unwrap().late_write, Duration::ZERO);
            }
        }
    }

    #[test]
    fn a_node_that_watches_leases_waits_for_its_failover_bound_at_least() {
        let settings = |acquire_within| NodeSettings {
            acquire_within,
            ..NodeSettings::new(SocketAddr::from(([127, 0, 0, 1], 8822)))
        };
        let two_minutes = Some(120 * SECOND);
        for (lease, within) in [(20, Some(10 * SECOND)), (536, two_minutes)] {
            let budget = Budget::of_watched(Timing::of(lease * SECOND)).unwrap();
            let bound = budget.failover_bound();
            assert!(bound > lease * SECOND);
            assert_eq!(settings(within).acquire_limit(true, &budget), Some(bound));
            assert_eq!(settings(within).acquire_limit(false, &budget), within);
            assert_eq!(settings(None).acquire_limit(true, &budget), None);
        }
        let budget = Budget::of_watched(Timing::default()).unwrap();
        assert_eq!(settings(two_minutes).acquire_limit(true, &budget), two_minutes);
    }

    #[test]
    fn at_level_2_a_short_lease_is_refused_and_the_shortest_valid_one_is_named() {
        let bad = lease_for(TrustLevel::Two, 30 * SECOND).unwrap_err();
        let (lease, shortest) = (20 * SECOND, Some(134 * SECOND));
        assert_eq!(
            bad,
            InvalidNodeSettings::ShortLease { lease, late_write: 30 * SECOND, shortest }
        );
        assert!(bad.to_string().contains("a lease of 134 s or more"), "{bad}");
        for level in [TrustLevel::Zero, TrustLevel::One] {
            lease_for(level, 30 * SECOND).unwrap();
        }
        let never = lease_for(TrustLevel::Two, Duration::MAX).unwrap_err();
        assert!(never.to_string().contains("no lease is long enough"), "{never}");
    }
}
