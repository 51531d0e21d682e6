//! A node over a cluster of three servers, one of which does not work properly. The node keeps its
//! leadership, and commands go on. Another node that starts meanwhile opens the storage and takes
//! over.
//!
//! One server of three stood still, and every leader of the cluster lost its leadership although a
//! quorum was intact. The cause: all conditional writes of a partition went to the first replica of
//! the partition. That server counted as connected until the keepalive gave its connection up.
//!
//! A node that started, or took over, waited for every server to which it was connected. A server
//! that hung, or that only its peers could not reach, kept the node from opening its storage. In
//! the end the node ended with code 4.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::{
    mem,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use clock::{Clock, Instant};
use ielections::Timing;
use istorage::{KeyspaceName, StorageDriver};
use istorage_cassandra::{CassandraDriver, Config, Replication};
use istorage_tck::{Keyspaces, Subject};
use libtest_mimic::{Arguments, Completion, Trial};
use processor::{Busy, Done, Refused};
use sysvvm::AppName;
use tokio::{
    runtime::{Handle, Runtime},
    task::JoinHandle,
};
use vvm::{AppSettings, Launched, Settings, Stage, Vvm};
use vvm_tests::{
    commands::{article, create_workspace, cud, shop},
    long::is_long,
    processes::{KilledServer, SuspendedProcesses},
    servers::CASSANDRA_CLUSTER,
    subjects::Cassandra,
};

/// The longest time for a keyspace, and for servers to find each other again.
const PATIENCE: Duration = Duration::from_secs(180);

/// The ways in which a server fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// The server is suspended: its connections stay open, and no answers come.
    Frozen,
    /// The server answers only after up to half a second.
    Slow,
    /// The server is killed: its connections break, and new connections are refused.
    Killed,
    /// All packets to the server are lost on the way, without an error.
    CutOff,
    /// As `CutOff`, but only the packets of the other servers are lost. Clients reach the server.
    CutOffFromPeers,
}

/// One round: a server fails in this way while a node with leases of this length leads.
#[derive(Clone, Copy, Debug)]
struct Round {
    trouble: Trouble,
    lease: Duration,
}

impl Round {
    const fn of(trouble: Trouble, lease_seconds: u64) -> Round {
        Round { trouble, lease: Duration::from_secs(lease_seconds) }
    }

    fn changes_routes(self) -> bool {
        matches!(self.trouble, Trouble::CutOff | Trouble::CutOffFromPeers)
    }

    /// The time for which the server fails before another node takes over: long enough to end a
    /// leadership that is not renewed.
    fn lasts(self) -> Duration {
        self.lease + Duration::from_secs(2)
    }

    /// The longest time in which a starting node opens its storage, and in which it works after it
    /// has got the leadership. The first read through a server that its peers cannot reach waits
    /// for 5 s. Then the client avoids that server.
    fn opens_in(self) -> Duration {
        match self.trouble {
            Trouble::CutOffFromPeers => OPENS_IN + Duration::from_secs(5),
            // Each step of a start waits for up to half a second, and a start has dozens of steps.
            Trouble::Slow => Duration::from_secs(40),
            Trouble::Frozen | Trouble::Killed | Trouble::CutOff => OPENS_IN,
        }
    }

    /// The longest time in which a client waits for the next command that is done: one call that
    /// finds the server dead, one call that settles the write, and the wait for the servers
    /// themselves.
    fn longest_pause(self) -> Duration {
        2 * call_timeout(self.lease) + Duration::from_secs(2)
    }
}

/// The default timeout of a node for a call to its storage.
fn call_timeout(lease: Duration) -> Duration {
    lease / 10
}

/// The rounds that always run.
const SAMPLE: [Round; 1] = [Round::of(Trouble::Frozen, 8)];

/// The rounds that run with `--long`.
const LONG: [Round; 10] = [
    Round::of(Trouble::Frozen, 4),
    Round::of(Trouble::Frozen, 8),
    Round::of(Trouble::Frozen, 20),
    Round::of(Trouble::Slow, 4),
    Round::of(Trouble::Slow, 20),
    Round::of(Trouble::Killed, 4),
    Round::of(Trouble::Killed, 20),
    Round::of(Trouble::CutOff, 4),
    Round::of(Trouble::CutOff, 20),
    Round::of(Trouble::CutOffFromPeers, 8),
];

/// A failure that lasts until this value is dropped.
enum Troubled {
    Frozen { _stopped: SuspendedProcesses },
    Slow { stop: Arc<AtomicBool>, thread: Option<std::thread::JoinHandle<()>> },
    Killed { _killed: KilledServer },
    CutOff { _routes: Vec<CutOff> },
}

