//! Nodes that have all threads of one runtime blocked: the threads of requests, or the threads of
//! elections.
//!
//! A node has a runtime for elections and one for requests, and both used one client of the
//! storage. A connection of a client belongs to the runtime that opened the connection. So on
//! Cassandra the threads of elections read every answer to a request. On DynamoDB a renewal could
//! take a connection that waited for the threads of requests.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    process::ExitCode,
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread::sleep,
    time::Duration,
};

use clock::Clock;
use eventlog::WsId;
use futures::future::join_all;
use http_admin::{AdminEndpoint, AdminSettings};
use ielections::Timing;
use istorage::KeyspaceName;
use processor::{Application, Command, Done, Refused};
use shop::{article, create_workspace, cud, shop};
use sysvvm::AppName;
use tck::{
    storage::KeyspaceTracker,
    trial::{Trial, free_address, trials},
};
use tokio::runtime::{Builder, Runtime};
use vvm::{AppSettings, Launched, NodeSettings, Vvm};
use vvm_tests::trials::{OwnFixtures, ServerFixture, Target, run_trials};

const LEASE: Duration = Duration::from_secs(5);

/// The longest time for a keyspace on a small machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The number of simultaneous reads: enough to make a client of DynamoDB open many connections.
const READS: u64 = 30;

const WS: u64 = 1;

/// A leading node, with its runtimes.
struct Node {
    launched: Launched,
    control: Runtime,
    requests: Runtime,
    admin: SocketAddr,
    keyspaces: KeyspaceTracker,
    clock: Clock,
}

fn runtime(name: &str) -> Runtime {
    Builder::new_multi_thread().worker_threads(2).thread_name(name).enable_all().build().unwrap()
}

impl Node {
    async fn start(server: &ServerFixture) -> Node {
        let (control, requests) = (runtime("control"), runtime("requests"));
        let clock = server.clock.clone();
        let keyspaces = KeyspaceTracker::default();
        let connect = || {
            let subject = Arc::clone(&server.subject);
            async move { subject.node(0).await.unwrap() }
        };
        let elections = keyspaces.track(control.spawn(connect()).await.unwrap());
        let theirs = keyspaces.track(requests.spawn(connect()).await.unwrap());
        let admin = free_address();
        let endpoint = AdminEndpoint::new(AdminSettings::new(admin, Arc::new(String::new), "0"));
        let settings = NodeSettings {
            system: KeyspaceName::new(format!("busy_{:016x}", clock.random())).unwrap(),
            open_within: PATIENCE,
            lease: Timing::of(LEASE),
            request_call_timeout: LEASE / 6,
            ..NodeSettings::new(([127, 0, 0, 1], 1).into())
        };
        let node = Vvm::builder(elections, clock.clone(), settings)
            .with_app(AppSettings::new(AppName::new("acme", "shop").unwrap(), shop()))
            .with_admin(endpoint)
            .with_requests_on(requests.handle().clone(), theirs);
        let launched = {
            let _entered = control.enter();
            node.build().unwrap().launch()
        };
        launched.ready(clock.now() + PATIENCE).await.unwrap();
        let node = Node { launched, control, requests, admin, keyspaces, clock };
        // A small machine may need several attempts.
        let deadline = node.clock.now() + PATIENCE;
        while let Err(refused) = node.run(create_workspace(WS, deadline)).await {
            if matches!(refused, Refused::Rejected(_)) {
                break;
            }
            assert!(node.clock.now() < deadline, "{refused}");
            node.clock.sleep(Duration::from_millis(100)).await;
        }
        node
    }

    async fn run(&self, command: Command) -> Result<Done, Refused> {
        self.launched
            .node()
            .app("acme", "shop")
            .unwrap()
            .at(command.ws)
            .unwrap()
            .commands()
            .run(command)
            .await
    }

