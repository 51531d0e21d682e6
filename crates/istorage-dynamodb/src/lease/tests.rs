use std::sync::Arc;

use clock::{Clock, ManualClock};
use futures::TryStreamExt;
use istorage::{AppStorageExt, ExpiringRow, Key, Outcome, Range, SharedStorage};
use serde_json::{Value, json};

use super::*;
use crate::tests::{ScriptedDynamoDb, ScriptedReply, SharedTable, binary, columns, storage_of};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
const LEASE: Duration = Duration::from_secs(20);

/// How long a leader works after it sent its last good renewal.
const WORKS: Duration = Duration::from_millis(17_500);

/// How long a candidate needs, at most, to see a renewal and, after its end, to see that the lease
/// has expired.
const LOOKS: Duration = Duration::from_secs(4);

fn key() -> Key {
    Key::new("leases", "1")
}

/// The state that all nodes share: the table and the time.
struct World {
    time: ManualClock,
    clock: Clock,
    rows: SharedTable,
    /// How far the service's clock is ahead of its beginning.
    ahead: Duration,
}

impl World {
    fn new(seed: u64) -> World {
        let time = ManualClock::new(seed);
        World { clock: time.clock(), time, rows: SharedTable::default(), ahead: 10 * HOUR }
    }

    /// A node that starts now. The dates of its first connections are wrong by these times.
    fn starts(&self, wrong: Vec<Duration>) -> Node {
        let service = ScriptedDynamoDb::with_rows(&self.rows, self.time.clone(), wrong);
        service.set_clock_ahead(self.ahead);
        let storage = storage_of(&service.new_driver(), self.clock.clone());
        let (looks_since, name) = (self.clock.now(), format!("{:x}", self.clock.random()));
        Node { service, storage, looks_since, name: name.into(), leads: None }
    }

    /// True with a probability of `permille` in 1,000.
    fn chance(&self, permille: u64) -> bool {
        self.clock.random() % 1_000 < permille
    }
}

struct Node {
    service: ScriptedDynamoDb,
    storage: SharedStorage,
    /// Since when the node has looked.
    looks_since: Instant,
    name: Bytes,
    /// When the last good write of the node's lease was sent.
    leads: Option<Instant>,
}

impl Node {
    fn soon(&self) -> Instant {
        self.service.soon()
    }

    async fn read_leases(&self) -> Vec<ExpiringRow> {
        let rows = self.storage.ttl_read("leases".into(), Range::all(), SECOND);
        rows.try_collect().await.unwrap()
    }

    async fn takes(&self) -> bool {
        let insert =
            self.storage.insert_if_not_exists(key(), self.name.clone(), Some(LEASE), self.soon());
        insert.await.unwrap() == Outcome::Applied
    }

    async fn releases(&self) -> bool {
        let delete = self.storage.compare_and_delete(key(), self.name.clone(), self.soon());
        delete.await.unwrap() == Outcome::Applied
    }

    async fn renews(&self) -> bool {
        let (old, new) = (self.name.clone(), self.name.clone());
        let swap = self.storage.compare_and_swap(key(), old, new, Some(LEASE), self.soon());
        swap.await.unwrap() == Outcome::Applied
    }

    fn works(&self, now: Instant) -> bool {
        self.leads.is_some_and(|sent| now < sent + WORKS)
    }

    /// One step of an election.
    async fn acts(&mut self, world: &World) {
        let now = world.clock.now();
        let led = self.leads.is_some();
        match self.leads {
            Some(sent) if now >= sent + LEASE / 2 => self.leads = None,
            Some(sent) if now >= sent + LEASE / 4 => {
                self.leads = if self.renews().await { Some(now) } else { None };
            }
            Some(_) => {}
            None if self.read_leases().await.is_empty() => {
                self.leads = self.takes().await.then_some(now);
            }
            None => {}
        }
        if led && self.leads.is_none() {
            self.looks_since = now;
        }
    }
}

/// The service's clock stepped an hour ahead after the leader's last renewal. A node that started
/// then heard only the new date, took it for true, and took the lease while the leader worked.
#[tokio::test]
async fn a_node_that_starts_after_a_step_takes_no_living_lease() {
    let mut world = World::new(1);
    let leader = world.starts(Vec::new());
    assert!(leader.takes().await);
    world.ahead += HOUR;
    let fresh = world.starts(Vec::new());
    for _ in 0..400 {
        world.time.advance(LEASE / 4 - SECOND / 10);
        assert_eq!(fresh.read_leases().await.len(), 1);
        world.time.advance(SECOND / 10);
        assert!(leader.renews().await, "the leader hears of no step");
        assert!(!fresh.takes().await);
    }
}

