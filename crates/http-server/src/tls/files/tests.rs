use super::*;

impl FilesDigest {
    /// The digest of files with this text.
    pub(in crate::tls) fn of_text(text: &str) -> FilesDigest {
        FilesDigest(Sha256::digest(text).into())
    }
}
