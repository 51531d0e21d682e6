//! Files that an operator gives to a node, and may exchange while the node runs.
//!
//! Only regular files are read. The read of a pipe does not end until somebody writes into it, and
//! the node would stop looking at its files.

use std::{
    fs::{self, Metadata},
    io::{self, Read as _},
    path::Path,
    time::Duration,
};

use clock::Clock;
use tokio::io::AsyncReadExt as _;

/// How long a read may take before the node reports it.
pub(crate) const READ_TIME: Duration = Duration::from_secs(10);

/// Reads a file, and blocks the thread. A file that is larger than `most_bytes` is refused.
pub(crate) fn read(path: &Path, most_bytes: u64) -> io::Result<Vec<u8>> {
    check(&fs::metadata(path)?)?;
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(most_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    up_to(most_bytes, bytes)
}

/// Reads a file as [`read`] does, without blocking a thread of the runtime. The file may be on
/// another machine that does not answer. There is no time limit: each further try would hold one
/// more thread.
pub(crate) async fn read_again(path: &Path, most_bytes: u64) -> io::Result<Vec<u8>> {
    check(&tokio::fs::metadata(path).await?)?;
    let mut bytes = Vec::new();
    let file = tokio::fs::File::open(path).await?;
    file.take(most_bytes.saturating_add(1)).read_to_end(&mut bytes).await?;
    up_to(most_bytes, bytes)
}

fn up_to(most_bytes: u64, bytes: Vec<u8>) -> io::Result<Vec<u8>> {
    match bytes.len() as u64 > most_bytes {
        true => Err(io::Error::other(format!("it is larger than {most_bytes} bytes"))),
        false => Ok(bytes),
    }
}

/// Waits for the end of a read. Calls `is_late` once if the read takes longer than [`READ_TIME`].
pub(crate) async fn reported_if_late<T>(
    clock: &Clock,
    read: impl Future<Output = T>,
    is_late: impl FnOnce(),
) -> T {
    let mut read = std::pin::pin!(read);
    match clock.timeout_at(clock.now() + READ_TIME, read.as_mut()).await {
        Ok(read) => read,
        Err(_) => {
            is_late();
            read.await
        }
    }
}

fn check(file: &Metadata) -> io::Result<()> {
    match file.is_file() {
        true => Ok(()),
        false => Err(io::Error::other("it is not a regular file")),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// The read of a pipe did not end: a node hung at its start, or stopped looking at its files.
    #[tokio::test]
    async fn a_pipe_is_refused_at_once_and_a_link_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, file) = (folder.path().join("pipe"), folder.path().join("file"));
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        fs::write(&file, "12345").unwrap();
        for path in [pipe.as_path(), folder.path()] {
            let refused = [read(path, 9), read_again(path, 9).await];
            for refused in refused {
                let why = refused.unwrap_err().to_string();
                assert!(why.contains("not a regular file"), "{why}");
            }
        }
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(read(&link, 9).unwrap(), b"12345");
        assert_eq!(read_again(&link, 5).await.unwrap(), b"12345");
    }

    /// The first bytes of a large file were read, and reported as a file that ends too early.
    #[tokio::test]
    async fn a_file_that_is_too_large_is_refused_by_its_size() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "12345").unwrap();
        for refused in [read(&file, 4), read_again(&file, 4).await] {
            assert_eq!(refused.unwrap_err().to_string(), "it is larger than 4 bytes");
        }
    }
}
