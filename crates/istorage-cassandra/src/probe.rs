//! Probes the servers while a session is set up.
//!
//! The client sets up a session in steps. It tries the contact points one after another. Then it
//! waits until each server is connected or has failed. A server that hangs holds up each of these
//! steps for 6.1 s: its kernel accepts the connection, and only the keepalive gives it up. So each
//! server must first answer a probe within [`ANSWER_TIMEOUT`]. Contact points that do not answer
//! are left out, and the client opens no connection to a server that does not answer.
//!
//! Probes decide only about the set-up. Afterwards the client connects to all servers that have no
//! connection, and a slow server gets as much time as the keepalive allows.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use clock::Clock;
use futures::future::{join_all, try_join_all};
use rustls::{ClientConfig, ClientConnection, pki_types::ServerName};
use scylla::{
    errors::TranslationError,
    policies::address_translator::{AddressTranslator, UntranslatedPeer},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, lookup_host},
};

/// How long a server may take to answer a probe.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// The port of a contact point that names no port.
const PORT: u16 = 9042;

/// A frame of the protocol, `OPTIONS`, which asks a server for the features that it supports.
const OPTIONS: [u8; 9] = [4, 0, 0, 0, 5, 0, 0, 0, 0];

/// Probes the servers of one session until the session is set up.
pub(crate) struct Probe {
    clock: Clock,
    tls: Option<Arc<ClientConfig>>,
    is_over: AtomicBool,
}

impl Probe {
    pub(crate) fn new(clock: Clock, tls: Option<Arc<ClientConfig>>) -> Probe {
        Probe { clock, tls, is_over: AtomicBool::new(false) }
    }

    /// The contact points of servers that answer. If no server answers, all contact points.
    pub(crate) async fn answering(&self, contact_points: &[String]) -> Vec<String> {
        let answers = join_all(contact_points.iter().map(|point| self.answers(point))).await;
        let answering: Vec<String> = contact_points
            .iter()
            .zip(answers)
            .filter(|(_, answer)| answer.is_ok())
            .map(|(point, _)| point.clone())
            .collect();
        if answering.is_empty() { contact_points.to_vec() } else { answering }
    }

    /// Ends the probing: the session is set up.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Succeeds if the servers at all addresses of a contact point answer in time.
    async fn answers(&self, contact_point: &str) -> io::Result<()> {
        self.within_timeout(async {
            let servers =
                addresses(contact_point).await?.into_iter().map(|server| self.ask(server));
            try_join_all(servers).await.map(drop)
        })
        .await
    }

    async fn within_timeout(&self, probe: impl Future<Output = io::Result<()>>) -> io::Result<()> {
        let deadline = self.clock.now() + ANSWER_TIMEOUT;
        let late = |_| {
            Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the server did not answer the probe in time",
            ))
        };
        self.clock.timeout_at(deadline, probe).await.unwrap_or_else(late)
    }

    /// Sends a question to a server and waits until the server has sent something.
    async fn ask(&self, server: SocketAddr) -> io::Result<()> {
        let mut question = OPTIONS.to_vec();
        if let Some(tls) = &self.tls {
            let name = ServerName::from(server.ip());
            let mut connection =
                ClientConnection::new(Arc::clone(tls), name).map_err(io::Error::other)?;
            question.clear();
            connection.write_tls(&mut question)?;
        }
        let mut stream = TcpStream::connect(server).await?;
        stream.write_all(&question).await?;
        let mut answer = [0; 4096];
        match stream.read(&mut answer).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

/// Keeps the client from connecting to servers that do not answer. The client asks this translator
/// before it opens a connection.
#[async_trait]
impl AddressTranslator for Probe {
    async fn translate_address(
        &self,
        peer: &UntranslatedPeer,
    ) -> Result<SocketAddr, TranslationError> {
        let server = peer.untranslated_address();
        if !self.is_over.load(Ordering::Relaxed) {
            let asked = self.within_timeout(self.ask(server)).await;
            asked.map_err(|error| TranslationError::IoError(Arc::new(error)))?;
        }
        Ok(server)
    }
}

/// The addresses of a contact point, looked up as the client does.
async fn addresses(contact_point: &str) -> io::Result<Vec<SocketAddr>> {
    match lookup_host(contact_point).await {
        Ok(addresses) => Ok(addresses.collect()),
        Err(_) => Ok(lookup_host((contact_point, PORT)).await?.collect()),
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// A server that hangs: the kernel accepts connections, and no process reads from them.
    async fn hanging() -> (TcpListener, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        (listener, address)
    }

    /// The address of a server, and a future that makes the server answer one connection.
    async fn answering() -> (impl Future<Output = ()>, String) {
        let (listener, address) = hanging().await;
        let serve = async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut question = [0; OPTIONS.len()];
            stream.read_exact(&mut question).await.unwrap();
            assert_eq!(question, OPTIONS);
            stream.write_all(b"supported").await.unwrap();
        };
        (serve, address)
    }

    fn probe() -> Probe {
        Probe::new(Clock::system(), None)
    }

    /// One of three servers hung. The client tried that server first and waited for 6.1 s. A node
    /// opens two clients, and each of them waited several times.
    #[tokio::test]
    async fn contact_points_that_hang_are_left_out_unless_all_do() {
        let (serve, good) = answering().await;
        let (_listener, bad) = hanging().await;
        let points = [bad.clone(), good.clone()];
        let probe = probe();
        let (chosen, ()) = futures::join!(probe.answering(&points), serve);
        assert_eq!(chosen, [good]);
        assert_eq!(probe.answering(std::slice::from_ref(&bad)).await, [bad]);
    }

    #[tokio::test]
    async fn a_contact_point_that_cannot_be_reached_is_left_out() {
        let (serve, good) = answering().await;
        let (listener, closed) = hanging().await;
        drop(listener);
        let points = [closed, "no such host".to_owned(), good.clone()];
        let (chosen, ()) = futures::join!(async { probe().answering(&points).await }, serve);
        assert_eq!(chosen, [good]);
    }

    /// A server that expects TLS gets a TLS greeting. To any other bytes the server sends no
    /// answer, or logs an error.
    #[tokio::test]
    async fn a_server_with_tls_is_greeted_with_tls() {
        const HANDSHAKE: u8 = 22;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        let probe = Probe::new(Clock::system(), Some(Arc::new(config)));
        let (listener, address) = hanging().await;
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            assert_eq!(stream.read_u8().await.unwrap(), HANDSHAKE);
            stream.write_all(&[HANDSHAKE]).await.unwrap();
        };
        let (answered, ()) = futures::join!(probe.answers(&address), serve);
        answered.unwrap();
    }
}
