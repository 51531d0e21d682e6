//! Partitions that move from one node to another: by balancing, by an order, and before a stop.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use clock::Instant;
use eventlog::WsId;
use futures::TryStreamExt;
use processor::{Done, LogName, Refused};
use shop::{article, create_workspace, cud};
use sysvvm::ownership::{MemberId, MemberState};
use tokio_util::sync::CancellationToken;
use vvm::{ClusterOrder, ClusterStatus, Launched, Node, NodeSettings, Stage};

use crate::{
    cluster::{Cluster, PATIENCE},
    found,
};

/// The number of partitions of the shop.
const PARTITIONS: u64 = 10;

fn three_seats(settings: &mut NodeSettings) {
    settings.seats = NonZeroU32::new(3).unwrap();
    settings.drain_within = Duration::from_secs(8);
}

fn launch(cluster: &Cluster, number: u16) -> Launched {
    cluster.node(number, three_seats).build().unwrap().launch()
}

fn is_here(node: &Node, ws: u64) -> bool {
    node.app("acme", "shop").unwrap().at(WsId(ws)).is_ok()
}

fn count(node: &Node) -> usize {
    (0..PARTITIONS).filter(|ws| is_here(node, *ws)).count()
}

/// Waits until a condition holds.
async fn until(cluster: &Cluster, what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = cluster.clock.now() + PATIENCE;
    while !holds() {
        assert!(cluster.clock.now() < deadline, "not in time: {what}");
        cluster.clock.sleep(Duration::from_millis(2)).await;
    }
}

/// Two nodes that share the partitions, with a workspace in each.
async fn two_nodes(cluster: &Cluster) -> [Launched; 2] {
    let first = launch(cluster, 1);
    cluster.until(&first, Stage::Leading).await;
    assert_eq!(count(first.node()), PARTITIONS as usize, "a lone node owns everything");
    let soon = cluster.clock.now() + PATIENCE;
    for ws in 0..PARTITIONS {
        run_somewhere(cluster, &[first.node().clone()], ws, soon, true).await.unwrap();
    }
    let second = launch(cluster, 2);
    until(cluster, "each node owns half of the partitions", || {
        count(first.node()) == 5 && count(second.node()) == 5
    })
    .await;
    [first, second]
}

/// Runs a command on the node that owns its partition, and tries again while nothing was done.
async fn run_somewhere(
    cluster: &Cluster,
    nodes: &[Node],
    ws: u64,
    deadline: Instant,
    is_new: bool,
) -> Result<Done, Refused> {
    loop {
        for node in nodes {
            let app = node.app("acme", "shop").unwrap();
            let Ok(here) = app.at(WsId(ws)) else { continue };
            let command = match is_new {
                true => create_workspace(ws, deadline),
                false => cud(ws, article("a"), deadline),
            };
            match found::run(here.commands(), command).await {
                Err(Refused::Busy(_)) => {}
                done => return done,
            }
        }
        assert!(cluster.clock.now() < deadline, "nobody runs commands of {ws}");
        cluster.clock.sleep(Duration::from_millis(2)).await;
    }
}

/// Runs commands in one workspace until it is told to stop. Returns how many were done, how many
/// have an unknown outcome, and the longest time of one command.
async fn load(
    cluster: Arc<Cluster>,
    nodes: Vec<Node>,
    ws: u64,
    stop: CancellationToken,
) -> (u64, u64, Duration) {
    let (mut done, mut unknown, mut longest) = (0, 0, Duration::ZERO);
    while !stop.is_cancelled() {
        let start = cluster.clock.now();
        let ran = run_somewhere(&cluster, &nodes, ws, start + PATIENCE, false).await;
        longest = longest.max(cluster.clock.now() - start);
        match ran {
            Ok(_) => done += 1,
            Err(Refused::Unknown(_)) => unknown += 1,
            Err(refused) => panic!("workspace {ws}: {refused}"),
        }
    }
    (done, unknown, longest)
}

async fn events(node: &Node, ws: u64) -> u64 {
    let here = node.app("acme", "shop").unwrap().at(WsId(ws)).unwrap();
    let log = here.log(LogName::Workspace(WsId(ws))).read(eventlog::Offset::FIRST).unwrap();
    log.try_fold(0, |count, _| async move { Ok(count + 1) }).await.unwrap()
}

