//! TLS of a port, and the task that follows its files.

use std::{
    fmt, io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use clock::{Clock, Instant};
use metrics::{Counter, Gauge};
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsAcceptor, TlsConnector,
    rustls::{ClientConfig, ServerConfig, pki_types::ServerName},
};
use tracing::{info, warn};

use super::{
    files::{Credentials, FileTexts, FilesDigest, PortFiles, TlsFileError},
    reload::Reloads,
    watch::FileWatch,
};
use crate::{given_file::reported_if_late, stream::NodeStream};

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// How many days before the end of a certificate an operator should act, and a node warns.
pub const CERTIFICATE_WARN_DAYS: u64 = 14;

/// TLS of a port. New connections use the files as they were last found usable. A connection keeps
/// its keys.
pub struct PortTls {
    files: PortFiles,
    configure: Configure,
    check: Check,
    current: Mutex<Arc<PortConfigs>>,
    reloads: Reloads,
}

/// Makes the settings of rustls from the files.
type Configure = fn(&Credentials) -> Result<(ServerConfig, Option<ClientConfig>), TlsFileError>;

/// Refuses files that this node can use, and that no client or peer accepts.
type Check = fn(&Credentials) -> Result<(), TlsFileError>;

/// The settings of rustls for new connections.
///
/// New files give new settings that take nothing from the former ones. So no client resumes a
/// connection that began under a former authority.
struct PortConfigs {
    server: Arc<ServerConfig>,
    /// The settings of connections to other nodes.
    client: Option<Arc<ClientConfig>>,
    /// When the certificate expires, in seconds since 1970.
    ends: u64,
    /// The files that the settings were made of.
    digest: FilesDigest,
}

impl PortTls {
    /// Reads the files. Only new files are judged by `check`: see [`PortTls::check_files`].
    pub(crate) fn read(
        files: PortFiles,
        configure: Configure,
        check: Check,
    ) -> Result<PortTls, TlsFileError> {
        let texts = files.read();
        let digest = texts.digest();
        let current = configs(&Credentials::new(&files, texts)?, configure, digest)?;
        let current = Mutex::new(Arc::new(current));
        Ok(PortTls { files, configure, check, current, reloads: Reloads::new() })
    }

    /// Reads the files again, checks them, and uses none of them.
    pub(crate) fn check_files(&self) -> Result<(), TlsFileError> {
        (self.check)(&Credentials::new(&self.files, self.files.read())?)
    }

    /// Accepts the connection of a client.
    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<NodeStream> {
        let acceptor = TlsAcceptor::from(Arc::clone(&self.current().server));
        let stream = acceptor.accept(stream).await?;
        Ok(NodeStream::Tls(Box::new(stream.into())))
    }

    /// Begins TLS with another node of this name.
    pub(crate) async fn connect(
        &self,
        stream: TcpStream,
        name: ServerName<'static>,
    ) -> io::Result<NodeStream> {
        let client = self.current().client.clone();
        let client =
            client.ok_or_else(|| io::Error::other("the port does not connect to other nodes"))?;
        let stream = TlsConnector::from(client).connect(name, stream).await?;
        Ok(NodeStream::Tls(Box::new(stream.into())))
    }

    /// Makes the task of the port read the files at once, without the wait for a second look.
    /// Returns whether new connections use the files as they are now; the log has the reason if
    /// they are refused. The port must be running: until then the future waits.
    ///
    /// # Cancel safety
    /// Safe: the files are read all the same.
    pub async fn reload(&self) -> bool {
        self.reloads.order().await
    }

