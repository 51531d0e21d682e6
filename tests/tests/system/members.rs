//! The trials of the members of a cluster, of the pause of balancing and of operators' orders. The
//! bytes of the rows are written here by hand: the bytes are the format, and must not follow the
//! code.

use std::time::Duration;

use futures::future::join_all;
use istorage::{Consistency, Key};
use sysvvm::{
    ClusterRows, MemberRows, OperatorOrder, SeenMember,
    ownership::{OwnerEpoch, PartitionId},
};
use tck::trial::{Trial, trials};

use crate::database::{Database, NODES, PATIENCE};

pub(crate) const TRIALS: &[Trial<Database>] = trials!(members:
    rows_have_the_documented_bytes = bytes,
    one_read_shows_all_rows = all_rows,
    the_last_heartbeat_of_a_member_stays = last_heartbeat,
    a_member_that_writes_no_more_is_gone = gone,
    orders_end_also_for_a_node_that_starts_later = orders_end,
    operators_who_pause_at_once_are_all_answered = pauses,
);

/// The lifetime of rows that a trial does not see expire.
const LONG: Duration = Duration::from_secs(600);

/// The lifetime of rows that a trial sees expire.
const SHORT: Duration = Duration::from_secs(3);

/// The pause between two looks at a row that expires.
const LOOK_EVERY: Duration = Duration::from_millis(100);

async fn of_node(database: &Database, node: usize) -> MemberRows {
    database.open(node).await.unwrap().members()
}

async fn read(database: &Database, rows: &MemberRows) -> ClusterRows {
    rows.read(database.soon()).await.unwrap()
}

async fn beat(database: &Database, rows: &MemberRows, id: u128, heartbeat: u64, ttl: Duration) {
    let bytes = format!("{id} {heartbeat}");
    rows.put_member(id, heartbeat, bytes.as_bytes(), ttl, database.soon()).await.unwrap();
}

fn seen(id: u128, heartbeat: u64) -> SeenMember {
    SeenMember { id, heartbeat, bytes: format!("{id} {heartbeat}").into() }
}

fn a_move() -> OperatorOrder {
    let partition = PartitionId { app: 1, partition: 2 };
    OperatorOrder::Move { partition, epoch: OwnerEpoch(3), to: 0xab }
}

/// Reads until `is_over`, and returns how long the rows were there.
async fn wait(
    database: &Database,
    rows: &MemberRows,
    is_over: impl Fn(&ClusterRows) -> bool,
) -> Duration {
    let begin = database.clock.now();
    loop {
        let now = database.clock.now();
        if is_over(&read(database, rows).await) {
            return now.saturating_since(begin);
        }
        assert!(now.saturating_since(begin) < PATIENCE, "the rows do not expire");
        database.clock.sleep(LOOK_EVERY).await;
    }
}

