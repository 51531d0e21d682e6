//! The owners of the partitions over a run, for the timeline.

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

/// The owners of the partitions at one time, by the address of their API. A partition without an
/// owner is absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owners {
    pub(crate) at: u64,
    pub(crate) partitions: BTreeMap<u64, String>,
}

/// Looks once a second, until it is dropped.
pub(crate) async fn watch(
    nodes: Vec<Arc<Node>>,
    recorder: Arc<Recorder>,
    clock: Clock,
    seen: Arc<std::sync::Mutex<Vec<Owners>>>,
) {
    let request = HttpRequest::get("/cluster".to_owned());
    loop {
        clock.sleep(PAUSE).await;
        for node in &nodes {
            let asked = api::send(&clock, node.admin, &request, PAUSE).await;
            let Ok(answer) = asked else { continue };
            let Some(partitions) = owners(&answer.body) else { continue };
            if let Ok(mut seen) = seen.lock() {
                seen.push(Owners { at: recorder.now(), partitions });
            }
            break;
        }
    }
}

fn owners(body: &str) -> Option<BTreeMap<u64, String>> {
    let body: Value = serde_json::from_str(body).ok()?;
    let partitions = body["partitions"].as_array()?.iter();
    let owned = partitions.filter_map(|partition| {
        Some((partition["number"].as_u64()?, partition["owner"].as_str()?.to_owned()))
    });
    Some(owned.collect())
}
