//! NATS JetStream with `sync_interval: always`: a message is synced before it is acknowledged.
//!
//! A message is the event alone: JetStream has no records that change together with an event.

use std::{
    fs, io,
    net::SocketAddr,
    path::Path,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use clock::Clock;
use serde_json::{Value, json};
use tck::trial::free_address;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    process::Command,
    sync::Mutex,
};
use vvm_tests::bench::{BenchError, PARTITIONS, Sample};

use crate::Load;

const PROGRAM: &str = "nats-server";

/// The longest time for the start of the server.
const START: Duration = Duration::from_secs(10);

/// The program of the server, which is on the PATH.
#[derive(Debug)]
pub(crate) struct NatsProgram(());

impl NatsProgram {
    /// Looks for the program. `None` if it is not installed.
    pub(crate) async fn find() -> io::Result<Option<NatsProgram>> {
        match Command::new(PROGRAM).arg("--version").stdout(Stdio::null()).status().await {
            Ok(_) => Ok(Some(NatsProgram(()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Publishes events to a server with empty streams, one for each partition. Each client
    /// publishes its next event when the one before is acknowledged.
    pub(crate) async fn measure(
        &self,
        folder: &Path,
        clock: &Clock,
        load: Load,
    ) -> Result<Sample, BenchError> {
        let address = free_address();
        let config = format!(
            "listen: \"{address}\"\njetstream {{ store_dir: {:?}, sync_interval: always }}\n",
            folder.join("data")
        );
        fs::write(folder.join("nats.conf"), config)?;
        let mut server = Command::new(PROGRAM);
        server.arg("--config").arg(folder.join("nats.conf"));
        let server = server.stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        let mut server = server.spawn()?;
        wait_until_ready(address, clock).await?;
        let mut connected = Vec::new();
        for client in 0..load.clients {
            connected.push(Mutex::new(NatsConnection::connect(address, client).await?));
        }
        for partition in 0..PARTITIONS {
            let name = format!("log{partition}");
            let stream = json!({
                "name": &name, "subjects": [format!("{name}.*")],
                "retention": "limits", "storage": "file",
            });
            let create = format!("$JS.API.STREAM.CREATE.{name}");
            connected[0].get_mut().request(&create, &stream.to_string()).await?;
        }
        let event = Arc::new("e".repeat(100 + 70 * load.records as usize));
        let (connected, next) = (Arc::new(connected), Arc::new(AtomicU64::new(0)));
        let call = move |client: usize| {
            let (connected, event) = (Arc::clone(&connected), Arc::clone(&event));
            let ws = next.fetch_add(1, Ordering::Relaxed) % load.workspaces;
            let subject = format!("log{}.{ws}", ws % u64::from(PARTITIONS));
            async move { connected[client].lock().await.request(&subject, &event).await }
        };
        let sample = Sample::measure(clock, load.clients, load.span, call).await;
        server.kill().await?;
        sample
    }
}

async fn wait_until_ready(address: SocketAddr, clock: &Clock) -> Result<(), BenchError> {
    let until = clock.now() + START;
    while TcpStream::connect(address).await.is_err() {
        if clock.now() > until {
            return Err(format!("{PROGRAM} does not listen on {address} after {START:?}").into());
        }
        clock.sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// A connection that is used for one request after another.
#[derive(Debug)]
struct NatsConnection {
    stream: BufReader<TcpStream>,
    /// The subject of the answers.
    inbox: String,
}

impl NatsConnection {
    async fn connect(address: SocketAddr, client: usize) -> io::Result<NatsConnection> {
        let mut stream = BufReader::new(TcpStream::connect(address).await?);
        stream.get_ref().set_nodelay(true)?;
        let inbox = format!("_INBOX.{client}");
        let hello = format!("CONNECT {{\"verbose\":false}}\r\nSUB {inbox} 1\r\n");
        stream.write_all(hello.as_bytes()).await?;
        Ok(NatsConnection { stream, inbox })
    }

    /// Publishes a message, and waits for the answer of JetStream, which must be a success.
    async fn request(&mut self, subject: &str, message: &str) -> Result<(), BenchError> {
        let NatsConnection { stream, inbox } = self;
        let publish = format!("PUB {subject} {inbox} {}\r\n{message}\r\n", message.len());
        stream.write_all(publish.as_bytes()).await?;
        let mut line = String::new();
        loop {
            line.clear();
            if stream.read_line(&mut line).await? == 0 {
                return Err(format!("{PROGRAM} hung up").into());
            }
            match line.split_ascii_whitespace().next() {
                Some("MSG") => break,
                Some("PING") => stream.write_all(b"PONG\r\n").await?,
                Some("-ERR") => return Err(line.into()),
                _ => {}
            }
        }
        let length = line.split_ascii_whitespace().next_back().ok_or("an empty line")?;
        let mut answer = vec![0; length.parse::<usize>()? + "\r\n".len()];
        stream.read_exact(&mut answer).await?;
        let answer: Value = serde_json::from_slice(&answer)?;
        match answer["error"].is_null() {
            true => Ok(()),
            false => Err(format!("{subject}: {answer}").into()),
        }
    }
}