fn member_of(status: &ClusterStatus, node: &Node) -> MemberId {
    let member = status.members.iter().find(|member| member.advertised == node.advertised());
    member.expect("the node has no row").id.parse().unwrap()
}

#[tokio::test]
async fn nodes_share_the_partitions_and_a_node_that_stops_gives_its_own_away() {
    let cluster = Cluster::new();
    let [first, second] = two_nodes(&cluster).await;
    for ws in 0..PARTITIONS {
        assert!(is_here(first.node(), ws) != is_here(second.node(), ws), "workspace {ws}");
    }
    let start = cluster.clock.now();
    second.shutdown().await.unwrap();
    let took = cluster.clock.now() - start;
    assert!(took < Duration::from_secs(4), "the stop took {took:?}");
    until(&cluster, "the first node owns all again", || count(first.node()) == PARTITIONS as usize)
        .await;
    // A lone node has no one to give its partitions to, and does not wait.
    let start = cluster.clock.now();
    first.shutdown().await.unwrap();
    assert!(cluster.clock.now() - start < Duration::from_secs(3));
}

/// The oracle: each command that was answered has exactly one event, and each command with an
/// unknown outcome at most one.
#[tokio::test]
async fn partitions_that_move_under_load_lose_and_double_nothing() {
    assert_eq!(move_under_load(10).await, vec![None; PARTITIONS as usize]);
}

/// Moves partitions while clients send commands. Returns what is wrong in each workspace.
pub(crate) async fn move_under_load(rounds: u64) -> Vec<Option<String>> {
    let cluster = Arc::new(Cluster::new());
    let [first, second] = two_nodes(&cluster).await;
    let nodes = [first.node().clone(), second.node().clone()];
    ClusterOrder::Pause.give(&nodes[0]).await.unwrap();
    let stop = CancellationToken::new();
    let clients: Vec<_> = (0..PARTITIONS)
        .map(|ws| tokio::spawn(load(Arc::clone(&cluster), nodes.to_vec(), ws, stop.clone())))
        .collect();
    for round in 0..rounds {
        let ws = round % 3;
        let to = &nodes[usize::from(is_here(&nodes[0], ws))];
        let status = nodes[round as usize % 2].cluster_status();
        let partition = u16::try_from(ws).unwrap();
        let to_member = member_of(&status, to);
        let order = ClusterOrder::Move { app: "acme/shop".to_owned(), partition, to: to_member };
        order.give(&nodes[round as usize % 2]).await.unwrap();
        until(&cluster, "the partition moves", || is_here(to, ws)).await;
        // The nodes see the new owner before the next order names it.
        cluster.clock.sleep(Duration::from_millis(300)).await;
    }
    stop.cancel();
    let mut findings = Vec::new();
    for (ws, client) in clients.into_iter().enumerate() {
        let ws = ws as u64;
        let answers = client.await.unwrap();
        let owner = nodes.iter().find(|node| is_here(node, ws)).unwrap();
        findings.push(wrong_with(answers, events(owner, ws).await - 1));
    }
    for node in [first, second] {
        node.shutdown().await.unwrap();
    }
    findings
}

/// Compares the answers of one workspace with the number of its events.
fn wrong_with((done, unknown, longest): (u64, u64, Duration), events: u64) -> Option<String> {
    let seen = format!("{done} done, {unknown} unknown, {events} events");
    if events < done {
        return Some(format!("a command was lost: {seen}"));
    }
    if events > done + unknown {
        return Some(format!("a command was done twice: {seen}"));
    }
    if done == 0 || unknown > 0 {
        return Some(format!("a planned move leaves no outcome unknown: {seen}"));
    }
    (longest >= Duration::from_millis(500)).then(|| format!("a command waited {longest:?}"))
}