impl Troubled {
    fn begin(trouble: Trouble, server: &str) -> Troubled {
        match trouble {
            Trouble::Frozen => {
                Troubled::Frozen { _stopped: SuspendedProcesses::nodes_at(&[server]).unwrap() }
            }
            Trouble::Killed => Troubled::Killed { _killed: KilledServer::node_at(server).unwrap() },
            Trouble::CutOff => {
                let routes = [server.to_owned(), of_peers(server)];
                Troubled::CutOff {
                    _routes: routes.iter().map(|at| CutOff::new(at).unwrap()).collect(),
                }
            }
            Trouble::CutOffFromPeers => {
                Troubled::CutOff { _routes: vec![CutOff::new(&of_peers(server)).unwrap()] }
            }
            Trouble::Slow => {
                let stop = Arc::new(AtomicBool::new(false));
                let (stopped, server) = (Arc::clone(&stop), server.to_owned());
                let thread = std::thread::spawn(move || {
                    while !stopped.load(Ordering::SeqCst) {
                        let still = SuspendedProcesses::nodes_at(&[&server]).unwrap();
                        std::thread::sleep(Duration::from_millis(500));
                        drop(still);
                        std::thread::sleep(Duration::from_millis(50));
                    }
                });
                Troubled::Slow { stop, thread: Some(thread) }
            }
        }
    }
}

/// The address at which the other servers reach a server. Clients reach it at the given address.
/// `cargo xtask` starts the servers with two addresses each.
fn of_peers(server: &str) -> String {
    server.replacen("127.0.0.", "127.0.1.", 1)
}

/// A route that drops all packets to an address of this machine, until this value is dropped.
struct CutOff(String);

impl CutOff {
    fn new(server: &str) -> Result<CutOff, String> {
        let (ip, _) = server.rsplit_once(':').ok_or_else(|| format!("{server} has no port"))?;
        route("add", ip)?;
        Ok(CutOff(ip.to_owned()))
    }
}

impl Drop for CutOff {
    fn drop(&mut self) {
        if let Err(error) = route("del", &self.0) {
            eprintln!("{} stays cut off: {error}", self.0);
        }
    }
}

/// Changes a route. Only root may do so, and only on Linux.
fn route(what: &str, ip: &str) -> Result<(), String> {
    let arguments = ["route", what, "blackhole", &format!("{ip}/32"), "table", "local"];
    let status = Command::new("ip").args(arguments).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        other => Err(format!("ip {}: {other:?}", arguments.join(" "))),
    }
}

impl Drop for Troubled {
    fn drop(&mut self) {
        if let Troubled::Slow { stop, thread } = self {
            stop.store(true, Ordering::SeqCst);
            thread.take().map(std::thread::JoinHandle::join);
        }
    }
}

fn run(
    node: &Launched,
    command: processor::Command,
) -> impl Future<Output = Result<Done, Refused>> + use<> {
    let node = node.node().clone();
    async move {
        let Ok(partitions) = node.app("acme", "shop").unwrap().at(command.ws) else {
            return Err(Refused::Busy(Busy::NotDeployed));
        };
        partitions.run(command).await
    }
}

/// Clients that send one command after another. Each client has a workspace of its own.
struct Clients {
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<Duration>>,
}

impl Clients {
    fn start(node: &Arc<Launched>, clock: &Clock) -> Clients {
        let stop = Arc::new(AtomicBool::new(false));
        let tasks = (1..=4).map(|ws| {
            let (node, clock, stop) = (Arc::clone(node), clock.clone(), Arc::clone(&stop));
            tokio::spawn(async move {
                let (mut last, mut longest) = (clock.now(), Duration::ZERO);
                while !stop.load(Ordering::SeqCst) {
                    let deadline = clock.now() + Duration::from_secs(10);
                    if run(&node, cud(ws, article("tea"), deadline)).await.is_ok() {
                        longest = longest.max(clock.now() - last);
                        last = clock.now();
                    }
                    clock.sleep(Duration::from_millis(10)).await;
                }
                longest.max(clock.now() - last)
            })
        });
        Clients { tasks: tasks.collect(), stop }
    }

    /// Stops the clients, and returns the longest time in which a client had no command done.
    async fn stop(self) -> Duration {
        self.stop.store(true, Ordering::SeqCst);
        let mut longest = Duration::ZERO;
        for task in self.tasks {
            longest = longest.max(task.await.unwrap());
        }
        longest
    }
}

async fn until(clock: &Clock, deadline: Instant, node: &Launched, stage: Stage) {
    while node.node().stage() != stage {
        assert!(clock.now() < deadline, "it stays {:?}", node.node().stage());
        clock.sleep(Duration::from_millis(20)).await;
    }
}

