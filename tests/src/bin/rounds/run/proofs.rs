//! Proofs before the first round that faults have an effect at all. A run with a fault that does
//! nothing would be called good.

use std::time::Duration;

use serde_json::Value;
use shop::http_client::workspace_path;
use vvm_tests::bench::BenchError;

use super::{Run, START_TIMEOUT, WORKSPACES};
use crate::{
    api::{self, ANSWER_TIMEOUT, HttpRequest},
    bounds::{self, Printed, Round},
    clients::{Shared, Silent},
    faults::{Fault, FaultEffect, FaultKind},
    history::{History, Outcome},
    network::{Link, Traffic},
};

/// The jump of all clocks that proves the fault.
const JUMP: Duration = Duration::from_secs(60);

/// The time without a link to the storage that proves the fault.
const CUT: Duration = Duration::from_secs(1);

/// All connections of a cut link have ended within this time.
const CUT_DELAY: Duration = Duration::from_millis(100);

impl Run {
    /// Fails if a jump of the clocks does not show in an event: then the fault would have no
    /// effect, and nothing would be proved by it. The events of this workspace are late from now
    /// on.
    pub(super) async fn prove_clocks(&self, shared: &Shared) -> Result<(), BenchError> {
        if !self.cluster.has_shim {
            return Ok(());
        }
        for node in &self.cluster.nodes {
            node.faults.set_clock(JUMP, true)?;
        }
        shared.create_document(WORKSPACES, START_TIMEOUT).await?;
        self.cluster.heal()?;
        let request = HttpRequest::get(format!("{}/wlog?from=2", workspace_path(WORKSPACES)));
        let api = self.cluster.nodes[0].api;
        let log = api::send(&self.clock, api, &request, ANSWER_TIMEOUT).await?.body;
        let event: Value = serde_json::from_str(log.lines().next().unwrap_or_default())?;
        let time = Duration::from_micros(event["timeMicros"].as_u64().unwrap_or(0));
        let ahead = time.saturating_sub(Duration::from_millis(self.clock.wall().as_millis()));
        match ahead > JUMP / 2 {
            true => Ok(()),
            false => Err(format!("a clock that jumps by {JUMP:?} has no effect: {log}").into()),
        }
    }

    /// Fails if a node reaches its storage past the links: then the fault would have no effect. A
    /// node connects to all servers when it starts, and does no command while all links are cut.
    pub(super) async fn prove_links(
        &mut self,
        shared: &Shared,
        printed: &Printed,
    ) -> Result<(), BenchError> {
        if !self.kinds.contains(&FaultKind::StorageLink) {
            return Ok(());
        }
        let unused = self.cluster.unused_storage_links();
        if !unused.is_empty() {
            return Err(format!("no connection went over the links {unused:?}").into());
        }
        let effect = FaultEffect::StorageLink { server: None, traffic: Traffic::Cut };
        let fault = |target| Fault { effect, target, delay: Duration::ZERO, lasts: CUT };
        let faults: Vec<Fault> = (0..self.cluster.nodes.len()).map(fault).collect();
        let within = bounds::ready_within(printed, &faults);
        let nodes = self.cluster.nodes.clone();
        let links: Vec<&Link> = nodes.iter().flat_map(|node| &node.storage_links).collect();
        let (begin, healed) = prove_cut(shared, &links, within).await?;
        let missing = self.cluster.ready(&self.clock, within).await?;
        if !missing.is_empty() {
            return Err(format!("{missing:?} are not ready after a proof of the links").into());
        }
        let end = self.recorder.now();
        self.bounds.proofs.push(Round { faults, begin, healed, end, takeover: None });
        Ok(())
    }
}

/// Cuts links for a moment, and sends commands meanwhile, before and afterwards. Returns when the
/// links were cut and when they were whole again.
///
/// # Errors
/// If a command that began after the cut was done before its end, or if a workspace or a node did
/// none before or afterwards.
async fn prove_cut(
    shared: &Shared,
    links: &[&Link],
    within: Duration,
) -> Result<(u64, u64), String> {
    let (clock, recorder) = (&shared.clock, &shared.recorder);
    let works = async |when: &str| {
        let silent = shared.silent(recorder.now(), clock.now() + within).await;
        match silent == Silent::default() {
            true => Ok(()),
            false => Err(format!("{when} the links to the storage were cut: {silent:?}")),
        }
    };
    works("before").await?;
    links.iter().for_each(|link| link.set(Traffic::Cut));
    let cut = recorder.now();
    clock.sleep(CUT_DELAY).await;
    let begin = recorder.now();
    shared.silent(begin, clock.now() + CUT).await;
    let end = recorder.now();
    links.iter().for_each(|link| link.set(Traffic::WHOLE));
    match recorder.look(|history| command_done(history, begin, end)) {
        Some(number) => Err(format!(
            "operation {number} was done while all links to the storage were cut, so a cut link \
             would have no effect"
        )),
        None => works("after").await.map(|()| (cut, end)),
    }
}