async fn bytes(database: &Database) {
    let rows = of_node(database, 0).await;
    beat(database, &rows, 0x0102, 0x0304, LONG).await;
    let pause = rows.set_paused(true, "ops", database.soon()).await.unwrap();
    let order = rows.order(&a_move(), LONG, database.soon()).await.unwrap();
    let system = database.open(1).await.unwrap();
    let get = async |ccols: &[u8]| {
        let key = Key::new(vec![0, 0, 0, 10], ccols.to_vec());
        system.storage().get(&key, Consistency::Plain, database.soon()).await.unwrap().unwrap()
    };
    let member = get(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]).await;
    assert_eq!(member, [&[0, 0, 0, 0, 0, 0, 3, 4][..], b"258 772"].concat());
    let at = pause.at.as_millis();
    assert_eq!(get(&[2]).await, format!(r#"{{"paused":true,"at":{at},"by":"ops"}}"#));
    let (at, random) = (order.at.as_micros().to_be_bytes(), order.random.to_be_bytes());
    let to = "000000000000000000000000000000ab";
    let expected = format!(r#"{{"kind":"move","app":1,"partition":2,"epoch":3,"to":"{to}"}}"#);
    assert_eq!(get(&[&[3][..], &at, &random].concat()).await, expected);
}

async fn all_rows(database: &Database) {
    let rows = of_node(database, 0).await;
    assert_eq!(read(database, &rows).await, ClusterRows::default());
    let drain = OperatorOrder::Drain { member: 4 };
    let cancel = OperatorOrder::CancelDrain { member: 4 };
    let mut orders = Vec::new();
    for (node, order) in [a_move(), drain, cancel].into_iter().enumerate() {
        let rows = of_node(database, node).await;
        orders.push((rows.order(&order, LONG, database.soon()).await.unwrap(), order));
        // Orders of one microsecond have any order.
        database.clock.sleep(Duration::from_millis(1)).await;
    }
    for id in 0..40 {
        beat(database, &of_node(database, usize::try_from(id).unwrap() % NODES).await, id, 7, LONG)
            .await;
    }
    let pause = rows.set_paused(false, "", database.soon()).await.unwrap();
    let members = (0..40).map(|id| seen(id, 7)).collect();
    let expected = ClusterRows { members, pause: Some(pause), orders, ..ClusterRows::default() };
    assert_eq!(read(database, &of_node(database, 3).await).await, expected);
}

async fn last_heartbeat(database: &Database) {
    let (rows, other) = (of_node(database, 0).await, of_node(database, 1).await);
    let writes = (0..40_u64).map(|n| {
        // The heartbeats arrive in no order.
        let rows = if n.is_multiple_of(2) { &rows } else { &other };
        beat(database, rows, 5, n * 23 % 40 + 1, LONG)
    });
    join_all(writes).await;
    beat(database, &other, 6, 1, LONG).await;
    beat(database, &rows, 5, 39, LONG).await;
    assert_eq!(read(database, &rows).await.members, [seen(5, 40), seen(6, 1)]);
}

async fn gone(database: &Database) {
    let (rows, other) = (of_node(database, 0).await, of_node(database, 1).await);
    beat(database, &rows, 1, 1, SHORT).await;
    beat(database, &other, 2, 1, LONG).await;
    // Each write begins a new lifetime.
    for heartbeat in 2..6 {
        database.clock.sleep(SHORT / 3).await;
        beat(database, &rows, 1, heartbeat, SHORT).await;
        assert_eq!(read(database, &other).await.members, [seen(1, heartbeat), seen(2, 1)]);
    }
    let is_over = |rows: &ClusterRows| rows.members == [seen(2, 1)];
    let lived = wait(database, &other, is_over).await;
    assert!(lived > SHORT / 2, "{lived:?}");
    wait(database, &rows, is_over).await;
}

/// A storage may measure the lifetime of a conditional row anew for each node. An order must not be
/// such a row: a node that starts would obey orders that have ended long ago.
async fn orders_end(database: &Database) {
    let rows = of_node(database, 0).await;
    rows.order(&a_move(), SHORT, database.soon()).await.unwrap();
    assert_eq!(read(database, &rows).await.orders.len(), 1);
    wait(database, &rows, |rows| rows.orders.is_empty()).await;
    let late = of_node(database, 1).await;
    let took = wait(database, &late, |rows| rows.orders.is_empty()).await;
    assert!(took < SHORT, "the order has begun again: {took:?}");
}

async fn pauses(database: &Database) {
    let pause = async |node: usize| {
        let by = format!("node {node}");
        let rows = of_node(database, node).await;
        rows.set_paused(node.is_multiple_of(2), &by, database.soon()).await.unwrap()
    };
    let all = join_all((0..NODES).map(pause)).await;
    let last = all.iter().max_by_key(|pause| pause.at).cloned();
    assert_eq!(read(database, &of_node(database, 0).await).await.pause, last, "{all:?}");
    let again = pause(1).await;
    assert_eq!(read(database, &of_node(database, 2).await).await.pause, Some(again));
}
