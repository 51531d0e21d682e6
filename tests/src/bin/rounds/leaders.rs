//! The owners of the partitions and the memory of the nodes over a run, for the timeline.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use clock::Clock;
use serde_json::Value;

use crate::{
    api::{self, HttpRequest},
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
    seen: Arc<std::sync::Mutex<Vec<Owners>>>,
) {
    let request = HttpRequest::get("/cluster".to_owned());
    let addresses: Vec<String> =
        nodes.iter().map(|node| node.client_link.address.to_string()).collect();
    loop {
        clock.sleep(PAUSE).await;
        for node in &nodes {
            let asked = api::send(&clock, node.admin, &request, PAUSE).await;
            let Ok(answer) = asked else { continue };
            let Some(partitions) = owners(&answer.body, &addresses) else { continue };
            let memory = nodes.iter().map(|node| node.usage().map_or(0, |(memory, _)| memory));
            let now = Owners { at: recorder.now(), partitions, memory: memory.collect() };
            if let Ok(mut seen) = seen.lock() {
                if seen.last().is_none_or(|last| last.counts() != now.counts()) {
                    recorder.note(leaders_text(&nodes, &now));
                }
                seen.push(now);
            }
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
