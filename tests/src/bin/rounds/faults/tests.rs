//! The effects of faults on a process in place of a node.

use std::{net::SocketAddr, sync::Arc};

use clock::ManualClock;
use futures::future::join_all;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use super::*;
use crate::{
    cluster::ClusterParts,
    history::Line,
    network::Flow,
    recorder::Recorder,
    shim,
    storage::{RunStorage, StorageKind},
};

/// The program of the node: it reads the wall clock and makes a file larger, again and again. `sh`
/// takes the first argument of a node as the name of this script.
const PROGRAM: &str = "while :; do date; truncate -s +4096 data; sleep 0.02; done";

/// A cluster of one node.
struct Scene {
    clock: Clock,
    cluster: Cluster,
    tasks: JoinSet<()>,
    _folder: TempDir,
}

impl Scene {
    async fn start() -> Scene {
        let (clock, folder, mut tasks) =
            (Clock::system(), tempfile::tempdir().unwrap(), JoinSet::new());
        let server = echo(&mut tasks, "127.0.0.1:0".parse().unwrap()).await;
        let storage = RunStorage {
            kind: StorageKind::Cassandra,
            servers: vec![server.to_string()],
            keyspace: "rounds_1".to_owned(),
        };
        let file = folder.path().join("history.jsonl");
        let first = Line::Run { seed: 1, settings: String::new() };
        let recorder = Arc::new(Recorder::create(&file, clock.clone(), &first).unwrap());
        let node_folder = folder.path().join("node-1");
        std::fs::create_dir(&node_folder).unwrap();
        std::fs::write(node_folder.join("serve"), PROGRAM).unwrap();
        let parts = ClusterParts {
            folder: folder.path(),
            binary: "/bin/sh".into(),
            count: 1,
            level: 0,
            late_write: Duration::ZERO,
            storage,
            shim: shim::compile(folder.path()).unwrap(),
        };
        let cluster = Cluster::start(parts, &recorder, &clock).await.unwrap();
        let scene = Scene { clock, cluster, tasks, _folder: folder };
        scene.until(|node| node.runs()).await;
        scene
    }

    fn node(&self) -> &Node {
        &self.cluster.nodes[0]
    }

    async fn until(&self, is_so: impl Fn(&Node) -> bool) {
        let deadline = self.clock.now() + Duration::from_secs(20);
        while !is_so(self.node()) {
            assert!(self.clock.now() < deadline);
            self.clock.sleep(Duration::from_millis(10)).await;
        }
    }

    async fn take_down(&self) {
        self.node().stays_down.store(true, Ordering::SeqCst);
        self.node().signal(Signal::KILL);
        self.until(|node| node.pid().is_none()).await;
    }

    /// Whether this fault has an effect.
    async fn plays(&self, effect: FaultEffect, lasts: Duration) -> bool {
        let fault = Fault { effect, target: 0, delay: Duration::ZERO, lasts };
        fault.play(&self.cluster, &self.clock, &|_| {}).await.unwrap()
    }

    /// Sends bytes to an address again and again, over new connections.
    fn send_to(&mut self, address: SocketAddr) {
        let clock = self.clock.clone();
        self.tasks.spawn(async move {
            loop {
                if let Ok(mut stream) = TcpStream::connect(address).await {
                    // The link may be cut.
                    let _ = stream.write_all(b"a").await;
                    let mut byte = [0];
                    let read = stream.read(&mut byte);
                    let _ = clock.timeout_at(clock.now() + SHORT, read).await;
                }
                clock.sleep(Duration::from_millis(5)).await;
            }
        });
    }
}

const SHORT: Duration = Duration::from_millis(300);