/// The longest time for connecting and opening keyspaces while a server hangs. A single wait for
/// that server, until the keepalive gives its connection up, lasts longer: 6.1 s.
const OPENS_IN: Duration = Duration::from_secs(6);

/// Nodes of one database, one after another.
struct Nodes {
    addresses: String,
    clock: Clock,
    keyspaces: Keyspaces,
    settings: Settings,
    opens_in: Duration,
}

impl Nodes {
    fn new(addresses: &str, round: Round) -> Nodes {
        let clock = Clock::system();
        let settings = Settings {
            system: new_name(),
            acquire_within: Some(PATIENCE),
            open_within: PATIENCE,
            lease: Timing::of(round.lease),
            call_timeout: call_timeout(round.lease),
            ..Settings::new(([127, 0, 0, 1], 1).into())
        };
        let (addresses, opens_in) = (addresses.to_owned(), round.opens_in());
        Nodes { addresses, clock, keyspaces: Keyspaces::default(), settings, opens_in }
    }

    /// Starts a node with connections of its own, as a process has: one client for elections, one
    /// for requests.
    async fn launch(&self) -> Arc<Launched> {
        let driver = async || {
            let driver = Cassandra::at(&self.addresses).node(0).await.unwrap();
            self.keyspaces.noted_by(driver)
        };
        let (elections, requests) = tokio::join!(driver(), driver());
        let app = AppSettings::new(AppName::new("acme", "shop").unwrap(), shop());
        let node = Vvm::builder(elections, self.clock.clone(), self.settings.clone())
            .with_requests_on(Handle::current(), requests)
            .with_app(app);
        Arc::new(node.build().unwrap().launch())
    }

    /// Starts a node, and waits until the node waits for the leadership.
    async fn standby(&self, what: &str) -> Arc<Launched> {
        let start = self.clock.now();
        let node = self.launch().await;
        until(&self.clock, start + self.opens_in, &node, Stage::Waiting).await;
        eprintln!("{what}: another node waited for the lead after {:?}", self.clock.now() - start);
        node
    }

    /// Stops the leader, and waits until the other node works.
    async fn hand_over(&self, leader: Arc<Launched>, next: &Launched, what: &str) {
        Arc::into_inner(leader).unwrap().shutdown().await.unwrap();
        let released = self.clock.now();
        until(&self.clock, released + self.opens_in, next, Stage::Leading).await;
        eprintln!("{what}: the other node worked after {:?}", self.clock.now() - released);
    }
}

async fn one_of_three(addresses: &str, round: Round) {
    let nodes = Nodes::new(addresses, round);
    let clock = &nodes.clock;
    let mut node = nodes.launch().await;
    until(clock, soon(), &node, Stage::Leading).await;
    for ws in 1..=4 {
        while run(&node, create_workspace(ws, clock.now() + Duration::from_secs(10))).await.is_err()
        {
            clock.sleep(Duration::from_millis(100)).await;
        }
    }
    // All programs on the machine use 127.0.0.1, so this address is not cut off.
    let is_spared =
        |server: &&str| round.trouble == Trouble::CutOff && server.starts_with("127.0.0.1:");
    let servers = addresses.split(',').filter(|server| !is_spared(server));
    for (number, server) in servers.enumerate() {
        if number > 0 {
            // Give the other servers time to take the former server back.
            clock.sleep(Duration::from_secs(10)).await;
        }
        let what = format!("{round:?} of {server}");
        let clients = Clients::start(&node, clock);
        clock.sleep(Duration::from_secs(2)).await;
        let troubled = Troubled::begin(round.trouble, server);
        let lost = clock.timeout_at(clock.now() + round.lasts(), node.problem());
        let (lost, next) = tokio::join!(lost, nodes.standby(&what));
        assert!(lost.is_err(), "{what}: {}", lost.unwrap());
        let pause = clients.stop().await;
        eprintln!("{what}: the longest pause was {pause:?}");
        assert!(pause <= round.longest_pause(), "{what}: nothing for {pause:?}");
        nodes.hand_over(mem::replace(&mut node, Arc::clone(&next)), &next, &what).await;
        drop((troubled, next));
        let deadline = soon();
        while tokio::net::TcpStream::connect(server).await.is_err() {
            assert!(clock.now() < deadline, "{server} does not come back");
            clock.sleep(Duration::from_millis(200)).await;
        }
    }
    Arc::into_inner(node).unwrap().shutdown().await.unwrap();
    let cleaner = Cassandra::at(addresses).node(0).await.unwrap();
    let left = nodes.keyspaces.drop_all(&*cleaner, clock).await;
    assert!(left.is_empty(), "{left:?}");
}

