//! The PEM files of a port.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use sha2::{Digest, Sha256};
use tokio_rustls::rustls::{
    self, RootCertStore,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject},
    },
};

use super::{judgement, validity};
use crate::given_file::{read, read_again};

/// The PEM files of a port with TLS. The port reads them again when they change.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate of the node, followed by the certificates between it and its authority.
    pub certificate: PathBuf,
    /// The private key of the certificate, without a password.
    pub key: PathBuf,
    /// How often the port looks at the files. Files that changed are used if the next look finds
    /// them unchanged: then nobody is writing them any more.
    pub look_every: Duration,
}

impl TlsFiles {
    /// The files, with a look every 2 s.
    #[must_use]
    pub fn new(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> TlsFiles {
        let look_every = Duration::from_secs(2);
        TlsFiles { certificate: certificate.into(), key: key.into(), look_every }
    }
}

/// One of the files of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFile {
    /// The certificate.
    Certificate,
    /// The private key.
    Key,
    /// The certificates of the authorities that sign the certificates of clients or peers.
    Authority,
}

/// The problem of a file for TLS.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct TlsFileError {
    /// Which of the files it is.
    pub file: TlsFile,
    /// The path of the file.
    pub path: PathBuf,
    why: FileProblem,
}

#[derive(Debug, thiserror::Error)]
enum FileProblem {
    #[error("the file cannot be read: {0}")]
    Unread(io::Error),
    #[error("the file is not in PEM format, or not whole: {0}")]
    Pem(pem::Error),
    #[error("the file has no certificate in PEM format (BEGIN CERTIFICATE)")]
    NoCertificate,
    #[error(
        "the file has no private key in PEM format (BEGIN PRIVATE KEY); a key with a password cannot \
         be used"
    )]
    NoKey,
    #[error(
        "the key does not belong to the first certificate in {}: use the key of that certificate",
        _0.display()
    )]
    OtherKey(PathBuf),
    #[error(
        "certificate {0} in the file is no authority (CA:TRUE): give the certificate of the authority \
         that signed the certificates of the clients or nodes"
    )]
    NoAuthority(usize),
    #[error("{0}")]
    Unusable(Box<dyn std::error::Error + Send + Sync>),
}

/// The files of a port, with the authority of its clients.
#[derive(Clone, Debug)]
pub(crate) struct PortFiles {
    pub(crate) own: TlsFiles,
    pub(crate) authority: Option<PathBuf>,
}

impl PortFiles {
    /// Reads the files, and blocks the thread.
    pub(super) fn read(&self) -> FileTexts {
        FileTexts {
            certificate: read(&self.own.certificate, u64::MAX),
            key: read(&self.own.key, u64::MAX),
            authority: self.authority.as_deref().map(|path| read(path, u64::MAX)),
        }
    }

    /// Reads the files without blocking a thread of the runtime.
    pub(super) async fn read_again(&self) -> FileTexts {
        let authority = match &self.authority {
            Some(path) => Some(read_again(path, u64::MAX).await),
            None => None,
        };
        FileTexts {
            certificate: read_again(&self.own.certificate, u64::MAX).await,
            key: read_again(&self.own.key, u64::MAX).await,
            authority,
        }
    }
}

/// The bytes of the files, or the errors of reading them.
pub(super) struct FileTexts {
    certificate: io::Result<Vec<u8>>,
    key: io::Result<Vec<u8>>,
    authority: Option<io::Result<Vec<u8>>>,
}

/// A digest of the files. It differs if a file differs, and tells nothing about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FilesDigest([u8; 32]);

impl FileTexts {
    pub(super) fn digest(&self) -> FilesDigest {
        let mut digest = Sha256::new();
        for text in [Some(&self.certificate), Some(&self.key), self.authority.as_ref()] {
            match text {
                None => digest.update([0]),
                Some(Err(error)) => {
                    let text = error.to_string();
                    digest.update([1]);
                    digest.update((text.len() as u64).to_be_bytes());
                    digest.update(text);
                }
                Some(Ok(bytes)) => {
                    digest.update([2]);
                    digest.update((bytes.len() as u64).to_be_bytes());
                    digest.update(bytes);
                }
            }
        }
        FilesDigest(digest.finalize().into())
    }
}

/// A certificate of a client or of a server in the place of an authority.
struct AuthorityLeaf {
    /// The place in the file, from 1.
    number: usize,
    /// rustls accepts the certificate as that of a server, if it is also the authority.
    is_own_authority: bool,
}

/// What the files of a port contain.
pub(crate) struct Credentials {
    files: PortFiles,
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
    pub(crate) authority: Option<Arc<RootCertStore>>,
    /// The certificates in the file of authorities that are not authorities.
    leaves: Vec<AuthorityLeaf>,
    /// When the first certificate of the chain expires, in seconds since 1970.
    pub(crate) ends: u64,
}

