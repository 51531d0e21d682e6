//! A client of a bench, and nodes that answer as a script says.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use clap::Parser;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use super::*;
use crate::bench::{
    args::BenchArgs,
    outcome::{EndCounts, NodeShare},
    tries::EndKind,
};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: BenchArgs,
}

/// An answer of a scripted node.
#[derive(Clone, Copy)]
enum Scripted {
    /// A status and a code.
    Answer(u16, &'static str),
    /// Success, by another node.
    Forwarded,
    /// Success, and the end of the connection.
    LastAnswer,
    /// The end of the connection, and no answer.
    Cut,
}

use Scripted::{Answer, Cut, Forwarded, LastAnswer};

const OK: Scripted = Answer(200, "");

/// A node that gives these answers in turn.
struct ScriptedNode {
    address: SocketAddr,
    /// The headers of each request that tell requests apart.
    got: Arc<Mutex<Vec<BTreeMap<String, String>>>>,
    _task: JoinSet<()>,
}

impl ScriptedNode {
    async fn start(answers: &[Scripted]) -> ScriptedNode {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, got) = (listener.local_addr().unwrap(), Arc::default());
        let mut task = JoinSet::new();
        task.spawn(serve(listener, answers.to_vec(), Arc::clone(&got)));
        ScriptedNode { address, got, _task: task }
    }

    fn got(&self, header: &str) -> Vec<String> {
        let got = self.got.lock().unwrap();
        got.iter().map(|head| head.get(header).cloned().unwrap_or_default()).collect()
    }
}

async fn serve(
    listener: TcpListener,
    answers: Vec<Scripted>,
    got: Arc<Mutex<Vec<BTreeMap<String, String>>>>,
) {
    let address = listener.local_addr().unwrap();
    let mut answers = answers.into_iter();
    loop {
        let mut stream = BufReader::new(listener.accept().await.unwrap().0);
        while let Some(head) = read_request(&mut stream).await {
            got.lock().unwrap().push(head);
            let (status, code, by, is_last) = match answers.next().expect("one request too many") {
                Answer(status, code) => (status, code, address.to_string(), false),
                Forwarded => (200, "", "127.0.0.1:1".to_owned(), false),
                LastAnswer => (200, "", address.to_string(), true),
                Cut => break,
            };
            let (body, close) = (
                format!("{{\"code\":\"{code}\"}}"),
                if is_last { "connection: close\r\n" } else { "" },
            );
            let answer = format!(
                "HTTP/1.1 {status} x\r\nx-vvm-served-by: {by}\r\n{close}content-length: {}\r\n\r\n{body}",
                body.len()
            );
            stream.get_mut().write_all(answer.as_bytes()).await.unwrap();
        }
    }
}

/// Reads a request, and returns its headers. `None` at the end of the connection.
async fn read_request(stream: &mut BufReader<TcpStream>) -> Option<BTreeMap<String, String>> {
    let mut head = BTreeMap::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) => drop(head.insert(name.to_owned(), value.to_owned())),
            None if line == "\r\n" => break,
            None => {}
        }
    }
    let mut body = vec![0; head["content-length"].parse().unwrap()];
    stream.read_exact(&mut body).await.ok()?;
    Some(head)
}

/// Sends this many requests with one client.
async fn send(nodes: &[SocketAddr], rest: &[&str], requests: u64) -> (Vec<EndKind>, BenchOutcome) {
    let nodes: Vec<_> = nodes.iter().map(ToString::to_string).collect();
    let line = ["bench", "--node", &nodes.join(",")];
    let args = Line::try_parse_from(line.iter().chain(rest)).unwrap().args;
    let clock = Clock::system();
    let load = RequestLoad::new(&args, &clock).unwrap();
    let progress = BenchProgress::new(clock.clone());
    let client = BenchClient { load: &load, clock, number: 7, progress: &progress };
    let (mut outcome, mut connection) = (BenchOutcome::new().unwrap(), None);
    let mut ends = Vec::new();
    for number in 0..requests {
        ends.push(client.request(&mut connection, &mut outcome, 1, number).await.kind());
    }
    (ends, outcome)
}

fn share(requests: u64, answers: u64, forwarded: u64) -> NodeShare {
    NodeShare { requests, answers, forwarded }
}

fn counts(of: &[(&str, u64)]) -> BTreeMap<String, u64> {
    of.iter().map(|(why, count)| ((*why).to_owned(), *count)).collect()
}

