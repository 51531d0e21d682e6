//! Nodes that lead one after another.

use std::{sync::Arc, time::Duration};

use clock::{Clock, Instant};
use ielections::Timing;
use shop::shop;
use sysvvm::AppName;
use tck::storage::{KeyspaceTracker, Subject};
use tokio::runtime::Handle;
use vvm::{AppSettings, Launched, NodeSettings, Stage, Vvm};
use vvm_tests::subjects::Cassandra;

use crate::{PATIENCE, new_name, round::Round};

pub(crate) async fn until(clock: &Clock, deadline: Instant, node: &Launched, stage: Stage) {
    while node.node().stage() != stage {
        assert!(clock.now() < deadline, "the node stays {:?}", node.node().stage());
        clock.sleep(Duration::from_millis(20)).await;
    }
}

/// Nodes of one database, one after another.
pub(crate) struct Nodes {
    addresses: String,
    pub(crate) clock: Clock,
    pub(crate) keyspaces: KeyspaceTracker,
    settings: NodeSettings,
    opens_in: Duration,
}

impl Nodes {
    pub(crate) fn new(addresses: &str, round: Round) -> Nodes {
        let clock = Clock::system();
        let settings = NodeSettings {
            system: new_name(),
            acquire_within: Some(PATIENCE),
            open_within: PATIENCE,
            lease: Timing::of(round.lease),
            request_call_timeout: NodeSettings::usual_request_call_timeout(round.lease),
            ..NodeSettings::new(([127, 0, 0, 1], 1).into())
        };
        let (addresses, opens_in) = (addresses.to_owned(), round.opens_in());
        Nodes { addresses, clock, keyspaces: KeyspaceTracker::default(), settings, opens_in }
    }

    /// Starts a node with connections of its own, as a process has: one client for elections, one
    /// for requests.
    pub(crate) async fn launch(&self) -> Arc<Launched> {
        let driver = async || {
            let driver = Cassandra::at(&self.addresses).node(0).await.unwrap();
            self.keyspaces.track(driver)
        };
        let (elections, requests) = tokio::join!(driver(), driver());
        let app = AppSettings::new(AppName::new("acme", "shop").unwrap(), shop());
        let node = Vvm::builder(elections, self.clock.clone(), self.settings.clone())
            .with_requests_on(Handle::current(), requests)
            .with_app(app);
        Arc::new(node.build().unwrap().launch())
    }

    /// Measures how long a node opens its storage while all servers work, and allows all nodes that
    /// much more. On a busy machine each start takes longer, and the wait for a server that does
    /// not work comes on top.
    pub(crate) async fn measure_opening(&mut self) {
        let start = self.clock.now();
        let node = self.launch().await;
        until(&self.clock, start + PATIENCE, &node, Stage::Waiting).await;
        let took = self.clock.now() - start;
        eprintln!("a node opened its storage in {took:?} while all servers worked");
        self.opens_in += took;
        Arc::into_inner(node).unwrap().shutdown().await.unwrap();
    }

    /// Starts a node, and waits until the node waits for the leadership.
    pub(crate) async fn standby(&self, what: &str) -> Arc<Launched> {
        let start = self.clock.now();
        let node = self.launch().await;
        until(&self.clock, start + self.opens_in, &node, Stage::Waiting).await;
        eprintln!(
            "{what}: another node waited for leadership after {:?}",
            self.clock.now() - start
        );
        node
    }

    /// Stops the leader, and waits until the other node works.
    pub(crate) async fn hand_over(&self, leader: Arc<Launched>, next: &Launched, what: &str) {
        Arc::into_inner(leader).unwrap().shutdown().await.unwrap();
        let released = self.clock.now();
        until(&self.clock, released + self.opens_in, next, Stage::Leading).await;
        eprintln!("{what}: the other node worked after {:?}", self.clock.now() - released);
    }
}
