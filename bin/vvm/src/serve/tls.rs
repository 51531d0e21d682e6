//! TLS of the ports, from the configuration.

use ctl::CommandError;
use futures::future::join_all;
use http_server::{ClusterTls, PortTls, ServerTls, TlsFile, TlsFileError, TlsFiles};

use crate::config::VvmConfig;

/// TLS of the ports that have it.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeTls {
    pub(super) http: Option<ServerTls>,
    pub(super) admin: Option<ServerTls>,
    pub(super) cluster: Option<ClusterTls>,
}

impl NodeTls {
    /// Reads the files. The error names the key of the wrong file.
    pub(crate) fn read(config: &VvmConfig) -> Result<NodeTls, CommandError> {
        let VvmConfig { http, admin, cluster, .. } = config;
        let wrong = |section, authority| {
            move |error: TlsFileError| {
                let key = match error.file {
                    TlsFile::Certificate => "cert_file",
                    TlsFile::Key => "key_file",
                    TlsFile::Authority => authority,
                };
                config.source.wrong(&[section, "tls", key], error)
            }
        };
        let http = http.tls.as_ref().map(|tls| {
            let files = TlsFiles::new(&tls.cert_file, &tls.key_file);
            ServerTls::read(files).map_err(wrong("http", ""))
        });
        let admin = admin.tls.as_ref().map(|tls| {
            let files = TlsFiles::new(&tls.cert_file, &tls.key_file);
            let read = match &tls.client_ca_file {
                None => ServerTls::read(files),
                Some(authority) => ServerTls::read_with_clients(files, authority),
            };
            read.map_err(wrong("admin", "client_ca_file"))
        });
        let cluster = cluster.tls.as_ref().map(|tls| {
            let files = TlsFiles::new(&tls.cert_file, &tls.key_file);
            let read = ClusterTls::read(files, &tls.ca_file);
            let checked = read.and_then(|tls| tls.check_own().map(|()| tls));
            checked.map_err(wrong("cluster", "ca_file"))
        });
        Ok(NodeTls {
            http: http.transpose()?,
            admin: admin.transpose()?,
            cluster: cluster.transpose()?,
        })
    }

    /// Returns the section of each port with TLS, and when its certificate ends, in seconds since
    /// 1970.
    pub(crate) fn certificate_ends(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.ports().map(|(section, port)| (section, port.certificate_ends()))
    }

    /// Has all ports read their files at once. Returns whether each port uses its files as they are
    /// now.
    pub(super) async fn reload(&self) -> bool {
        let reloads = self.ports().map(|(_, port)| port.reload());
        join_all(reloads).await.into_iter().all(|is_used| is_used)
    }

    /// The ports with TLS, each with its section.
    fn ports(&self) -> impl Iterator<Item = (&'static str, &PortTls)> {
        let http = self.http.as_ref().map(|tls| ("http.tls", tls.port()));
        let admin = self.admin.as_ref().map(|tls| ("admin.tls", tls.port()));
        let cluster = self.cluster.as_ref().map(|tls| ("cluster.tls", tls.port()));
        [http, admin, cluster].into_iter().flatten()
    }
}
