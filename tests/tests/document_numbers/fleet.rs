//! `SequenceClient: several servers`. Two to eight nodes draw from one counter, and crash or stop
//! again and again. No number is drawn twice, and the ledger explains each gap.

use std::{collections::BTreeMap, sync::Arc};

use docnumbers::{FastSeries, FastSettings, LedgerEntry, RangeState, WsId};
use fastrand::Rng;
use tck::trial::{Trial, finding_of, is_long, trials};
use tokio::task::JoinSet;

use crate::{database::Database, wrong::DrawDefect};

pub(crate) const TRIALS: &[Trial<Database>] = trials!(fleet:
    no_number_is_drawn_twice_and_the_ledger_explains_all_gaps
        = |database| crashing_nodes(database, NodeEnd::random),
);

/// Wrong nodes. Each mistake must be found by its own check.
pub(crate) const FOUND: &[Trial<Database>] = trials!(found_by_fleet:
    nodes_that_reserve_without_a_condition
        = |database| is_found(database, DrawDefect::ReservesWithoutCondition, "was drawn twice"),
    nodes_without_a_ledger
        = |database| is_found(database, DrawDefect::NoLedger, "explained by None"),
);

const WS: WsId = WsId(1);
const MOST_NODES: usize = 8;

/// How the life of a node ended.
#[derive(Clone, Copy, Debug, PartialEq)]
enum NodeEnd {
    Crashed,
    Stopped,
}

impl NodeEnd {
    fn random(random: &mut Rng) -> NodeEnd {
        if random.bool() { NodeEnd::Crashed } else { NodeEnd::Stopped }
    }
}

/// The numbers that one node drew, ascending, and the end of the node.
struct NodeLife {
    owner: String,
    drawn: Vec<u64>,
    end: NodeEnd,
}

/// Draws `count` numbers from a node, and ends the node.
async fn live(
    (node, number): (FastSeries, usize),
    count: usize,
    end: NodeEnd,
    deadline: clock::Instant,
) -> NodeLife {
    let mut drawn = Vec::with_capacity(count);
    while drawn.len() < count {
        let block = 7.min(count - drawn.len()) as u32;
        let numbers = node.block(WS, block, deadline).await.unwrap();
        drawn.extend(numbers.iter().map(|number| number.counter));
        tokio::task::yield_now().await;
    }
    if end == NodeEnd::Stopped {
        let left = node.close(deadline).await.not_given_back;
        assert_eq!(left, 0, "node {number} did not give all back");
    }
    NodeLife { owner: format!("node {number}"), drawn, end }
}

async fn is_found(database: &Database, defect: DrawDefect, expected: &str) {
    // A node that cannot give its counters back reports that itself, so these nodes only crash.
    let ends = |_: &mut Rng| NodeEnd::Crashed;
    let found = finding_of(crashing_nodes(&database.with_defect(defect), ends)).await;
    let found = found.unwrap_or_else(|| panic!("{defect:?} was not found"));
    assert!(found.contains(expected), "{found}");
}

async fn crashing_nodes(database: &Database, ends: impl Fn(&mut Rng) -> NodeEnd) {
    // A range of 100 costs a write for each 100 numbers.
    let (wanted, range) = if is_long() { (1_000_000, 1_000) } else { (20_000, 100) };
    let mut random = Rng::with_seed(7);
    let (mut nodes, mut started, mut drawn) = (JoinSet::new(), 0, 0);
    let mut lives = Vec::new();
    while drawn < wanted {
        let at_once = random.usize(2..=MOST_NODES);
        while nodes.len() < at_once {
            let node = (database.node(started, FastSettings::with_range(range)).await, started);
            started += 1;
            let count = random.usize(1..=8 * range as usize);
            let end = ends(&mut random);
            nodes.spawn(live(node, count, end, database.soon()));
        }
        let life = nodes.join_next().await.unwrap().unwrap();
        drawn += life.drawn.len();
        lives.push(life);
    }
    while let Some(life) = nodes.join_next().await {
        lives.push(life.unwrap());
    }
    check(database, &lives).await;
}

/// Checks that the counters that were not drawn are exactly those that the ledger explains.
async fn check(database: &Database, lives: &[NodeLife]) {
    let mut owners: BTreeMap<u64, &str> = BTreeMap::new();
    for life in lives {
        assert!(life.drawn.is_sorted(), "{} drew out of order", life.owner);
        for counter in &life.drawn {
            let other = owners.insert(*counter, &life.owner);
            assert_eq!(other, None, "{counter} was drawn twice, also by {}", life.owner);
        }
    }
    let rows = database.rows(0);
    let series =
        Arc::new(database.node(lives.len(), FastSettings::with_range(1)).await).series().clone();
    let day = series.day(database.clock.wall()).unwrap();
    let key = series.counter_key(day.period(), WS);
    let next = rows.counter(&key, database.soon()).await.unwrap().unwrap();
    let ledger = rows.ledger(&key, 0, 1_000_000, database.soon()).await.unwrap();
    let mut gaps: BTreeMap<u64, &LedgerEntry> = BTreeMap::new();
    for entry in &ledger {
        // The owner drew the first counters of an open range, and lost the others in its crash.
        let lost = (entry.first..entry.until).skip_while(|counter| {
            entry.state == RangeState::Open && owners.get(counter) == Some(&&*entry.owner)
        });
        gaps.extend(lost.map(|counter| (counter, entry)));
        let life = lives.iter().find(|life| life.owner == entry.owner).unwrap();
        let end = if entry.state == RangeState::Open { NodeEnd::Crashed } else { NodeEnd::Stopped };
        assert_eq!(life.end, end, "{entry:?}");
    }
    for counter in 0..next {
        match (owners.get(&counter), gaps.get(&counter)) {
            (Some(_), None) | (None, Some(_)) => {}
            (owner, gap) => panic!("{counter}: drawn by {owner:?}, explained by {gap:?}"),
        }
    }
    let last = owners.last_key_value().map(|(counter, _)| *counter);
    assert!(last < Some(next), "{last:?} was drawn, and {next} is next");
    let crashes = lives.iter().filter(|life| life.end == NodeEnd::Crashed).count();
    println!(
        "{} numbers by {} nodes with {crashes} crashes; {} counters in {} gaps",
        owners.len(),
        lives.len(),
        gaps.len(),
        ledger.len()
    );
}