#[tokio::test]
async fn a_refused_request_goes_to_the_next_node_and_the_client_stays_there() {
    let first = ScriptedNode::start(&[Answer(503, "stopping")]).await;
    let second = ScriptedNode::start(&[OK, Forwarded]).await;
    let (ends, outcome) = send(&[first.address, second.address], &[], 2).await;
    assert_eq!(ends, [EndKind::Done; 2]);
    let expected = EndCounts { done_at_first_try: 1, done_after_tries: 1, ..EndCounts::default() };
    assert_eq!(outcome.ends, expected);
    assert_eq!(outcome.nodes[&first.address.into()], share(1, 1, 0));
    assert_eq!(outcome.nodes[&second.address.into()], share(2, 2, 1));
    assert_eq!(outcome.tries_again, counts(&[("503 Service Unavailable: stopping", 1)]));
    assert!(outcome.failed.is_empty());
    // All tries of a request have one id, and without `--keys` no request has a key.
    assert_eq!(first.got("x-request-id"), second.got("x-request-id")[..1]);
    assert_eq!(first.got("idempotency-key"), [""]);
}

#[tokio::test]
async fn a_refused_connection_is_no_answer_and_leads_to_the_next_node() {
    let gone = tck::trial::free_address();
    let second = ScriptedNode::start(&[OK]).await;
    let (ends, outcome) = send(&[gone, second.address], &[], 1).await;
    assert_eq!(ends, [EndKind::Done]);
    assert_eq!(outcome.nodes[&gone.into()], share(1, 0, 0));
    assert_eq!(outcome.tries_again.values().sum::<u64>(), 1);
    // A client of one node sends a request once.
    let (ends, outcome) = send(&[gone], &["--keys"], 1).await;
    assert_eq!((&*ends, outcome.ends.refused), (&[EndKind::NotDone][..], 1));
}

/// A request that may have been done is sent again only with its key.
#[tokio::test]
async fn an_unknown_request_goes_to_the_next_node_only_with_its_key() {
    for unknown in [Cut, Answer(504, "unknown")] {
        let first = ScriptedNode::start(&[unknown]).await;
        let second = ScriptedNode::start(&[OK]).await;
        let (ends, outcome) = send(&[first.address, second.address], &[], 1).await;
        assert_eq!((&*ends, outcome.ends.unknown), (&[EndKind::Unknown][..], 1));
        assert!(second.got("x-request-id").is_empty());

        let first = ScriptedNode::start(&[unknown]).await;
        let (ends, outcome) = send(&[first.address, second.address], &["--keys"], 1).await;
        assert_eq!((&*ends, outcome.ends.done_after_tries), (&[EndKind::Done][..], 1));
        assert_eq!(first.got("idempotency-key"), second.got("idempotency-key"));
        assert_eq!(first.got("idempotency-key"), first.got("x-request-id"));
    }
}

/// A command that was answered with 500 `not_applied` is in the log. `--check` must not report it
/// as a command that was refused and done.
#[tokio::test]
async fn other_errors_are_not_sent_again_and_some_may_be_done() {
    let first = ScriptedNode::start(&[Answer(409, "conflict"), Answer(500, "not_applied")]).await;
    let second = ScriptedNode::start(&[]).await;
    let (ends, outcome) = send(&[first.address, second.address], &["--keys"], 2).await;
    assert_eq!(ends, [EndKind::NotDone, EndKind::Unknown]);
    assert_eq!(outcome.ends, EndCounts { wrong: 2, ..EndCounts::default() });
    let failed = [("409 Conflict: conflict", 1), ("500 Internal Server Error: not_applied", 1)];
    assert_eq!(outcome.failed, counts(&failed));
}

/// A node that drains asks its clients to go.
#[tokio::test]
async fn a_client_leaves_a_node_that_closes_the_connection() {
    let first = ScriptedNode::start(&[LastAnswer]).await;
    let second = ScriptedNode::start(&[OK]).await;
    let (ends, outcome) = send(&[first.address, second.address], &[], 2).await;
    assert_eq!((&*ends, outcome.ends.done_at_first_try), (&[EndKind::Done; 2][..], 2));
    assert!(outcome.tries_again.is_empty());
    assert_eq!(second.got("x-request-id").len(), 1);
}