/// The number of a command that began and was done in this time.
fn command_done(history: &History, begin: u64, end: u64) -> Option<u64> {
    let mut operations = history.operations.iter();
    let done = operations.find(|operation| {
        operation.begin >= begin
            && operation.end <= end
            && matches!(&operation.outcome, Outcome::Written(written) if !written.repeated)
    });
    Some(done?.number)
}

#[cfg(test)]
mod tests {
    use std::{net::SocketAddr, sync::Arc};

    use clock::Clock;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream},
        task::JoinSet,
    };

    use super::*;
    use crate::{history::Line, recorder::Recorder};

    const WITHIN: Duration = Duration::from_secs(2);

    const DONE: &str = r#"{"epoch":1,"plogOffset":2,"wlogOffset":3,"newIds":{"1":200001}}"#;
    const FOUND: &str = r#"{"id":200001,"table":"shop.Article","isActive":true,"fields":{},"version":{"epoch":1,"offset":2}}"#;
    const UNKNOWN: &str = r#"{"code":"unknown"}"#;

    /// A server that takes connections, and says nothing.
    async fn server(tasks: &mut JoinSet<()>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tasks.spawn(async move {
            let mut connections = Vec::new();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                // The link may be cut.
                let _ = stream.write_all(b"a").await;
                connections.push(stream);
            }
        });
        address
    }

    /// A node that does a request if it reaches its storage, and if it still `works`.
    async fn node(tasks: &mut JoinSet<()>, storage: SocketAddr, mut works: usize) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tasks.spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = vec![0; 4_096];
                let count = stream.read(&mut request).await.unwrap();
                let is_read = request[..count].starts_with(b"GET ");
                let stored =
                    async { TcpStream::connect(storage).await?.read_exact(&mut [0]).await };
                let is_done = stored.await.is_ok() && works > 0;
                works = works.saturating_sub(1);
                let (status, body) = match (is_done, is_read) {
                    (true, true) => ("200 OK", FOUND),
                    (true, false) => ("200 OK", DONE),
                    (false, _) => ("504 Gateway Timeout", UNKNOWN),
                };
                let length = body.len();
                let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}");
                // The client may have given up.
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        address
    }

    /// The proof with two nodes that reach their storage over a link or past it, and a second node
    /// that works for this many requests.
    async fn proof(over_links: [bool; 2], works: usize) -> Result<(u64, u64), String> {
        let (clock, mut tasks) = (Clock::system(), JoinSet::new());
        let server = server(&mut tasks).await;
        let links = [
            Link::start(server, &clock).await.unwrap(),
            Link::start(server, &clock).await.unwrap(),
        ];
        let storage = |place: usize| if over_links[place] { links[place].address } else { server };
        let nodes = vec![
            node(&mut tasks, storage(0), usize::MAX).await,
            node(&mut tasks, storage(1), works).await,
        ];
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("history.jsonl");
        let first = Line::Run { seed: 1, settings: String::new() };
        let recorder = Arc::new(Recorder::create(&file, clock.clone(), &first).unwrap());
        let shared = Shared::new(recorder, clock, nodes, 2, 0);
        prove_cut(&shared, &links.each_ref(), WITHIN).await
    }

    #[tokio::test]
    async fn nodes_that_reach_their_storage_over_the_links_pass() {
        let (begin, end) = proof([true, true], usize::MAX).await.unwrap();
        assert!(Duration::from_micros(end - begin) >= CUT);
    }

    #[tokio::test]
    async fn a_command_that_is_done_while_the_links_are_cut_is_found() {
        for over_links in [[false, true], [true, false]] {
            let error = proof(over_links, usize::MAX).await.unwrap_err();
            assert!(error.contains("no effect"), "{error}");
        }
    }

    #[tokio::test]
    async fn nodes_that_do_nothing_before_or_afterwards_prove_nothing() {
        let error = proof([true, true], 0).await.unwrap_err();
        assert!(error.starts_with("before") && error.contains("nodes: [1]"), "{error}");
        let error = proof([true, true], 4).await.unwrap_err();
        assert!(error.starts_with("after") && error.contains("nodes: [1]"), "{error}");
    }
}