/// The first three connections led to servers with a clock that is an hour ahead. The node trusted
/// that clock.
#[tokio::test]
async fn a_node_whose_first_connections_have_a_wrong_date_takes_no_living_lease() {
    for wrong in [vec![HOUR; 3], vec![HOUR; 1_000]] {
        let world = World::new(2);
        let leader = world.starts(Vec::new());
        assert!(leader.takes().await);
        let fresh = world.starts(wrong);
        for _ in 0..20 {
            world.time.advance(LEASE / 4);
            assert!(leader.renews().await);
            assert!(!fresh.read_leases().await.is_empty() && !fresh.takes().await);
        }
    }
}

/// Leases held an absolute time of expiry. The service's clock stepped back an hour, and the leader
/// died. Its seat had no leader for an hour.
#[tokio::test]
async fn a_lease_ends_in_time_although_the_clock_of_the_service_was_stepped_back() {
    let mut world = World::new(3);
    let (leader, standby) = (world.starts(Vec::new()), world.starts(Vec::new()));
    assert!(leader.takes().await);
    assert_eq!(standby.read_leases().await[0].ttl, Some(LEASE));
    world.ahead -= HOUR;
    standby.service.set_clock_ahead(world.ahead);
    world.time.advance(LEASE - SECOND);
    assert_eq!(standby.read_leases().await[0].ttl, Some(SECOND));
    assert!(!standby.takes().await);
    world.time.advance(SECOND);
    assert_eq!(standby.read_leases().await, []);
    // A node that has just started watches the lease for as long as the lease lasts.
    let fresh = world.starts(Vec::new());
    assert_eq!(fresh.read_leases().await[0].ttl, Some(LEASE));
    assert!(standby.takes().await);
}

/// A machine that slept sees that time has passed. Only the table shows whether the lease was
/// renewed meanwhile.
#[tokio::test]
async fn a_lease_that_was_renewed_unseen_is_not_taken() {
    let world = World::new(4);
    let (leader, standby) = (world.starts(Vec::new()), world.starts(Vec::new()));
    assert!(leader.takes().await);
    assert_eq!(standby.read_leases().await.len(), 1);
    world.time.advance(LEASE / 2);
    assert!(leader.renews().await);
    world.time.advance(LEASE / 2);
    // The standby has seen one version for as long as a lease lasts, and believes that the lease
    // has expired.
    assert!(!standby.takes().await);
    assert_eq!(standby.read_leases().await.len(), 1);
}

#[tokio::test]
async fn a_missing_or_released_lease_is_absent() {
    let world = World::new(5);
    let fresh = world.starts(vec![HOUR; 3]);
    assert_eq!(fresh.read_leases().await, []);
    assert!(fresh.takes().await, "a row that is not there needs no watching");
    let standby = world.starts(Vec::new());
    assert_eq!(standby.read_leases().await.len(), 1);
    assert!(!standby.takes().await && !standby.releases().await);
    assert!(fresh.releases().await);
    // The standby has not watched the lease at all.
    assert_eq!(standby.read_leases().await, []);
    assert!(standby.takes().await, "a released lease needs no watching");
    assert!(!world.starts(Vec::new()).takes().await);
}

/// An item with a lease.
fn leased(version: u64, lasts: Duration) -> Value {
    json!({
        "p": binary(b"leases"), "c": columns("1"), "v": binary(b"v"),
        "l": { "N": lasts.as_millis().to_string() }, "n": { "N": version.to_string() }
    })
}

async fn leases_in(storage: &SharedStorage) -> Vec<ExpiringRow> {
    let rows = storage.ttl_read("leases".into(), Range::all(), 5 * SECOND);
    rows.try_collect().await.unwrap()
}

/// How a node may first see a lease: by a read of a range, two reads by key, or an insert that is
/// refused.
#[derive(Clone, Copy, Debug)]
enum FirstSight {
    Range,
    Get,
    BatchGet,
    RefusedInsert,
}

