//! TLS of a port: its files, what is made of them, and the exchange of files that change.
//!
//! Invariant: a handshake uses a certificate and a key that belong together. Both are replaced in
//! one step, and only by files that can be used.

mod clients;
mod cluster;
mod files;
mod judgement;
mod port;
mod reload;
mod server;
mod validity;
mod watch;

use self::{
    clients::CheckedClients,
    files::{Credentials, PortFiles},
};
pub use self::{
    cluster::{ClusterTls, is_refused_certificate},
    files::{TlsFile, TlsFileError, TlsFiles},
    port::{CERTIFICATE_WARN_DAYS, PortTls},
    server::ServerTls,
};
