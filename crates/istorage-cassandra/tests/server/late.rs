//! How late a write may land.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use clock::Clock;
use istorage::{AppStorageExt, Consistency, ErrorKind, Key, StorageDriver};
use istorage_cassandra::{CAPABILITIES, CassandraConfig, CassandraDriver};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, tcp::OwnedReadHalf, tcp::OwnedWriteHalf},
};

use crate::support::{CassandraCluster, soon, until};

/// The client gives up a connection if a sign of life takes longer.
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);
/// The time that a server with the default timeouts adds: a request waits for 12 s at most, then
/// the server works on it for 4 s at most.
const SERVER: Duration = Duration::from_secs(16);

/// A connection stalled twice, each time for a little less than the client waits for a sign of
/// life. A write that was sent right after the first question waited for 9 s in the connection. The
/// driver promised that no write waits in a connection for more than 6.1 s, and the leases of trust
/// level 2 rely on that promise.
pub(crate) async fn a_write_lands_within_the_promised_bound(cluster: CassandraCluster) {
    let scratch = cluster.scratch().await;
    let clock = Clock::system();
    let network = Network::to(&cluster.nodes[0]).await;
    let config = CassandraConfig::new([network.address.clone()]);
    let driver = CassandraDriver::connect(config, clock.clone(), soon()).await.unwrap();
    let storage = driver.open(&scratch.name, soon()).await.unwrap().unwrap();
    let key = Key::new("late", "");
    storage.put(key.clone(), "early".into(), soon()).await.unwrap();

    network.stall().await;
    let sent = clock.now();
    let put = storage.put(key.clone(), "late".into(), sent + Duration::from_millis(200)).await;
    assert_eq!(put.unwrap_err().kind(), ErrorKind::OutcomeUnknown);
    until(async || {
        let value = scratch.storage.get(&key, Consistency::Plain, soon()).await.unwrap();
        value.is_some_and(|value| value == "late")
    })
    .await;
    let waited = clock.now() - sent;
    assert!(waited > SIGN_OF_LIFE, "the network did not stall: {waited:?}");
    assert!(
        waited + SERVER <= CAPABILITIES.late_write,
        "it waited in the connection for {waited:?}"
    );
    driver.close().await;
    scratch.drop().await;
}

/// The network between the client and a server, which may stall.
struct Network {
    address: String,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    stalls: AtomicBool,
    connections: AtomicUsize,
    /// The number of connections that stall.
    stalled: AtomicUsize,
}

impl Network {
    #[expect(
        clippy::disallowed_methods,
        reason = "the network passes requests on until the trial ends"
    )]
    async fn to(server: &str) -> Network {
        let (server, state) = (server.to_owned(), Arc::new(State::default()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let network = Network {
            address: listener.local_addr().unwrap().to_string(),
            state: Arc::clone(&state),
        };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (from_client, mut to_client) = client.into_split();
                let server = TcpStream::connect(&server).await.unwrap();
                let (mut from_server, to_server) = server.into_split();
                tokio::spawn(
                    async move { tokio::io::copy(&mut from_server, &mut to_client).await },
                );
                let state = Arc::clone(&state);
                tokio::spawn(async move {
                    state.connections.fetch_add(1, Ordering::SeqCst);
                    let ended = state.pass(from_client, to_server).await;
                    state.connections.fetch_sub(1, Ordering::SeqCst);
                    ended
                });
            }
        });
        network
    }

    /// Stalls the network. Returns when all connections stall.
    async fn stall(&self) {
        let State { stalls, connections, stalled } = &*self.state;
        stalls.store(true, Ordering::SeqCst);
        until(async || stalled.load(Ordering::SeqCst) == connections.load(Ordering::SeqCst)).await;
    }
}

impl State {
    /// Passes requests on. If the network stalls, the client's next question for a sign of life is
    /// late by `STALL`. Everything after the question is late by another `STALL`.
    async fn pass(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> io::Result<()> {
        const STALL: Duration = Duration::from_millis(4_500);
        const HEADER: usize = 9;
        const OPTIONS: u8 = 5;
        let clock = Clock::system();
        loop {
            let mut frame = vec![0; HEADER];
            from.read_exact(&mut frame).await?;
            let (opcode, len) =
                (frame[4], u32::from_be_bytes([frame[5], frame[6], frame[7], frame[8]]));
            frame.resize(HEADER + len as usize, 0);
            from.read_exact(&mut frame[HEADER..]).await?;
            if opcode != OPTIONS || !self.stalls.load(Ordering::SeqCst) {
                to.write_all(&frame).await?;
                continue;
            }
            self.stalled.fetch_add(1, Ordering::SeqCst);
            clock.sleep(STALL).await;
            to.write_all(&frame).await?;
            clock.sleep(STALL).await;
            tokio::io::copy(&mut from, &mut to).await?;
        }
    }
}