/// Connects a client that makes keyspaces with a number of replicas.
async fn connect(addresses: &str, replicas: u8) -> CassandraDriver {
    let replication = Some(Replication::Simple(replicas));
    let config = Config { replication, ..Config::new(addresses.split(',')) };
    CassandraDriver::connect(config, Clock::system(), soon()).await.unwrap()
}

fn soon() -> Instant {
    Clock::system().now() + PATIENCE
}

fn new_name() -> KeyspaceName {
    KeyspaceName::new(format!("three_{:016x}", Clock::system().random())).unwrap()
}

/// Checks that clients connect and open keyspaces in time while one of three servers hangs.
///
/// The client tried the contact points one after another, and then waited for connections to all
/// servers. A server that hung delayed both steps by 6.1 s, so a start took up to 19 s, and more
/// than 25 s under load. Then each server had to read from a certain partition. A keyspace was not
/// opened while that partition had no quorum, for example with two replicas, one of which hung.
async fn opened_beside_a_hung_server(addresses: &str) {
    let clock = Clock::system();
    let names = [new_name(), new_name()];
    for (name, replicas) in names.iter().zip([3, 2]) {
        connect(addresses, replicas).await.create(name, soon()).await.unwrap();
    }
    for server in addresses.split(',') {
        let hung = SuspendedProcesses::nodes_at(&[server]).unwrap();
        let start = clock.now();
        let driver = connect(addresses, 3).await;
        for name in &names {
            assert!(driver.open(name, start + PATIENCE / 6).await.unwrap().is_some());
        }
        let opened = clock.now() - start;
        drop(hung);
        eprintln!("{server} hung: keyspaces were opened after {opened:?}");
        assert!(opened <= OPENS_IN, "{server} hung: keyspaces were opened after {opened:?}");
        clock.sleep(Duration::from_secs(1)).await;
    }
    made_by_a_server_that_was_slow(addresses).await;
    let driver = connect(addresses, 3).await;
    for name in names {
        driver.drop_keyspace(&name, soon()).await.unwrap();
    }
}

/// Checks that making a keyspace also asks a server that was slow when the client connected,
/// because another client may use that server.
async fn made_by_a_server_that_was_slow(addresses: &str) {
    let (name, server) = (new_name(), addresses.split(',').next_back().unwrap());
    let slow = SuspendedProcesses::nodes_at(&[server]).unwrap();
    let driver = connect(addresses, 3).await;
    let has_resumed = AtomicBool::new(false);
    let made = async {
        driver.create(&name, soon()).await.unwrap();
        assert!(has_resumed.load(Ordering::SeqCst), "the keyspace was made without {server}");
    };
    let resumed = async {
        Clock::system().sleep(Duration::from_secs(2)).await;
        has_resumed.store(true, Ordering::SeqCst);
        drop(slow);
    };
    tokio::join!(made, resumed);
    driver.drop_keyspace(&name, soon()).await.unwrap();
}

fn trial(round: Option<Round>, handle: &Handle) -> Trial {
    let handle = handle.clone();
    let name = match round {
        None => "a_keyspace_is_opened_in_time_while_one_of_three_servers_hangs".to_owned(),
        Some(Round { trouble, lease }) => format!(
            "a_leader_leads_on_while_one_of_three_servers_is_{trouble:?}_leases_of_{lease:?}"
        ),
    };
    let name = format!("cassandra_cluster::{name}").to_lowercase();
    Trial::ignorable_test(name, move || match CASSANDRA_CLUSTER.address() {
        None => Ok(Completion::ignored_with(CASSANDRA_CLUSTER.ignored_because)),
        // Processes of other machines must not be stopped.
        Some(addresses) if !addresses.split(',').all(|address| address.starts_with("127.")) => {
            Ok(Completion::ignored_with("the servers of the cluster are not on this machine"))
        }
        Some(_)
            if round.is_some_and(Round::changes_routes) && CutOff::new("127.0.0.99:1").is_err() =>
        {
            Ok(Completion::ignored_with("only root may change routes"))
        }
        Some(addresses) => {
            match round {
                None => handle.block_on(opened_beside_a_hung_server(&addresses)),
                Some(round) => handle.block_on(one_of_three(&addresses, round)),
            }
            Ok(Completion::Completed)
        }
    })
}

fn main() {
    let runtime = Runtime::new().unwrap();
    let rounds = if is_long() { &LONG[..] } else { &SAMPLE };
    let rounds = std::iter::once(None).chain(rounds.iter().copied().map(Some));
    let trials = rounds.map(|round| trial(round, runtime.handle()));
    // The trials run one after another, because each one needs the servers for itself.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, trials.collect()).exit();
}