impl FirstSight {
    /// The service's answer.
    fn answer(self, item: &Value) -> (u16, Value) {
        match self {
            FirstSight::Range => (200, json!({ "Items": [item] })),
            FirstSight::Get => (200, json!({ "Item": item })),
            FirstSight::BatchGet => (200, json!({ "Responses": { "pre.test": [item] } })),
            FirstSight::RefusedInsert => {
                (400, json!({ "__type": "ConditionalCheckFailedException", "Item": item }))
            }
        }
    }

    /// Whether the lease lives.
    async fn sees(self, storage: &SharedStorage, deadline: Instant) -> bool {
        match self {
            FirstSight::Range => leases_in(storage).await.len() == 1,
            FirstSight::Get => storage.get_linearizable(&key(), deadline).await.unwrap().is_some(),
            FirstSight::BatchGet => {
                storage.get_values(&[key()], deadline).await.unwrap()[0].is_some()
            }
            FirstSight::RefusedInsert => {
                let insert = storage.insert_if_not_exists(key(), "w".into(), Some(LEASE), deadline);
                insert.await.unwrap()
                    == Outcome::NotApplied(vec![istorage::Conflict {
                        op: 0,
                        actual: Some("v".into()),
                    }])
            }
        }
    }
}

/// The safety of leases rests on this test. Leader A counts from before it sent a renewal. Node B
/// counts from after the renewal was stored. If B counted from before it asked, and the answer took
/// a second, B would see the lease expire a second early, while A leads.
#[tokio::test]
async fn a_lease_counts_from_the_answer_that_showed_it() {
    for sight in
        [FirstSight::Range, FirstSight::Get, FirstSight::BatchGet, FirstSight::RefusedInsert]
    {
        for lasts in [LEASE, 3 * LEASE] {
            let (status, body) = sight.answer(&leased(7, lasts));
            let service = ScriptedDynamoDb::new([ScriptedReply::Slow(SECOND, status, body)]);
            let storage = service.storage();
            assert!(service.patiently(sight.sees(&storage, service.soon())).await);
            let page = || ScriptedReply::Answer(json!({ "Items": [leased(7, lasts)] }));
            let left = SECOND / 10;
            service.time.advance(lasts - left);
            service.add_reply(page());
            let rows = leases_in(&storage).await;
            assert!(rows.len() == 1, "{sight:?}: a lease of {lasts:?} has expired early");
            // The test polls each millisecond, so it may notice the answer a little later.
            let seen = rows[0].ttl.unwrap();
            assert!(seen <= left && seen > left / 2, "{sight:?}: {seen:?} are left");
            service.time.advance(left);
            service.add_reply(page());
            assert_eq!(leases_in(&storage).await, [], "{sight:?}: a lease of {lasts:?} lives on");
        }
    }
}

/// Node B sent a read, and stood still. Leader A renewed its lease meanwhile. When B looked at the
/// answer, it judged the version in the answer by the time of the look. So B saw a living lease as
/// expired. A candidate's write is refused then, but a node that only reads the leases, to learn
/// which nodes live, has no such second check.
#[tokio::test]
async fn a_lease_in_an_answer_that_waited_is_judged_by_the_time_of_the_question() {
    for sight in
        [FirstSight::Range, FirstSight::Get, FirstSight::BatchGet, FirstSight::RefusedInsert]
    {
        let (status, body) = sight.answer(&leased(7, LEASE));
        let service = ScriptedDynamoDb::new([
            ScriptedReply::Slow(Duration::ZERO, status, body.clone()),
            ScriptedReply::Slow(2 * SECOND, status, body),
        ]);
        let storage = service.storage();
        assert!(service.patiently(sight.sees(&storage, service.soon())).await);
        // The lease has expired for B when the answer is looked at, but not when B asked.
        service.time.advance(LEASE - SECOND);
        let sees = service.patiently(sight.sees(&storage, service.soon())).await;
        assert!(sees, "{sight:?}: the lease has expired by an answer that waited");
    }
}