/// A server that sends back what it receives.
async fn echo(tasks: &mut JoinSet<()>, at: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind(at).await.unwrap();
    let address = listener.local_addr().unwrap();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            connections.spawn(async move {
                let (mut read, mut write) = stream.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
    address
}

/// The effects that need no order to the node.
fn effects(scene: &Scene) -> Vec<FaultEffect> {
    use FaultKind::{ClientLink, Clock, FullDisk, Kill, Pause, PeerLink, Stop, StorageLink};
    let mut kinds = vec![Kill, Pause, Stop, StorageLink, ClientLink, PeerLink];
    if scene.cluster.has_shim {
        kinds.extend([Clock, FullDisk]);
    }
    kinds.into_iter().map(FaultEffect::from).collect()
}

#[tokio::test]
async fn a_fault_of_a_node_that_is_down_the_whole_time_has_no_effect() {
    let mut scene = Scene::start().await;
    scene.take_down().await;
    // Others go on to send.
    for address in [scene.node().client_link.address, peer_link(scene.node()).address] {
        scene.send_to(address);
    }
    for effect in effects(&scene) {
        scene.node().stays_down.store(true, Ordering::SeqCst);
        assert!(!scene.plays(effect, SHORT).await, "{effect:?}");
    }
}

fn peer_link(node: &Node) -> &Link {
    node.peer_link.as_ref().unwrap()
}

#[tokio::test]
async fn a_fault_of_a_node_that_runs_has_an_effect() {
    let mut scene = Scene::start().await;
    for server in [scene.node().api, peer_link(scene.node()).server] {
        echo(&mut scene.tasks, server).await;
    }
    let links =
        [&scene.node().client_link, peer_link(scene.node()), &scene.node().storage_links[0]];
    let addresses = links.map(|link| link.address);
    for effect in effects(&scene) {
        let is_of_link = matches!(
            effect,
            FaultEffect::StorageLink { .. } | FaultEffect::ClientLink(_) | FaultEffect::PeerLink(_)
        );
        // Nobody sends anything yet.
        scene.until(Node::runs).await;
        assert_eq!(scene.plays(effect, SHORT).await, !is_of_link, "{effect:?}");
    }
    addresses.into_iter().for_each(|address| scene.send_to(address));
    scene.until(Node::runs).await;
    for traffic in [Traffic::Cut, Traffic::Refused, Traffic::both(Flow::Stalled)] {
        for effect in [
            FaultEffect::StorageLink { server: None, traffic },
            FaultEffect::StorageLink { server: Some(0), traffic },
            FaultEffect::ClientLink(traffic),
            FaultEffect::PeerLink(traffic),
        ] {
            assert!(scene.plays(effect, SHORT).await, "{effect:?}");
        }
    }
}

#[tokio::test]
async fn a_fault_of_a_node_that_comes_back_has_an_effect() {
    let mut scene = Scene::start().await;
    let address = scene.node().client_link.address;
    scene.send_to(address);
    scene.take_down().await;
    let mut kinds = vec![FaultKind::ClientLink];
    if scene.cluster.has_shim {
        kinds.extend([FaultKind::Clock, FaultKind::FullDisk]);
    }
    let comes_back = async {
        scene.clock.sleep(SHORT).await;
        scene.node().stays_down.store(false, Ordering::SeqCst);
    };
    let play = |kind: &FaultKind| scene.plays((*kind).into(), Duration::from_secs(4));
    let (have_effect, ()) = tokio::join!(join_all(kinds.iter().map(play)), comes_back);
    assert!(have_effect.iter().all(|has_effect| *has_effect), "{kinds:?} {have_effect:?}");
}

/// An admin endpoint that answers orders with this status, and takes the end of a drain.
async fn admin(tasks: &mut JoinSet<()>, at: SocketAddr, status: u16, delay: Duration) {
    let (listener, clock) = (TcpListener::bind(at).await.unwrap(), Clock::system());
    tasks.spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 4_096];
            let count = stream.read(&mut request).await.unwrap();
            let is_end = request[..count].starts_with(b"POST /drain?cancel=true");
            clock.sleep(if is_end { Duration::ZERO } else { delay }).await;
            let status = if is_end { 202 } else { status };
            let answer = format!("HTTP/1.1 {status} \r\ncontent-length: 0\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
}

#[tokio::test]
async fn an_order_has_an_effect_if_the_node_obeys() {
    for status in [202, 409] {
        let mut scene = Scene::start().await;
        let at = scene.node().admin;
        admin(&mut scene.tasks, at, status, Duration::ZERO).await;
        let drain = scene.plays(FaultEffect::Drain, SHORT).await;
        assert_eq!(drain, status == 202, "{status}");
        let ends = async {
            scene.clock.sleep(SHORT).await;
            scene.node().signal(Signal::KILL)
        };
        let step_down = scene.plays(FaultEffect::StepDown, Duration::ZERO);
        assert_eq!(tokio::join!(step_down, ends).0, status == 202, "{status}");
    }
    let scene = Scene::start().await;
    assert!(!scene.plays(FaultEffect::StepDown, SHORT).await, "nothing listens");
}

/// A node that stood still obeyed the order to step down after nobody waited for its answer any
/// more. So the end of its process had no explanation.
#[tokio::test]
async fn the_answer_of_a_node_that_stands_still_is_awaited() {
    let mut scene = Scene::start().await;
    let at = scene.node().admin;
    admin(&mut scene.tasks, at, 202, SHORT).await;
    let manual = ManualClock::new(1);
    let effect = FaultEffect::StepDown;
    let fault = Fault { effect, target: 0, delay: Duration::ZERO, lasts: Duration::ZERO };
    let (clock, note) = (manual.clock(), |_| {});
    let played = fault.play(&scene.cluster, &clock, &note);
    let time = async {
        scene.clock.sleep(SHORT / 3).await;
        manual.advance(ANSWER_TIMEOUT * 2);
        scene.clock.sleep(SHORT).await;
        scene.node().signal(Signal::KILL);
        loop {
            scene.clock.sleep(LOOK_PAUSE).await;
            manual.advance(LOOK_PAUSE);
        }
    };
    tokio::select! {
        has_effect = played => assert!(has_effect.unwrap()),
        () = time => {}
    }
}