    /// Looks at the files again and again, until this future is dropped. Uses them when they
    /// change, shows in the metrics when the certificate ends, and warns before that.
    pub(crate) async fn follow(&self, service: &'static str, clock: &Clock) {
        let meters = FileMeters::new(service);
        let mut watch = FileWatch::new(self.current().digest);
        let mut warned = None;
        loop {
            let current = self.current();
            meters.ends.set(current.ends as f64);
            self.warn_of_end(service, current.ends, &mut warned, clock);
            let in_use = current.digest;
            drop(current);
            let order = tokio::select! {
                () = clock.sleep(self.files.own.look_every) => None,
                order = self.reloads.next() => Some(order),
            };
            let is_late = || {
                warn!(service, "files of TLS not read in time, the port keeps the former ones");
                meters.note_refused();
                if let Some(order) = order {
                    self.reloads.answer(order, false);
                }
            };
            let texts = reported_if_late(clock, self.files.read_again(), is_late).await;
            let digest = texts.digest();
            let is_due = match order {
                None => watch.observe(digest),
                Some(_) => {
                    watch.note_judged(digest);
                    digest != in_use
                }
            };
            let is_usable = !is_due || self.exchange(service, texts, clock);
            if is_due && is_usable {
                meters.taken.increment(1);
                warned = None;
            } else if is_due {
                meters.note_refused();
            }
            if is_usable && self.current().digest == digest {
                meters.is_refused.set(0.0);
            } else if watch.is_judged(digest) {
                // The files were refused: now, or before the former ones were back for a moment.
                meters.is_refused.set(1.0);
            }
            if let Some(order) = order {
                self.reloads.answer(order, is_usable);
            }
        }
    }

    /// Uses new files, unless they are refused. Returns whether the port uses them.
    fn exchange(&self, service: &'static str, texts: FileTexts, clock: &Clock) -> bool {
        let digest = texts.digest();
        let new = Credentials::new(&self.files, texts).and_then(|credentials| {
            (self.check)(&credentials)?;
            configs(&credentials, self.configure, digest)
        });
        match new {
            Ok(new) => {
                let days_left = days_left(new.ends, clock);
                info!(service, days_left, "certificate exchanged");
                *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
                true
            }
            Err(error) => {
                warn!(service, %error, "new files of TLS refused, the port keeps the former ones");
                false
            }
        }
    }

    /// Warns once a day when fewer than [`CERTIFICATE_WARN_DAYS`] days of the certificate are left.
    fn warn_of_end(
        &self,
        service: &'static str,
        ends: u64,
        warned: &mut Option<Instant>,
        clock: &Clock,
    ) {
        let (days_left, now) = (days_left(ends, clock), clock.now());
        if days_left >= CERTIFICATE_WARN_DAYS || warned.is_some_and(|at| now < at + DAY) {
            return;
        }
        *warned = Some(now);
        let file = self.files.own.certificate.display();
        if seconds_left(ends, clock) == 0 {
            warn!(service, %file, "certificate has expired, clients refuse it: replace the file");
        } else {
            warn!(service, %file, days_left, "certificate ends soon: replace the file");
        }
    }

    /// Returns when the certificate ends, or one between it and the authority, in seconds since
    /// 1970.
    pub fn certificate_ends(&self) -> u64 {
        self.current().ends
    }

    fn current(&self) -> Arc<PortConfigs> {
        Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The metrics of the files of a port.
struct FileMeters {
    ends: Gauge,
    taken: Counter,
    refused: Counter,
    /// 1 while the files were refused at the last look, else 0.
    is_refused: Gauge,
}

impl FileMeters {
    fn new(service: &'static str) -> FileMeters {
        let exchanged = |outcome| {
            let of = "httpapi_certificate_exchanges_total";
            let counter = metrics::counter!(of, "service" => service, "outcome" => outcome);
            counter.increment(0);
            counter
        };
        let is_refused = metrics::gauge!("httpapi_certificate_refused", "service" => service);
        is_refused.set(0.0);
        let of = "httpapi_certificate_ends_timestamp_seconds";
        FileMeters {
            ends: metrics::gauge!(of, "service" => service),
            taken: exchanged("taken"),
            refused: exchanged("refused"),
            is_refused,
        }
    }

    fn note_refused(&self) {
        self.refused.increment(1);
        self.is_refused.set(1.0);
    }
}

fn configs(
    credentials: &Credentials,
    configure: Configure,
    digest: FilesDigest,
) -> Result<PortConfigs, TlsFileError> {
    let (server, client) = configure(credentials)?;
    Ok(PortConfigs {
        server: Arc::new(server),
        client: client.map(Arc::new),
        ends: credentials.ends,
        digest,
    })
}

fn seconds_left(ends: u64, clock: &Clock) -> u64 {
    ends.saturating_sub(clock.wall().as_millis() / 1_000)
}

fn days_left(ends: u64, clock: &Clock) -> u64 {
    seconds_left(ends, clock) / DAY.as_secs()
}

impl fmt::Debug for PortTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PortTls").field("files", &self.files).finish_non_exhaustive()
    }
}
