//! The owners of the partitions over a run, for the timeline, and what the nodes use.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use clock::Clock;
use serde_json::Value;

use crate::{
    api::{self, HttpRequest},
    bounds::Usage,
    node::Node,
    recorder::Recorder,
};

/// The pause between two looks.
const PAUSE: Duration = Duration::from_secs(1);

/// The owners of the partitions at one time, by their places in the cluster. A partition without
/// an owner is absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owners {
    pub(crate) at: u64,
    pub(crate) partitions: BTreeMap<u64, usize>,
    /// The resident memory of each node in bytes; 0 if the node did not run.
    pub(crate) memory: Vec<u64>,
}

/// What was seen so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watched {
    pub(crate) owners: Vec<Owners>,
    pub(crate) usage: Usage,
}

impl Owners {
    /// The number of partitions of each owner.
    fn counts(&self) -> Vec<usize> {
        let owned = |node| self.partitions.values().filter(|owner| **owner == node).count();
        (0..self.memory.len()).map(owned).collect()
    }
}

/// Looks once a second for as long as something else lasts, and returns what that returns.
pub(crate) async fn watched<T>(
    nodes: &[Arc<Node>],
    recorder: &Recorder,
    clock: &Clock,
    watched: &Mutex<Watched>,
    during: impl Future<Output = T>,
) -> T {
    tokio::select! {
        ended = during => ended,
        never = watch_owners(nodes, recorder, clock, watched) => match never {},
        never = watch_usage(nodes, clock, watched) => match never {},
    }
}

/// Adds what each process uses. It asks no node, so a node that stands still delays nothing.
async fn watch_usage(nodes: &[Arc<Node>], clock: &Clock, watched: &Mutex<Watched>) -> Infallible {
    loop {
        for node in nodes {
            if let Some(usage) = node.usage() {
                let mut watched = watched.lock().unwrap_or_else(PoisonError::into_inner);
                watched.usage.add(&node.name, usage);
            }
        }
        clock.sleep(PAUSE).await;
    }
}

async fn watch_owners(
    nodes: &[Arc<Node>],
    recorder: &Recorder,
    clock: &Clock,
    watched: &Mutex<Watched>,
) -> Infallible {
    let request = HttpRequest::get("/cluster".to_owned());
    let addresses: Vec<String> =
        nodes.iter().map(|node| node.client_link.address.to_string()).collect();
    loop {
        clock.sleep(PAUSE).await;
        for node in nodes {
            let asked = api::send(clock, node.admin, &request, PAUSE).await;
            let Ok(answer) = asked else { continue };
            let Some(partitions) = owners(&answer.body, &addresses) else { continue };
            let memory = nodes.iter().map(|node| node.usage().map_or(0, |usage| usage.memory));
            let now = Owners { at: recorder.now(), partitions, memory: memory.collect() };
            let mut watched = watched.lock().unwrap_or_else(PoisonError::into_inner);
            let seen = &mut watched.owners;
            if seen.last().is_none_or(|last| last.counts() != now.counts()) {
                recorder.note(leaders_text(nodes, &now));
            }
            seen.push(now);
            break;
        }
    }
}

fn leaders_text(nodes: &[Arc<Node>], owners: &Owners) -> String {
    let counts = nodes.iter().zip(owners.counts());
    let counts = counts.map(|(node, count)| format!("{} has {count}", node.name));
    format!("of the partitions {}", counts.collect::<Vec<_>>().join(", "))
}

fn owners(body: &str, addresses: &[String]) -> Option<BTreeMap<u64, usize>> {
    let body: Value = serde_json::from_str(body).ok()?;
    let partitions = body["partitions"].as_array()?.iter();
    let owned = partitions.filter_map(|partition| {
        let owner = partition["owner"].as_str()?;
        let place = addresses.iter().position(|address| address == owner)?;
        Some((partition["number"].as_u64()?, place))
    });
    Some(owned.collect())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use tokio::task::JoinSet;

    use super::*;
    use crate::{
        history::Line,
        network::Link,
        node::{Node, NodeParts},
    };

    /// A node whose program only sleeps.
    async fn sleeping_node(folder: &std::path::Path, clock: &Clock) -> Arc<Node> {
        let binary = folder.join("sleep");
        fs::write(&binary, "#!/bin/sh\nexec sleep 60\n").unwrap();
        fs::set_permissions(&binary, fs::Permissions::from_mode(0o700)).unwrap();
        let [api, admin] = [(); 2].map(|()| tck::trial::free_address());
        let parts = NodeParts {
            place: 0,
            name: "node 1".to_owned(),
            folder: folder.join("node-1"),
            binary,
            shim: None,
            api,
            admin,
            client_link: Link::start(api, clock).await.unwrap(),
            peer_link: None,
            storage_links: Vec::new(),
            config: String::new(),
        };
        Arc::new(Node::new(parts).unwrap())
    }

    /// The restart and the reading of the final state were not watched.
    #[tokio::test]
    async fn nodes_are_watched_until_the_end() {
        let (folder, clock) = (tempfile::tempdir().unwrap(), Clock::system());
        let first = Line::Run { seed: 1, settings: String::new() };
        let file = folder.path().join("history.jsonl");
        let recorder = Arc::new(Recorder::create(&file, clock.clone(), &first).unwrap());
        let node = sleeping_node(folder.path(), &clock).await;
        let seen = Mutex::<Watched>::default();
        let take = || std::mem::take(&mut seen.lock().unwrap().usage.memory);
        let during = async {
            // A process that was started again is seen, too.
            for _ in 0..2 {
                let exits = Arc::default();
                let run = Arc::clone(&node).supervise(Arc::clone(&recorder), clock.clone(), exits);
                let mut runs = JoinSet::new();
                runs.spawn(run);
                let deadline = clock.now() + Duration::from_secs(20);
                while take() == 0 {
                    assert!(clock.now() < deadline, "no memory was seen");
                    clock.sleep(Duration::from_millis(20)).await;
                }
                runs.shutdown().await;
                clock.sleep(PAUSE).await;
                take();
            }
            7
        };
        let nodes = [Arc::clone(&node)];
        assert_eq!(watched(&nodes, &recorder, &clock, &seen, during).await, 7);
    }
}
