//! What an operator decides.

use std::{collections::BTreeSet, net::SocketAddr, num::NonZeroU16, sync::Arc, time::Duration};

use eventlog::TrustLevel;
use ielections::{Budget, Slot, Timing};
use istorage::KeyspaceName;
use processor::Application;
use sysvvm::AppName;

use crate::BadSettings;

/// How a node works.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The keyspace of what all nodes share: leases, numbers, the registry of applications.
    pub system: KeyspaceName,
    /// How many nodes work at the same time (`NumVVM`): each leads one slot. All nodes of a storage must say the same.
    pub slots: Slot,
    /// Where other nodes' clients find this one; the value of its lead.
    pub advertised: SocketAddr,
    /// How long a lease lasts, and what its time is for.
    pub lease: Timing,
    /// How long the lead is waited for; `None` for ever, as a standby does, which waits for its storage, too. Where
    /// each node watches leases, a node waits for its failover bound at least.
    pub acquire_within: Option<Duration>,
    /// How long each call to the storage may take that reads or writes for commands.
    pub call_timeout: Duration,
    /// How long opening the storage may take, with all that has to be made for the first time.
    pub open_within: Duration,
    /// How long everything together may take to stop.
    pub stop_within: Duration,
}

impl Settings {
    /// The usual keyspace of what all nodes share.
    pub const SYSTEM: &str = "sysvvm";

    /// One slot, leases of 20 s, 120 s to acquire the lead, 2 s for a call, 60 s to open, 10 s to stop.
    ///
    /// # Panics
    /// Never: the name of the system keyspace is a name.
    pub fn new(advertised: SocketAddr) -> Settings {
        Settings {
            system: KeyspaceName::new(Settings::SYSTEM).expect("it is a name"),
            slots: Slot::new(1).expect("one is a slot"),
            advertised,
            lease: Timing::default(),
            acquire_within: Some(Duration::from_secs(120)),
            call_timeout: Duration::from_secs(2),
            open_within: Duration::from_secs(60),
            stop_within: Duration::from_secs(10),
        }
    }

    /// Whether a node can work so for these applications.
    ///
    /// # Errors
    /// What does not fit.
    pub fn check(&self, apps: &[AppSettings]) -> Result<(), BadSettings> {
        let mut names = BTreeSet::new();
        if let Some(twice) = apps.iter().find(|app| !names.insert(app.name.to_string())) {
            return Err(BadSettings::AppTwice(twice.name.clone()));
        }
        let partitions = apps.iter().map(|app| app.partitions.get()).max();
        let slots = self.slots.get();
        if let Some(partitions) = partitions.filter(|most| slots > u32::from(*most)) {
            return Err(BadSettings::IdleSlots { slots, partitions });
        }
        let (call, lease) = (self.call_timeout, self.lease.duration);
        let room = self.lease.retry_for.saturating_sub(self.lease.call_timeout);
        if call > room { Err(BadSettings::LongCalls { call, lease, room }) } else { Ok(()) }
    }
}

impl Settings {
    /// How the time of the lease is spent on a storage where a write may land up to `late_write`
    /// after it was sent ([`Capabilities::late_write`](istorage::Capabilities::late_write)), for
    /// applications of these trust levels.
    ///
    /// At levels 0 and 1 a write that lands late fails, or is older than what is there. At level 2
    /// nothing but the lease keeps a late write from landing behind the recovery of the next
    /// leader, so the lease must last until the write has landed.
    ///
    /// # Errors
    /// If the lease is too short for that.
    pub fn lease_for(
        &self,
        levels: impl IntoIterator<Item = TrustLevel>,
        late_write: Duration,
    ) -> Result<Timing, BadSettings> {
        let of = |late_writes| Timing { late_writes, ..self.lease };
        if !levels.into_iter().any(|level| level == TrustLevel::Two) {
            return Ok(of(Duration::ZERO));
        }
        let fits = |late_writes| Budget::new(of(late_writes), Duration::ZERO).is_ok();
        // A lease that does not fit anyway is refused by the election, with its sum.
        if !fits(late_write) && fits(Duration::ZERO) {
            let shortest = Timing::shortest(late_write).map(|timing| timing.duration);
            let lease = self.lease.duration;
            return Err(BadSettings::ShortLease { lease, late_write, shortest });
        }
        Ok(of(late_write))
    }