/// Each look at 10,001 leases made the node forget all leases that it had watched. So no lease ever
/// expired, and no seat of a dead leader was taken.
#[test]
fn the_leases_of_all_seats_expire() {
    let (watch, time) = (LeaseWatch::default(), ManualClock::new(8));
    let table: Arc<str> = Arc::from("t");
    let seats = usize::from(u16::MAX);
    let count_living = || {
        let now = time.clock().now();
        let lives = |n: &usize| {
            let row = (Arc::clone(&table), Bytes::from("p"), Bytes::from(n.to_string()));
            watch.record(row, StoredLease { version: 1, lasts: LEASE }, now).left(now).is_some()
        };
        (0..seats).filter(lives).count()
    };
    assert_eq!(count_living(), seats);
    time.advance(LEASE / 2);
    assert_eq!(count_living(), seats);
    time.advance(LEASE / 2);
    assert_eq!(count_living(), 0);
}

/// A node that came back after a crash replaces its former lease.
#[tokio::test]
async fn a_node_replaces_its_former_lease_at_once() {
    let world = World::new(6);
    let former = world.starts(Vec::new());
    assert!(former.takes().await);
    let fresh = world.starts(Vec::new());
    let swap = fresh.storage.compare_and_swap(
        key(),
        former.name.clone(),
        fresh.name.clone(),
        Some(LEASE),
        fresh.soon(),
    );
    assert_eq!(swap.await.unwrap(), Outcome::Applied);
}

#[test]
fn beyond_the_bound_all_leases_are_watched_from_the_beginning() {
    let (watch, time) = (LeaseWatch::default(), ManualClock::new(7));
    let (table, now) = (Arc::from("t"), time.clock().now());
    let row = |n: usize| (Arc::clone(&table), Bytes::from("p"), Bytes::from(n.to_string()));
    let lease = StoredLease { version: 1, lasts: LEASE };
    for n in 0..WATCHED_MAX {
        watch.record(row(n), lease, now);
    }
    assert_eq!(watch.expired(&row(0), now + LEASE), 1);
    watch.record(row(WATCHED_MAX), lease, now + LEASE);
    assert_eq!(lock(&watch.0).len(), 1);
    assert_eq!(watch.expired(&row(0), now + LEASE), NO_VERSION);
}

/// Nodes start, stop, stand still and die at random moments. The service's clock steps ahead and
/// back, and connections lead to servers with wrong clocks.
async fn history(seed: u64) {
    let mut world = World::new(seed);
    let start = world.clock.now();
    let mut nodes: Vec<Node> = Vec::new();
    // When a lease was last written.
    let mut written = start;
    while world.clock.now() < start + 12 * LEASE {
        if world.chance(20) {
            world.ahead = Duration::from_nanos(world.clock.random() % 20 * HOUR.as_nanos() as u64);
        }
        if nodes.len() < 2 || nodes.len() < 4 && world.chance(30) {
            let wrong =
                (0..world.clock.random() % 8).map(|_| HOUR * (world.clock.random() % 3) as u32);
            nodes.push(world.starts(wrong.collect()));
        }
        let chosen = world.clock.random() as usize % nodes.len();
        if nodes.len() > 1 && world.chance(30) {
            nodes.swap_remove(chosen);
        }
        for place in 0..nodes.len() {
            let node = &mut nodes[place];
            // The servers that a node reaches may follow a step later.
            if world.chance(200) {
                node.service.set_clock_ahead(world.ahead);
            }
            world.time.advance(Duration::from_millis(world.clock.random() % 20));
            // A leader may stand still, or get no answers from the storage.
            if node.leads.is_some() && world.chance(700) {
                continue;
            }
            let before = node.leads;
            node.acts(&world).await;
            if node.leads.is_some() && node.leads != before {
                written = world.clock.now();
            }
            let now = world.clock.now();
            let work: Vec<_> = nodes.iter().filter(|node| node.works(now)).collect();
            assert!(work.len() <= 1, "seed {seed}: {} nodes work", work.len());
        }
        let now = world.clock.now();
        let candidates = nodes.iter().filter(|node| node.leads.is_none());
        if let Some(first) = candidates.map(|node| node.looks_since).min()
            && nodes.iter().all(|node| node.leads.is_none())
        {
            let waited = now - written.max(first);
            assert!(waited <= LEASE + LOOKS, "seed {seed}: nobody leads after {waited:?}");
        }
        world.time.advance(SECOND);
    }
}

#[tokio::test]
async fn in_no_history_does_a_working_leader_lose_its_lease() {
    for seed in 0..8 {
        history(seed).await;
    }
}