    /// Runs a command, and many reads at once on the runtime of requests.
    async fn work(&self, within: Duration) {
        let deadline = self.clock.now() + within;
        self.run(cud(WS, article("Tea"), deadline)).await.unwrap();
        let reads = (0..READS).map(|_| {
            let node = self.launched.node().clone();
            self.requests.spawn(async move {
                let here = node.app("acme", "shop").unwrap().at(WsId(WS)).unwrap();
                here.record(WsId(WS), Application::DESCRIPTOR).await.unwrap().unwrap();
            })
        });
        let reads = self.clock.timeout_at(deadline, join_all(reads)).await.unwrap();
        reads.into_iter().for_each(|read| read.unwrap());
    }

    async fn stop(self, server: &ServerFixture) {
        self.launched.shutdown().await.unwrap();
        let driver = server.subject.node(0).await.unwrap();
        let left = self.keyspaces.drop_all(&*driver, &self.clock).await;
        assert!(left.is_empty(), "{left:?}");
        self.control.shutdown_background();
        self.requests.shutdown_background();
    }
}

/// The threads of a runtime, blocked until this value is dropped.
struct Blocked(Arc<AtomicBool>);

impl Blocked {
    fn all_of(runtime: &Runtime) -> Blocked {
        let threads = runtime.metrics().num_workers();
        let (are_blocked, is_over) =
            (Arc::new(Barrier::new(threads + 1)), Arc::new(AtomicBool::new(false)));
        for _ in 0..threads {
            let (are_blocked, is_over) = (Arc::clone(&are_blocked), Arc::clone(&is_over));
            runtime.spawn(async move {
                are_blocked.wait();
                while !is_over.load(Ordering::Acquire) {
                    sleep(Duration::from_millis(5));
                }
            });
        }
        are_blocked.wait();
        Blocked(is_over)
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn is_ok(admin: SocketAddr, path: &str) -> bool {
    let ask = || {
        let mut stream = TcpStream::connect(admin)?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok::<_, std::io::Error>(answer.starts_with("HTTP/1.1 200"))
    };
    ask().unwrap_or(false)
}

/// A renewal took a connection of DynamoDB that a request had opened. While the threads of requests
/// were busy, no thread read the answer to the renewal, and the lease ended.
async fn requests_are_blocked(server: &ServerFixture) {
    let node = Node::start(server).await;
    node.work(PATIENCE).await;
    let blocked = Blocked::all_of(&node.requests);
    let until = node.clock.now() + LEASE * 3 / 2;
    while node.clock.now() < until {
        let soon = node.clock.now() + Duration::from_millis(100);
        let problem = node.clock.timeout_at(soon, node.launched.problem()).await;
        assert!(problem.is_err(), "{}", problem.unwrap());
        for path in ["/livez", "/status"] {
            assert!(is_ok(node.admin, path), "{path} did not answer");
        }
    }
    drop(blocked);
    assert!(node.launched.node().app("acme", "shop").unwrap().at(WsId(1)).is_ok());
    node.work(PATIENCE).await;
    node.stop(server).await;
}

/// All connections of Cassandra belonged to the threads of elections, so these threads did the work
/// of all requests.
async fn elections_are_blocked(server: &ServerFixture) {
    let node = Node::start(server).await;
    let blocked = Blocked::all_of(&node.control);
    node.work(LEASE / 3).await;
    drop(blocked);
    node.stop(server).await;
}

const TRIALS: &[Trial<ServerFixture>] = trials!(
    the_lease_is_renewed_while_requests_block_all_their_threads = requests_are_blocked,
    commands_are_done_while_the_threads_of_elections_are_blocked = elections_are_blocked,
);

fn main() -> ExitCode {
    run_trials::<OwnFixtures<ServerFixture>>(
        env!("CARGO_TARGET_TMPDIR"),
        None,
        |drivers| {
            vec![
                Target::new("cassandra", drivers.cassandra),
                Target::new("dynamodb", drivers.dynamodb),
            ]
        },
        TRIALS,
    )
}
