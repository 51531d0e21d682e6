//! The library that is preloaded into nodes, the file that tells it what is wrong, and the links
//! to which it leads connections.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::network::Link;

/// The variable with the file.
pub(crate) const FAULTS: &str = "ROUNDS_FAULTS";

/// The variable with the links, as [`redirections`] writes them.
pub(crate) const LINKS: &str = "ROUNDS_LINKS";

/// Compiles the library. `None` if this machine has no C compiler.
pub(crate) fn compile(folder: &Path) -> io::Result<Option<PathBuf>> {
    let (source, library) = (folder.join("shim.c"), folder.join("shim.so"));
    std::fs::write(&source, include_str!("shim.c"))?;
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O2", "-o"]).arg(&library).arg(&source);
    match compiler.status() {
        Ok(status) if status.success() => Ok(Some(library)),
        Ok(status) => Err(io::Error::other(format!("cc: {status}"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes that a connection to the server of a link goes to the link. The library reads at most 16
/// links, with IPv4 addresses.
pub(crate) fn redirections(links: &[Link]) -> String {
    let pairs = links.iter().map(|link| format!("{}={}", link.server, link.address));
    pairs.collect::<Vec<_>>().join(" ")
}

/// The file that a node maps.
pub(crate) struct ShimFile {
    path: PathBuf,
    file: File,
}

impl ShimFile {
    pub(crate) fn create(path: &Path) -> io::Result<ShimFile> {
        let file = File::create(path)?;
        file.set_len(16)?;
        Ok(ShimFile { path: path.to_owned(), file })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Sets how far the wall clock is ahead, or behind.
    pub(crate) fn set_clock(&self, off: Duration, is_ahead: bool) -> io::Result<()> {
        let nanos = i64::try_from(off.as_nanos()).map_err(io::Error::other)?;
        self.file.write_all_at(&(if is_ahead { nanos } else { -nanos }).to_ne_bytes(), 0)
    }

    pub(crate) fn set_full(&self, is_full: bool) -> io::Result<()> {
        self.file.write_all_at(&i64::from(is_full).to_ne_bytes(), 8)
    }
}

#[cfg(test)]
mod tests {
    use std::{net::SocketAddr, process::Stdio};

    use clock::Clock;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream},
        process::Command,
        task::JoinSet,
    };

    use super::*;
    use crate::network::Traffic;

    /// The other process. It connects to a server, and prints what the server sends.
    #[tokio::test]
    #[ignore = "the other process; the test below starts it"]
    #[expect(clippy::disallowed_methods, reason = "the test tells the process what to do")]
    async fn child() {
        let server = std::env::var("SERVER").unwrap();
        let mut stream = TcpStream::connect(server).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        print!("{text}");
    }

    /// A server that sends its name over each connection.
    async fn server(servers: &mut JoinSet<()>, name: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        servers.spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.write_all(name.as_bytes()).await;
            }
        });
        address
    }

    /// What a process with the library gets from a server.
    async fn got(library: &Path, links: &[Link], server: SocketAddr) -> String {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["shim::tests::child", "--exact", "--ignored", "--nocapture"])
            .env("LD_PRELOAD", library)
            .env(LINKS, redirections(links))
            .env("SERVER", server.to_string())
            .stderr(Stdio::null())
            .output();
        String::from_utf8(output.await.unwrap().stdout).unwrap()
    }

    #[tokio::test]
    async fn connections_to_a_server_go_over_its_link() {
        let folder = tempfile::tempdir().unwrap();
        let Some(library) = compile(folder.path()).unwrap() else { return };
        let clock = Clock::system();
        let mut servers = JoinSet::new();
        let first = server(&mut servers, "<first>").await;
        let second = server(&mut servers, "<second>").await;
        let other = server(&mut servers, "<other>").await;
        let links =
            [Link::start(first, &clock).await.unwrap(), Link::start(second, &clock).await.unwrap()];
        assert!(got(&library, &links, second).await.contains("<second>"));
        assert!(!links[0].was_used() && links[1].was_used());
        assert!(got(&library, &links, other).await.contains("<other>"));
        assert!(!links[0].was_used(), "no link leads to the other server");
        links[0].set(Traffic::Cut);
        let cut = got(&library, &links, first).await;
        assert!(links[0].was_used() && !cut.contains("<first>"), "{cut}");
        links[0].set(Traffic::WHOLE);
        assert!(got(&library, &links, first).await.contains("<first>"));
    }
}
