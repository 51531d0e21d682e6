//! The owners of the partitions over a run, for the timeline, and what the nodes use.

use std::{
    collections::BTreeMap,
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

/// Looks once a second, until it is dropped.
pub(crate) async fn watch(
    nodes: Vec<Arc<Node>>,
    recorder: Arc<Recorder>,
    clock: Clock,
    watched: Arc<Mutex<Watched>>,
) {
    tokio::join!(
        watch_owners(&nodes, &recorder, &clock, &watched),
        watch_usage(&nodes, &clock, &watched),
    );
}

/// Adds what each process uses. It asks no node, so a node that stands still delays nothing.
async fn watch_usage(nodes: &[Arc<Node>], clock: &Clock, watched: &Mutex<Watched>) {
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
) {
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