impl Credentials {
    pub(super) fn new(files: &PortFiles, texts: FileTexts) -> Result<Credentials, TlsFileError> {
        let problem = |file, why| TlsFileError { file, path: files.path(file).to_owned(), why };
        let certificates = |file, text: io::Result<Vec<u8>>| {
            let text = text.map_err(|error| problem(file, FileProblem::Unread(error)))?;
            let all = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
            match all.map_err(|error| problem(file, FileProblem::Pem(error)))? {
                none if none.is_empty() => Err(problem(file, FileProblem::NoCertificate)),
                some => Ok(some),
            }
        };
        let unusable = |file, error: rustls::Error| problem(file, unusable(error));
        let chain = certificates(TlsFile::Certificate, texts.certificate)?;
        let ends = chain.iter().map(validity::ends).try_fold(u64::MAX, |first, ends| {
            Ok(first.min(ends.map_err(|error| unusable(TlsFile::Certificate, error))?))
        })?;
        let key = texts.key.map_err(|error| problem(TlsFile::Key, FileProblem::Unread(error)))?;
        let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| {
            let why = match error {
                pem::Error::NoItemsFound => FileProblem::NoKey,
                error => FileProblem::Pem(error),
            };
            problem(TlsFile::Key, why)
        })?;
        let mut leaves = Vec::new();
        let authority = texts.authority.map(|text| {
            let mut roots = RootCertStore::empty();
            for (number, root) in (1..).zip(certificates(TlsFile::Authority, text)?) {
                if let Ok(ends) = validity::ends(&root)
                    && judgement::is_leaf(&root, ends)
                {
                    let is_own_authority = judgement::is_own_authority(&root, ends);
                    leaves.push(AuthorityLeaf { number, is_own_authority });
                }
                roots.add(root).map_err(|error| unusable(TlsFile::Authority, error))?;
            }
            Ok(Arc::new(roots))
        });
        Ok(Credentials {
            files: files.clone(),
            chain,
            key,
            authority: authority.transpose()?,
            leaves,
            ends,
        })
    }

    /// Refuses a certificate of a client, or of a server, in the place of an authority. rustls
    /// would trust all certificates that its owner signs.
    pub(super) fn check_authorities(&self) -> Result<(), TlsFileError> {
        self.refuse_leaf(|_| true)
    }

    /// As [`Credentials::check_authorities`], but a certificate that is its own authority may stay:
    /// the nodes of a cluster may share one.
    pub(crate) fn check_authorities_of_nodes(&self) -> Result<(), TlsFileError> {
        self.refuse_leaf(|leaf| !leaf.is_own_authority)
    }

    fn refuse_leaf(&self, is_wrong: impl Fn(&AuthorityLeaf) -> bool) -> Result<(), TlsFileError> {
        let Some(leaf) = self.leaves.iter().find(|leaf| is_wrong(leaf)) else { return Ok(()) };
        let (file, why) = (TlsFile::Authority, FileProblem::NoAuthority(leaf.number));
        Err(TlsFileError { file, path: self.files.path(file).to_owned(), why })
    }

    /// Refuses a certificate that no client with rustls would accept.
    pub(super) fn check_server(&self) -> Result<(), TlsFileError> {
        let refused = |why| self.refused(TlsFile::Certificate, why);
        let Some(own) = self.chain.first() else { return Ok(()) };
        let ends =
            validity::ends(own).map_err(|error| self.refused(TlsFile::Certificate, error))?;
        judgement::check(own, ends).map_err(refused)
    }

    /// The error if rustls refuses a file.
    pub(crate) fn refused<E>(&self, file: TlsFile, error: E) -> TlsFileError
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        TlsFileError { file, path: self.files.path(file).to_owned(), why: unusable(error) }
    }

    /// The error if rustls refuses the certificate with its key.
    pub(crate) fn refused_pair(&self, error: rustls::Error) -> TlsFileError {
        match error {
            rustls::Error::InconsistentKeys(_) => TlsFileError {
                file: TlsFile::Key,
                path: self.files.own.key.clone(),
                why: FileProblem::OtherKey(self.files.own.certificate.clone()),
            },
            error => self.refused(TlsFile::Key, error),
        }
    }
}

impl PortFiles {
    fn path(&self, file: TlsFile) -> &Path {
        match file {
            TlsFile::Certificate => &self.own.certificate,
            TlsFile::Key => &self.own.key,
            TlsFile::Authority => self.authority.as_deref().unwrap_or(Path::new("")),
        }
    }
}

fn unusable(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> FileProblem {
    FileProblem::Unusable(error.into())
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