/// A node lost a partition to another one, by a mistake, and its host took its time to stop it.
/// Meanwhile its member row said that the node was ready. A partition that was moved to it had an
/// owner that did not start it.
#[tokio::test]
async fn a_node_that_ended_its_work_is_no_successor() {
    let cluster = Cluster::new();
    let [first, second] = two_nodes(&cluster).await;
    let lost = (0..10).find(|ws| is_here(second.node(), *ws)).unwrap();
    crate::owners::usurp_partition(&cluster, u16::try_from(lost).unwrap()).await;
    second.problem().await;
    let state = || {
        let status = first.node().cluster_status();
        let of_it = |member: &&vvm::MemberStatus| member.advertised == second.node().advertised();
        status.members.iter().find(of_it).map(|member| member.state)
    };
    until(&cluster, "the node is no longer ready", || {
        state().is_none_or(|it| it != MemberState::Ready)
    })
    .await;
    second.shutdown().await.unwrap_err();
    first.shutdown().await.unwrap();
}

/// The node took an order that nobody obeyed, and answered that it was given.
#[tokio::test]
async fn an_order_that_nobody_would_obey_is_refused() {
    let cluster = Cluster::new();
    let [first, second] = two_nodes(&cluster).await;
    let node = first.node();
    let id = member_of(&node.cluster_status(), second.node());
    let here = (0..10).find(|ws| is_here(node, *ws)).unwrap();
    let partition = u16::try_from(here).unwrap();
    let order = || ClusterOrder::Move { app: "acme/shop".to_owned(), partition, to: id };
    let refused = async |order: ClusterOrder| order.give(node).await.unwrap_err().to_string();
    let why = refused(ClusterOrder::CancelDrain(id)).await;
    assert!(why.contains("does not drain"), "{why}");

    let leaves = (0..10).find(|ws| is_here(second.node(), *ws)).unwrap();
    let there = u16::try_from(leaves).unwrap();

    // The second node sees the order to drain only later.
    ClusterOrder::Drain(id).give(node).await.unwrap();
    ClusterOrder::CancelDrain(id).give(node).await.unwrap();
    ClusterOrder::Drain(id).give(node).await.unwrap();
    let drains = || {
        let members = node.cluster_status().members;
        members.iter().any(|it| it.id == id.to_string() && it.state == MemberState::Draining)
    };
    until(&cluster, "the node drains", drains).await;
    let why = refused(order()).await;
    assert!(why.ends_with("drains"), "{why}");

    let to = member_of(&node.cluster_status(), node);
    let order = ClusterOrder::Move { app: "acme/shop".to_owned(), partition: there, to };
    let why = refused(order).await;
    // Or the partition is at the first node by now.
    assert!(why.contains("already"), "{why}");

    // A node that stands still writes no row, and its row stays for 10 seconds.
    let stays = cluster.node(3, three_seats).build().unwrap().launch();
    let third = stays.node().cluster_status().this_member;
    let is_there = |fresh| {
        let members = node.cluster_status().members;
        members.iter().any(|it| it.id == third && it.fresh == fresh)
    };
    until(&cluster, "the third node is known", || is_there(true)).await;
    stays.shutdown().await.unwrap();
    until(&cluster, "the third node is gone", || is_there(false)).await;
    let to = third.parse().unwrap();
    let order = ClusterOrder::Move { app: "acme/shop".to_owned(), partition, to };
    for order in [order, ClusterOrder::Drain(to)] {
        let why = refused(order).await;
        assert!(why.contains("has not written its member row"), "{why}");
    }
    for node in [first, second] {
        node.shutdown().await.unwrap();
    }
}

/// A node that drains owns nothing, and takes partitions again after the drain.
#[tokio::test]
async fn a_node_drains_and_comes_back() {
    let cluster = Cluster::new();
    let [first, second] = two_nodes(&cluster).await;
    let id = member_of(&first.node().cluster_status(), second.node());
    ClusterOrder::Drain(id).give(first.node()).await.unwrap();
    until(&cluster, "the node owns nothing", || {
        count(first.node()) == PARTITIONS as usize && count(second.node()) == 0
    })
    .await;
    assert!(second.node().is_draining());
    let owner = first.node().advertised();
    let app = second.node().app("acme", "shop").unwrap();
    until(&cluster, "the node knows the other owner", || {
        second.node().owner_of(app, 0).owner.is_some_and(|seen| seen.advertised == owner)
    })
    .await;
    ClusterOrder::CancelDrain(id).give(first.node()).await.unwrap();
    until(&cluster, "the node owns its half again", || count(second.node()) == 5).await;
    assert!(!second.node().is_draining());
    for node in [first, second] {
        node.shutdown().await.unwrap();
    }
}
