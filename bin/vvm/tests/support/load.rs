//! Clients that send commands until they are told to stop, and remember the answers.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use shop::http_client::{command_path, request, try_request, workspace_path};

use super::node::{NodeProcess, PATIENCE};

pub(crate) const NEW_ARTICLE: &str =
    r#"{"rows":[{"id":1,"table":"shop.Article","fields":{"name":"Tea"}}]}"#;

/// The knowledge of the clients about their commands.
#[derive(Debug, Default)]
pub(crate) struct AcknowledgedCommands {
    /// The commands that were answered as done: the name, the time and the offset.
    pub(crate) done: Vec<(String, Instant, u64)>,
    /// The commands with an unknown outcome.
    pub(crate) open: Vec<String>,
    /// The number of refusals with each code.
    pub(crate) refused: BTreeMap<String, usize>,
}

impl AcknowledgedCommands {
    /// Checks the logs of the workspaces of the clients, as [`wrong_with`] does.
    ///
    /// [`wrong_with`]: AcknowledgedCommands::wrong_with
    pub(crate) fn check(&self, nodes: &[&NodeProcess], clients: u64) {
        let log = |ws| {
            let owner = nodes.iter().find(|node| has(node, ws));
            (ws, owner.expect("a node leads the partition").logged(ws))
        };
        let wrong = self.wrong_with(&(1..=clients).map(log).collect());
        assert_eq!(wrong, None);
    }

    /// Compares the answers with the logs, by workspace. Each acknowledged command is in its log
    /// once, at the acknowledged offset. No other command is in a log twice. Returns the first
    /// thing that is wrong.
    pub(crate) fn wrong_with(&self, logs: &BTreeMap<u64, Vec<String>>) -> Option<String> {
        for (ws, log) in logs {
            let mut seen = BTreeSet::new();
            if let Some(name) = log.iter().find(|name| !seen.insert(*name)) {
                return Some(format!("{name} was done twice in workspace {ws}"));
            }
        }
        self.done.iter().find_map(|(name, _, offset)| {
            let ws: u64 = name.split_once('-').and_then(|(ws, _)| ws.parse().ok())?;
            let log = logs.get(&ws).map_or(&[][..], Vec::as_slice);
            let at = log.iter().position(|there| there == name).map(|at| at as u64 + 1);
            match at {
                Some(at) if at == *offset => None,
                Some(at) => Some(format!("{name} is at {at}, and {offset} was acknowledged")),
                None => Some(format!("{name} was acknowledged, and is missing")),
            }
        })
    }
}

/// Clients that send commands.
pub(crate) struct CommandLoad {
    stop: Arc<AtomicBool>,
    known: Arc<Mutex<AcknowledgedCommands>>,
    clients: Vec<JoinHandle<()>>,
}

impl CommandLoad {
    /// Starts the clients. Each client has a workspace of its own, from 1 on. The name of a command
    /// begins with the workspace and the tag.
    ///
    /// A client asks the nodes in turn until one does its command. With keys the client sends the
    /// same command until it is done. Without keys the client gives up a command that may have been
    /// done.
    pub(crate) fn start(
        tag: &'static str,
        nodes: Vec<SocketAddr>,
        clients: u64,
        with_keys: bool,
    ) -> CommandLoad {
        let stop = Arc::new(AtomicBool::new(false));
        let known = Arc::new(Mutex::new(AcknowledgedCommands::default()));
        let client = |ws| {
            let (stop, known, nodes) = (Arc::clone(&stop), Arc::clone(&known), nodes.clone());
            std::thread::spawn(move || {
                let mut node = 0;
                for number in 0_u64.. {
                    let name = format!("{ws}-{tag}-{number}");
                    loop {
                        if stop.load(Ordering::SeqCst) {
                            return;
                        }
                        match once(nodes[node % nodes.len()], ws, &name, with_keys) {
                            Ok(offset) => {
                                let done = (name, Instant::now(), offset);
                                known.lock().unwrap().done.push(done);
                                break;
                            }
                            Err(refused) => {
                                let is_open = matches!(refused, Failed::Open);
                                if let Failed::Refused(code) = refused {
                                    *known.lock().unwrap().refused.entry(code).or_default() += 1;
                                }
                                node += 1;
                                std::thread::sleep(Duration::from_millis(10));
                                if is_open && !with_keys {
                                    known.lock().unwrap().open.push(name);
                                    break;
                                }
                            }
                        }
                    }
                }
            })
        };
        let clients = (1..=clients).map(client).collect();
        CommandLoad { stop, known, clients }
    }

    /// Returns the number of commands that are done.
    pub(crate) fn done(&self) -> usize {
        self.known.lock().unwrap().done.len()
    }

    /// Takes the number of refusals with each code since the last call.
    pub(crate) fn take_refused(&self) -> BTreeMap<String, usize> {
        std::mem::take(&mut self.known.lock().unwrap().refused)
    }

    /// Returns whether a command was refused with this code since [`take_refused`] was called.
    ///
    /// [`take_refused`]: CommandLoad::take_refused
    pub(crate) fn refused_with(&self, code: &str) -> bool {
        self.known.lock().unwrap().refused.contains_key(code)
    }

    /// Waits until this many more commands are done.
    pub(crate) fn until_more(&self, more: usize) {
        let (wanted, start) = (self.done() + more, Instant::now());
        while self.done() < wanted {
            assert!(start.elapsed() < PATIENCE, "only {} are done", self.done());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Stops the clients, and returns the knowledge of all of them.
    pub(crate) fn stop(self) -> AcknowledgedCommands {
        self.stop.store(true, Ordering::SeqCst);
        self.clients.into_iter().for_each(|client| client.join().unwrap());
        Arc::into_inner(self.known).unwrap().into_inner().unwrap()
    }
}

/// Returns whether a node leads the partition of a workspace. The workspace need not exist.
pub(crate) fn has(node: &NodeProcess, ws: u64) -> bool {
    request(node.api, "GET", &format!("{}/wlog", workspace_path(ws)), &[], "").0 != 503
}

/// The reason why a command was not answered as done.
enum Failed {
    /// The node refused the command with this code. Nothing was done.
    Refused(String),
    /// The command may have been done.
    Open,
    /// The node was not reached.
    NotSent,
}

/// Sends a command once. Returns the offset in the log of the workspace.
fn once(node: SocketAddr, ws: u64, name: &str, with_key: bool) -> Result<u64, Failed> {
    let mut headers = vec![("x-request-id", name)];
    if with_key {
        headers.push(("idempotency-key", name));
    }
    let path = command_path(ws, "sys.CUD");
    let json = |body: &str| -> serde_json::Value { serde_json::from_str(body).unwrap() };
    match try_request(node, "POST", &path, &headers, NEW_ARTICLE) {
        Ok((200, body)) => Ok(json(&body)["wlogOffset"].as_u64().unwrap()),
        Ok((503, body)) => Err(Failed::Refused(json(&body)["code"].as_str().unwrap().to_owned())),
        Ok((504, _)) => Err(Failed::Open),
        Ok((status, body)) => panic!("{status}: {body}"),
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => Err(Failed::NotSent),
        Err(_) => Err(Failed::Open),
    }
}
