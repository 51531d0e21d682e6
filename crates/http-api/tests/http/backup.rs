//! Backups at the admin endpoint, from a storage that makes them piece by piece.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::Arc,
    time::{Duration, Instant as Start},
};

use async_trait::async_trait;
use clock::{Clock, Instant};
use shop::http_client::{request, try_request};
use tokio::sync::Semaphore;
use vvm::{
    bytes::Bytes,
    futures::{StreamExt, stream},
    istorage::{
        BackupStream, Error, KeyspaceName, Result, SharedStorage, StorageDriver, mem::MemDriver,
    },
};

use crate::support::TestNode;

/// A database that can only make backups, if anything.
#[derive(Debug)]
struct Database {
    /// The pieces of its backups; `None` if it makes none.
    pieces: Option<Pieces>,
}

#[derive(Debug)]
struct Pieces {
    /// A permit for each piece.
    permits: Arc<Semaphore>,
    count: usize,
    fails: bool,
}

#[async_trait]
impl StorageDriver for Database {
    fn name(&self) -> &'static str {
        "database"
    }

    async fn create(&self, _: &KeyspaceName, _: Instant) -> Result<()> {
        unreachable!("the endpoint creates nothing")
    }

    async fn open(&self, _: &KeyspaceName, _: Instant) -> Result<Option<SharedStorage>> {
        Ok(None)
    }

    async fn drop_keyspace(&self, _: &KeyspaceName, _: Instant) -> Result<()> {
        unreachable!("the endpoint drops nothing")
    }

    async fn backup(&self, _: Instant) -> Result<Option<BackupStream>> {
        let Some(Pieces { permits, count, fails }) = &self.pieces else { return Ok(None) };
        let (permits, count, fails) = (Arc::clone(permits), *count, *fails);
        let pieces = stream::iter(0..count).then(move |piece| {
            let permits = Arc::clone(&permits);
            async move {
                permits.acquire().await.unwrap().forget();
                match fails && piece + 1 == count {
                    true => Err(Error::corrupt("the last row is damaged")),
                    false => Ok(Bytes::from(format!("piece {piece};"))),
                }
            }
        });
        Ok(Some(pieces.boxed()))
    }

    async fn close(&self) {}
}

fn three_pieces(permits: Arc<Semaphore>, fails: bool) -> Database {
    Database { pieces: Some(Pieces { permits, count: 3, fails }) }
}

/// A node with backups of three pieces, and the permits of the pieces.
fn node(fails: bool) -> (TestNode, Arc<Semaphore>) {
    let pieces = Arc::new(Semaphore::new(0));
    let storage = three_pieces(Arc::clone(&pieces), fails);
    let node = TestNode::with_admin(|_, admin| admin.storage = Some(Arc::new(storage)));
    (node, pieces)
}

/// Sends the request of a backup.
fn begin(node: &TestNode) -> TcpStream {
    let mut stream = TcpStream::connect(node.admin).unwrap();
    let head = "POST /backup HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

fn wait_for(what: impl Fn() -> bool) {
    let start = Start::now();
    while !what() {
        assert!(start.elapsed().as_secs() < 20, "it does not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn one_backup_is_sent_at_a_time_and_an_abandoned_one_ends() {
    let (node, pieces) = node(false);
    let running = || node.metric("httpapi_backups");
    let first = begin(&node);
    wait_for(|| running() == 1.0);
    let (status, answer) = request(node.admin, "POST", "/backup", &[], "");
    assert_eq!((status, &answer["code"]), (503, &"too_many_backups".into()));
    // The client leaves while the storage reads.
    drop(first);
    wait_for(|| running() == 0.0);
    wait_for(|| node.log_text().contains("backup ended early"));

    pieces.add_permits(3);
    let (status, text) = try_request(node.admin, "POST", "/backup", &[], "").unwrap();
    assert_eq!((status, text.as_str()), (200, "piece 0;piece 1;piece 2;"));
    wait_for(|| node.log_text().contains("backup sent"));
    assert_eq!(request(node.admin, "POST", "/backup?x=1", &[], "").0, 400);
    assert_eq!(request(node.admin, "GET", "/backup", &[], "").0, 405);
    node.stop();
}

/// A client must not take a part of a backup for the whole.
#[test]
fn a_backup_that_fails_is_cut_and_the_log_says_why() {
    let (node, pieces) = node(true);
    pieces.add_permits(2);
    let (mut stream, mut answer) = (begin(&node), Vec::new());
    while !answer.ends_with(b"piece 1;\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
    }
    pieces.add_permits(1);
    // The end of the connection may be an error.
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(!answer.ends_with("\r\n0\r\n\r\n"), "it looks whole: {answer}");
    wait_for(|| node.log_text().contains("the last row is damaged"));
    node.stop();
}

/// A stop waited for a backup that nobody received.
#[test]
fn a_stop_ends_a_backup() {
    let storage = three_pieces(Arc::new(Semaphore::new(0)), false);
    let node = TestNode::with_admin(|_, admin| {
        admin.storage = Some(Arc::new(storage));
        admin.limits.drain_time = Duration::from_secs(30);
    });
    let _first = begin(&node);
    wait_for(|| node.metric("httpapi_backups") == 1.0);
    let start = Start::now();
    node.stop();
    assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
}

/// Each refusal also gave the advice for the other storages.
#[test]
fn a_node_without_a_file_refuses_a_backup() {
    let memory: Arc<dyn StorageDriver> = Arc::new(MemDriver::new(Clock::system()));
    let database: Arc<dyn StorageDriver> = Arc::new(Database { pieces: None });
    for (storage, expected) in [
        (None, "the admin endpoint of this node has no storage"),
        (Some(memory), "a storage in memory has no file, and ends with its node"),
        (Some(database), "database is not redb: use the tools of that database"),
    ] {
        let node = TestNode::with_admin(|_, admin| admin.storage = storage);
        let (status, answer) = request(node.admin, "POST", "/backup", &[], "");
        assert_eq!((status, &answer["code"]), (409, &"no_backups".into()));
        assert_eq!(answer["reason"], expected);
        node.stop();
    }
}