    /// How long the node waits for the lead; `None` for ever.
    ///
    /// A node that watches leases sees the lease of a dead leader expire when the node has watched
    /// for the whole lease. If the node gave up before, and a supervisor started it again, the next
    /// node would watch anew, and no node would ever lead.
    pub(crate) fn waits(&self, expiry_is_watched: bool, budget: &Budget) -> Option<Duration> {
        let least = if expiry_is_watched { budget.failover_bound() } else { Duration::ZERO };
        self.acquire_within.map(|within| within.max(least))
    }
}

/// Where the numbers of an application are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NumbersIn {
    /// In the system keyspace.
    #[default]
    System,
    /// In `sys.SequencesView` of the application's own keyspace.
    View,
}

/// An application, and how it is deployed.
#[derive(Clone, Debug)]
pub struct AppSettings {
    /// Whose it is, and what it is called.
    pub name: AppName,
    /// What it is.
    pub application: Arc<Application>,
    /// Over how many partitions its workspaces are spread. Fixed when it is deployed for the first time.
    pub partitions: NonZeroU16,
    /// How its rows are written. Fixed when it is deployed for the first time.
    pub level: TrustLevel,
    /// Where its numbers are kept.
    pub numbers: NumbersIn,
    /// How long a command that is sent again gets its first answer.
    pub answers_kept: Duration,
    /// Of each partition; its name is replaced.
    pub partition: processor::Settings,
}

impl AppSettings {
    /// Ten partitions at level 0, numbers in the system keyspace, answers for a day.
    ///
    /// # Panics
    /// Never: ten is not zero.
    pub fn new(name: AppName, application: Arc<Application>) -> AppSettings {
        let eventlog::Settings { level, answers_kept, .. } = eventlog::Settings::default();
        AppSettings {
            name,
            application,
            partitions: NonZeroU16::new(10).expect("ten is not zero"),
            level,
            numbers: NumbersIn::default(),
            answers_kept,
            partition: processor::Settings::new(String::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn lease_for(level: TrustLevel, late_write: Duration) -> Result<Timing, BadSettings> {
        let settings = Settings::new(SocketAddr::from(([127, 0, 0, 1], 8822)));
        settings.lease_for([TrustLevel::Zero, level], late_write)
    }

    /// Nobody asked the driver how late a write may land: each lease reckoned with a tenth of
    /// itself.
    #[test]
    fn at_level_2_the_lease_reckons_with_the_late_writes_of_the_storage() {
        for late_write in [Duration::ZERO, SECOND, 4 * SECOND] {
            let timing = lease_for(TrustLevel::Two, late_write).unwrap();
            assert_eq!(timing, Timing { late_writes: late_write, ..Timing::default() });
            for level in [TrustLevel::Zero, TrustLevel::One] {
                assert_eq!(lease_for(level, late_write).unwrap().late_writes, Duration::ZERO);
            }
        }
    }

    #[test]
    fn a_node_that_watches_leases_waits_for_its_failover_bound_at_least() {
        let settings = |acquire_within| Settings {
            acquire_within,
            ..Settings::new(SocketAddr::from(([127, 0, 0, 1], 8822)))
        };
        let two_minutes = Some(120 * SECOND);
        for (lease, within) in [(20, Some(10 * SECOND)), (536, two_minutes)] {
            let budget = Budget::of_watched(Timing::of(lease * SECOND)).unwrap();
            let bound = budget.failover_bound();
            assert!(bound > lease * SECOND);
            assert_eq!(settings(within).waits(true, &budget), Some(bound));
            assert_eq!(settings(within).waits(false, &budget), within);
            assert_eq!(settings(None).waits(true, &budget), None);
        }
        let budget = Budget::of_watched(Timing::default()).unwrap();
        assert_eq!(settings(two_minutes).waits(true, &budget), two_minutes);
    }

    #[test]
    fn at_level_2_a_lease_that_is_too_short_is_refused_with_the_shortest_that_is_not() {
        let bad = lease_for(TrustLevel::Two, 30 * SECOND).unwrap_err();
        let (lease, shortest) = (20 * SECOND, Some(134 * SECOND));
        assert_eq!(bad, BadSettings::ShortLease { lease, late_write: 30 * SECOND, shortest });
        assert!(bad.to_string().contains("a lease of 134 s or more"), "{bad}");
        for level in [TrustLevel::Zero, TrustLevel::One] {
            lease_for(level, 30 * SECOND).unwrap();
        }
        let never = lease_for(TrustLevel::Two, Duration::MAX).unwrap_err();
        assert!(never.to_string().contains("no lease is long enough"), "{never}");
    }
}
