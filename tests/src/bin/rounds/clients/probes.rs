//! Requests that show whether a cluster works again.

use std::time::Duration;

use clock::Instant;
use futures::future::join_all;

use super::{RETRY_DELAY, Sender, Shared, requests};
use crate::{
    api::{self, ANSWER_TIMEOUT},
    history::Outcome,
};

/// The workspaces and the nodes, by their places, that did nothing until the deadline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Silent {
    pub(crate) workspaces: Vec<u64>,
    pub(crate) nodes: Vec<usize>,
}

impl Shared {
    /// Waits until each workspace has a command done that began after `since`, and until each node
    /// has done a command and a strong read. The requests of the clients are random, so this asks
    /// each workspace and each node itself.
    pub(crate) async fn silent(&self, since: u64, deadline: Instant) -> Silent {
        let workspaces = self.workspaces.iter().map(async |ws| {
            let works = self.takes_commands(*ws, since, deadline).await;
            (!works).then_some(*ws)
        });
        let nodes = (0..self.nodes.len()).map(async |node| {
            let works = self.does_requests(node, deadline).await;
            (!works).then_some(node)
        });
        let (workspaces, nodes) = tokio::join!(join_all(workspaces), join_all(nodes));
        Silent {
            workspaces: workspaces.into_iter().flatten().collect(),
            nodes: nodes.into_iter().flatten().collect(),
        }
    }

    /// Sends commands to a workspace, at one node after another, until one is done. A command of a
    /// client counts, too.
    async fn takes_commands(&self, ws: u64, since: u64, deadline: Instant) -> bool {
        for place in self.places_from(ws) {
            if self.last_begun(ws).is_some_and(|begun| begun >= since) {
                return true;
            }
            let Some(sender) = self.prober(deadline) else { break };
            if self.create_by(sender, place, ws).await.is_none() {
                self.clock.sleep(RETRY_DELAY).await;
            }
        }
        false
    }

    /// Sends a command to a node and reads what it wrote there, until both are answered.
    async fn does_requests(&self, node: usize, deadline: Instant) -> bool {
        let address = self.nodes[node];
        let ws = self.workspaces[node % self.workspaces.len()];
        let mut created = None;
        while let Some(sender) = self.prober(deadline) {
            match created {
                None => created = self.create_by(sender, node, ws).await,
                Some(id) => {
                    let request = requests::document(ws, id, false);
                    let read = self.ask_once(sender, address, ws, request, api::document).await;
                    if matches!(read, Outcome::Document { record: Some(_), .. }) {
                        return true;
                    }
                }
            }
            self.clock.sleep(RETRY_DELAY).await;
        }
        false
    }

    /// Creates a document by a command of its own. Returns its id.
    async fn create_by(&self, sender: Sender, node: usize, ws: u64) -> Option<u64> {
        let (sent, id) = (requests::article(ws, self.recorder.now()), self.new_id());
        let outcome = self.write_once(sender, self.nodes[node], ws, &sent, (&id, true)).await;
        match outcome {
            Outcome::Written(written) if !written.repeated => {
                written.ids.first().map(|(_, id)| *id)
            }
            _ => None,
        }
    }

    /// The sender of probes, which waits until the deadline at most. `None` if it is over.
    fn prober(&self, deadline: Instant) -> Option<Sender> {
        let left = deadline.saturating_since(self.clock.now());
        (left > Duration::ZERO).then(|| Sender { client: 0, patience: left.min(ANSWER_TIMEOUT) })
    }

    /// The places of the nodes in turn, without an end.
    fn places_from(&self, first: u64) -> impl Iterator<Item = usize> + use<> {
        let count = self.nodes.len();
        (0..count).cycle().skip(usize::try_from(first).unwrap_or(0) % count)
    }
}

#[cfg(test)]
mod tests {
    use std::{net::SocketAddr, sync::Arc};

    use clock::Clock;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
        task::JoinSet,
    };

    use super::*;
    use crate::{history::Line, recorder::Recorder};

    const DONE: (&str, &str) =
        ("200 OK", r#"{"epoch":1,"plogOffset":2,"wlogOffset":3,"newIds":{"1":200001}}"#);
    const REPEATED: (&str, &str) = (
        "200 OK",
        r#"{"epoch":1,"plogOffset":2,"wlogOffset":3,"newIds":{"1":200001},"repeated":true}"#,
    );
    const UNKNOWN: (&str, &str) = ("504 Gateway Timeout", r#"{"code":"unknown"}"#);
    const FOUND: (&str, &str) = (
        "200 OK",
        r#"{"id":200001,"table":"shop.Article","isActive":true,"fields":{},"version":{"epoch":1,"offset":2}}"#,
    );

    /// A node that gives these answers to all commands and to all reads.
    async fn node(
        tasks: &mut JoinSet<()>,
        command: (&'static str, &'static str),
        read: (&'static str, &'static str),
    ) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tasks.spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = vec![0; 4_096];
                // The requests are small, and each is one piece.
                let count = stream.read(&mut request).await.unwrap();
                let is_read = request[..count].starts_with(b"GET ");
                let (status, body) = if is_read { read } else { command };
                let length = body.len();
                let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}");
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        address
    }

    /// Asks two workspaces on these nodes for a short time.
    async fn silent(nodes: Vec<SocketAddr>, since: impl Fn(&Recorder) -> u64) -> Silent {
        let clock = Clock::system();
        let folder = tempfile::tempdir().unwrap();
        let first = Line::Run { seed: 1, settings: String::new() };
        let file = folder.path().join("history.jsonl");
        let recorder = Arc::new(Recorder::create(&file, clock.clone(), &first).unwrap());
        let since = since(&recorder);
        let deadline = clock.now() + Duration::from_millis(700);
        Shared::new(recorder, clock, nodes, 2, 0).silent(since, deadline).await
    }

    #[tokio::test]
    async fn each_workspace_and_each_node_is_asked() {
        let mut tasks = JoinSet::new();
        let works = node(&mut tasks, DONE, FOUND).await;
        assert_eq!(silent(vec![works, works], Recorder::now).await, Silent::default());
        let fails = node(&mut tasks, UNKNOWN, FOUND).await;
        let nodes = vec![1];
        let both = silent(vec![works, fails], Recorder::now).await;
        assert_eq!(both, Silent { workspaces: Vec::new(), nodes: nodes.clone() });
        let cannot_read = node(&mut tasks, DONE, UNKNOWN).await;
        let both = silent(vec![works, cannot_read], Recorder::now).await;
        assert_eq!(both, Silent { workspaces: Vec::new(), nodes });
        let none = silent(vec![fails], Recorder::now).await;
        assert_eq!(none, Silent { workspaces: vec![1, 2], nodes: vec![0] });
    }

    #[tokio::test]
    async fn an_answer_that_repeats_an_older_one_shows_nothing() {
        let mut tasks = JoinSet::new();
        let repeats = node(&mut tasks, REPEATED, FOUND).await;
        let silent = silent(vec![repeats], Recorder::now).await;
        assert_eq!(silent, Silent { workspaces: vec![1, 2], nodes: vec![0] });
    }

    #[tokio::test]
    async fn a_command_that_began_before_shows_nothing() {
        let mut tasks = JoinSet::new();
        let works = node(&mut tasks, DONE, FOUND).await;
        let later = |recorder: &Recorder| recorder.now() + 60_000_000;
        assert_eq!(silent(vec![works], later).await.workspaces, [1, 2]);
    }
}
