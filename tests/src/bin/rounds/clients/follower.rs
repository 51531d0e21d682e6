//! A client that follows the log of a workspace.

use std::{convert::Infallible, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use fastrand::Rng;
use shop::http_client::workspace_path;

use super::{RETRY_DELAY, Shared};
use crate::{
    api::{self, HttpRequest},
    history::{Outcome, Request},
};

/// A follower that hears nothing for this long connects again.
const SILENCE: Duration = Duration::from_secs(20);

/// A follower goes on for at most 90 s after the clients, to get the last events.
const CATCH_UP_MICROS: u64 = 90_000_000;

/// Follows a log over one connection after another, until the clients have stopped and it has all
/// events that were acknowledged.
pub(super) async fn run(shared: Arc<Shared>, number: u32, mut rng: Rng) {
    let ws = shared.workspaces[rng.usize(..shared.workspaces.len())];
    let mut follower = Follower { shared, number, ws, from: 1 };
    while !follower.is_done() {
        let node = follower.shared.nodes[rng.usize(..follower.shared.nodes.len())];
        // The end of a connection is no error: the next one goes on.
        let _ = follower.follow(node).await;
        follower.shared.clock.sleep(RETRY_DELAY).await;
    }
    let request = Request::FollowEnd { follower: number, next: follower.from };
    let (begin, outcome) = (follower.shared.clients_end(), Outcome::Events { events: Vec::new() });
    follower.shared.recorder.operation(1_000 + number, begin, ws, request, outcome);
}

struct Follower {
    shared: Arc<Shared>,
    number: u32,
    ws: u64,
    /// The next event.
    from: u64,
}

impl Follower {
    /// Whether the clients have stopped, and all events came or the time for them is over.
    fn is_done(&self) -> bool {
        let (end, now) = (self.shared.clients_end(), self.shared.recorder.now());
        let has_all = || self.from > self.shared.known(self.ws, |known| known.log_end);
        let is_late = || now.saturating_sub(end) > CATCH_UP_MICROS;
        end > 0 && (has_all() || is_late())
    }

    /// Follows the log over one connection. `None` is the end of the connection, whatever it is.
    async fn follow(&mut self, node: SocketAddr) -> Option<Infallible> {
        let mut begin = self.shared.recorder.now();
        let path = format!("{}/wlog?follow=true&from={}", workspace_path(self.ws), self.from);
        let request = HttpRequest::get(path);
        let opened = api::open(&self.shared.clock, node, &request, SILENCE);
        let mut pieces = match self.heard(opened).await?.ok()? {
            Ok(pieces) => pieces,
            Err(answer) => {
                self.add(begin, api::refusal(answer));
                return None;
            }
        };
        let mut line = Vec::new();
        loop {
            // A cut is no error: the events before it count.
            let piece = self.heard(pieces.next()).await??.ok()?;
            line.extend_from_slice(&piece);
            if !self.record(begin, &mut line) {
                return None;
            }
            begin = self.shared.recorder.now();
        }
    }

    /// Waits for something of the node. `None` if nothing comes for a time, or when the follower is
    /// done.
    async fn heard<T>(&self, something: impl Future<Output = T>) -> Option<T> {
        let clock = &self.shared.clock;
        let (deadline, mut something) = (clock.now() + SILENCE, pin!(something));
        loop {
            let soon = clock.now() + Duration::from_millis(500);
            match clock.timeout_at(soon.min(deadline), &mut something).await {
                Ok(heard) => return Some(heard),
                Err(_) if self.is_done() || soon >= deadline => return None,
                Err(_) => {}
            }
        }
    }

    /// Records the events of all whole lines, and leaves the rest. Returns whether all lines are
    /// events. Another connection goes on after the last event.
    fn record(&mut self, begin: u64, text: &mut Vec<u8>) -> bool {
        let Some(end) = text.iter().rposition(|byte| *byte == b'\n') else { return true };
        let whole: Vec<u8> = text.drain(..=end).collect();
        let whole = String::from_utf8_lossy(&whole);
        let (mut events, mut wrong) = (Vec::new(), None);
        for line in whole.lines().filter(|line| !line.is_empty()) {
            match api::event(line) {
                Some(event) => events.push(event),
                None => {
                    wrong = Some(format!("a line that makes no sense: {line}"));
                    break;
                }
            }
        }
        if !events.is_empty() {
            self.add(begin, Outcome::Events { events });
        }
        if let Some(why) = wrong {
            self.add(begin, Outcome::Wrong { why });
            return false;
        }
        true
    }

    fn add(&mut self, begin: u64, outcome: Outcome) {
        let request = Request::Follow { follower: self.number, from: self.from };
        if let Outcome::Events { events } = &outcome
            && let Some(last) = events.last()
        {
            self.from = last.wlog + 1;
        }
        self.shared.recorder.operation(1_000 + self.number, begin, self.ws, request, outcome);
    }
}

#[cfg(test)]
mod tests {
    use clock::Clock;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;
    use crate::{
        checks::run_all,
        history::Line,
        recorder::{Recorder, Recording},
    };

    /// Follows a log at a node that gives this answer, and returns what was recorded.
    async fn followed(answer: &[u8]) -> Recording {
        let clock = Clock::system();
        let folder = tempfile::tempdir().unwrap();
        let first = Line::Run { seed: 1, settings: String::new() };
        let file = folder.path().join("history.jsonl");
        let recorder = Arc::new(Recorder::create(&file, clock.clone(), &first).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let node = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::new(Arc::clone(&recorder), clock, vec![node], 1, 0));
        let mut follower = Follower { shared, number: 1, ws: 1, from: 7 };
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 4_096];
            // The request is small, and is one piece.
            assert!(stream.read(&mut request).await.unwrap() > 0);
            stream.write_all(answer).await.unwrap();
        };
        let _ = tokio::join!(follower.follow(node), serve);
        drop(follower);
        Arc::into_inner(recorder).unwrap().end().unwrap()
    }

    fn problem(status: &str, code: &str) -> Vec<u8> {
        let body = format!(r#"{{"code":"{code}","status":{}}}"#, &status[..3]);
        let length = body.len();
        format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes()
    }

    #[tokio::test]
    async fn a_refused_request_is_recorded_and_judged() {
        for (status, code, is_right) in [
            ("503 Service Unavailable", "too_many_followers", true),
            ("429 Too Many Requests", "rate_limited", true),
            ("503 Service Unavailable", "queue_full", false),
            ("404 Not Found", "not_found", false),
            ("500 Internal Server Error", "internal", false),
        ] {
            let history = followed(&problem(status, code)).await.history;
            let [operation] = &history.operations[..] else { panic!("{:?}", history.operations) };
            assert_eq!(operation.request, Request::Follow { follower: 1, from: 7 });
            let found = run_all(&history);
            assert_eq!(found.is_empty(), is_right, "{status} {code}: {found:?}");
            assert!(found.iter().all(|of| of.check == "outcomes"));
        }
    }

    /// A piece may end inside a line, and a cut may come at any time.
    #[tokio::test]
    async fn the_events_before_a_cut_count_however_they_arrive() {
        let line = |at: u64| {
            let places = format!(r#""wlogOffset":{at},"plogOffset":{at},"epoch":1"#);
            format!(r#"{{{places},"requestId":"a","timeMicros":17}}{}"#, '\n')
        };
        let lines: String = (7..10).map(line).collect();
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        for size in [1, 5, 60, 1_000] {
            let pieces = lines.as_bytes().chunks(size).map(str::from_utf8);
            let pieces =
                pieces.map(|piece| format!("{:x}\r\n{}\r\n", piece.unwrap().len(), piece.unwrap()));
            let whole = format!("{head}{}0\r\n\r\n", pieces.collect::<String>());
            // Without its last byte a line is no event.
            let cut = whole.len() - "}\n\r\n0\r\n\r\n".len() - 20;
            for (answer, events) in [(&whole[..], 3), (&whole[..cut.max(head.len())], 2)] {
                let history = followed(answer.as_bytes()).await.history;
                let mut next = 7;
                for operation in &history.operations {
                    let Outcome::Events { events } = &operation.outcome else { panic!() };
                    assert_eq!(operation.request, Request::Follow { follower: 1, from: next });
                    events.iter().for_each(|event| {
                        assert_eq!(event.wlog, next);
                        next += 1;
                    });
                }
                let is_one_piece = size == 1_000 && events == 2;
                assert!(next == 7 + events || is_one_piece, "{size}: {next}, not {events} events");
            }
        }
    }

    #[tokio::test]
    async fn a_part_of_a_refusal_proves_nothing() {
        let answer = problem("500 Internal Server Error", "internal");
        let history = followed(&answer[..answer.len() - 1]).await.history;
        assert!(history.operations.is_empty(), "{:?}", history.operations);
        assert_eq!(run_all(&history), []);
    }
}
