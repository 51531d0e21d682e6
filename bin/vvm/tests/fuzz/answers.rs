//! What the answers promise about the logs: which commands are done, and which are not.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard},
};

use serde_json::Value;

use crate::{
    generator::{FuzzRequest, Generator},
    heads::Framing,
    known::KnownDoc,
    routes::{BodyKind, Port},
    wire::Sent,
};

/// The offsets of an event: in the log of its partition and in that of its workspace.
pub(crate) type Offsets = (u64, u64);

/// What answers promise.
#[derive(Clone, Debug, Default)]
pub(crate) struct Promises {
    /// Requests with commands that are done, with the offsets of each command.
    pub(crate) done: HashMap<u64, Vec<Offsets>>,
    /// Requests that have changed nothing.
    pub(crate) refused: HashSet<u64>,
    /// Workspaces where something has happened, and the last event that an answer named.
    pub(crate) workspaces: HashMap<u64, u64>,
}

/// The promises of all answers.
#[derive(Debug, Default)]
pub(crate) struct SharedPromises(Mutex<Promises>);

impl SharedPromises {
    pub(crate) fn get(&self) -> MutexGuard<'_, Promises> {
        self.0.lock().unwrap()
    }

    /// Notes what an answer promises.
    pub(crate) fn note(
        &self,
        generator: &Generator,
        request: &FuzzRequest,
        sent: &Sent,
    ) -> Result<(), String> {
        let Sent::Answered(answer) = sent else { return Ok(()) };
        let is_own = request.has_own_id && request.framing == Framing::Clean;
        if request.route.port != Port::Api || !is_own {
            return Ok(());
        }
        if answer.status >= 400 && answer.status != 504 {
            self.get().refused.insert(request.number);
            return Ok(());
        }
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let answers = body["answers"].as_array().map_or(std::slice::from_ref(&body), |all| all);
        let offsets: Vec<Offsets> = answers.iter().filter_map(offsets_of).collect();
        // The outcome of a command of a batch may be unknown.
        let is_known = answers.iter().all(|answer| answer["status"] != 504);
        if request.is_head_method || offsets.is_empty() || !is_known {
            return Ok(());
        }
        if let (BodyKind::NewDoc(table), Some(id)) =
            (request.route.body, body["newIds"]["1"].as_u64())
            && request.is_valid
        {
            let etag = format!("\"{}.{}\"", body["epoch"], body["plogOffset"]);
            let mut rng = generator.rng(request.number);
            generator.known.add(request.ws, table, KnownDoc { id, etag }, &mut rng);
        }
        let mut promises = self.get();
        if let Some(ws) = workspace_of(&request.head) {
            let last = offsets.iter().map(|(_, wlog)| *wlog).max();
            let known = promises.workspaces.entry(ws).or_default();
            *known = last.unwrap_or_default().max(*known);
        }
        match promises.done.insert(request.number, offsets) {
            None => Ok(()),
            Some(_) => Err("a request was done twice".to_owned()),
        }
    }
}

/// The offsets of the event of an answer, unless the command was done before.
fn offsets_of(answer: &Value) -> Option<Offsets> {
    let is_new = answer["repeated"] != true && answer.get("newIds").is_some();
    let offset = |key: &str| answer[key].as_u64();
    is_new.then_some((offset("plogOffset")?, offset("wlogOffset")?))
}

/// The workspace in a target, as the node reads it.
fn workspace_of(head: &[u8]) -> Option<u64> {
    let text = String::from_utf8_lossy(head);
    text.split_once("/workspaces/")?.1.split(['/', '?', ' ']).next()?.parse().ok()
}
