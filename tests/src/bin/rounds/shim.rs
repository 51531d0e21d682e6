//! The library that is preloaded into nodes, the file that tells it what is wrong, and the links
//! that it leads connections to.

use std::{
    fmt,
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

/// What a full disk still takes. Anything else fails with `ENOSPC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FullDisk {
    /// No write at all, as on file systems that never write in place, such as Btrfs.
    Nothing,
    /// Writes to blocks that a file has already. Holes, new blocks and larger sizes are refused.
    Blocks,
    /// These writes, and a larger size without blocks, as on ext4 and XFS.
    Sizes,
}

impl FullDisk {
    pub(crate) const ALL: [FullDisk; 3] = [FullDisk::Nothing, FullDisk::Blocks, FullDisk::Sizes];

    /// The value in the file, as `enum space` of the library has it.
    fn code(self) -> i64 {
        match self {
            FullDisk::Nothing => 1,
            FullDisk::Blocks => 2,
            FullDisk::Sizes => 3,
        }
    }
}

impl fmt::Display for FullDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FullDisk::Nothing => "takes nothing",
            FullDisk::Blocks => "takes blocks",
            FullDisk::Sizes => "takes blocks and sizes",
        })
    }
}

/// The places of the numbers in the file, as the library has them.
const CLOCK: u64 = 0;
const SPACE: u64 = 1;
const CLOCK_WAS_READ: u64 = 2;
const HAS_REFUSED: u64 = 3;

/// The file that a node maps.
pub(crate) struct ShimFile {
    path: PathBuf,
    file: File,
}

impl ShimFile {
    pub(crate) fn create(path: &Path) -> io::Result<ShimFile> {
        let file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
        file.set_len(32)?;
        Ok(ShimFile { path: path.to_owned(), file })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Sets how far the wall clock is ahead, or behind.
    pub(crate) fn set_clock(&self, off: Duration, is_ahead: bool) -> io::Result<()> {
        let nanos = i64::try_from(off.as_nanos()).map_err(io::Error::other)?;
        if nanos != 0 {
            self.put(CLOCK_WAS_READ, 0)?;
        }
        self.put(CLOCK, if is_ahead { nanos } else { -nanos })
    }

    /// Lets the disk be full in this way, or `None` for a disk with space.
    pub(crate) fn set_full(&self, full: Option<FullDisk>) -> io::Result<()> {
        if full.is_some() {
            self.put(HAS_REFUSED, 0)?;
        }
        self.put(SPACE, full.map_or(0, FullDisk::code))
    }

    /// Whether the node has read the clock that was set last.
    pub(crate) fn clock_was_read(&self) -> io::Result<bool> {
        self.has(CLOCK_WAS_READ)
    }

    /// Whether the disk that was full last has refused something.
    pub(crate) fn has_refused(&self) -> io::Result<bool> {
        self.has(HAS_REFUSED)
    }

    fn put(&self, place: u64, number: i64) -> io::Result<()> {
        self.file.write_all_at(&number.to_ne_bytes(), place * 8)
    }

    fn has(&self, place: u64) -> io::Result<bool> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, place * 8)?;
        Ok(i64::from_ne_bytes(bytes) != 0)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Seek, SeekFrom},
        net::SocketAddr,
        process::Stdio,
    };

    use clock::Clock;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream},
        process::Command,
        task::JoinSet,
    };

    use super::*;
    use crate::network::Traffic;

    const BLOCK: usize = 4_096;

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

    /// The other process. It writes to the files that [`files`] makes, and prints what it can do.
    #[test]
    #[ignore = "the other process; the test below starts it"]
    #[expect(clippy::disallowed_methods, reason = "the test tells the process what to do")]
    fn writer() {
        let folder = PathBuf::from(std::env::var("FOLDER").unwrap());
        let open = |name: &str| {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(false);
            options.open(folder.join(name)).unwrap()
        };
        let print = |what: &str, done: io::Result<usize>| match done {
            // The harness may have begun a line.
            Ok(count) => println!("\n> {what}: {count}"),
            Err(error) => println!("\n> {what}: {:?}", error.kind()),
        };
        let mut file = open("holes");
        file.seek(SeekFrom::Start(7)).unwrap();
        let bytes = vec![1; 2 * BLOCK];
        let at = |block: u64| block * BLOCK as u64;
        print("overwrite", file.write_at(&bytes, at(0)));
        print("to the hole", file.write_at(&bytes, at(2)));
        print("hole", file.write_at(&bytes, at(4)));
        print("last block", file.write_at(&bytes[..10], at(8) + 100));
        print("end", file.write_at(&bytes, at(9)));
        print("position", file.stream_position().map(|at| at as usize));
        print("larger", file.set_len(at(12)).map(|()| 0));
        print("new space", file.write_at(&bytes, at(10)));
        print("smaller", open("smaller").set_len(at(1)).map(|()| 0));
        print("new file", open("new").write_at(&bytes, 0));
    }

    /// A file with three blocks, a hole, a block from `8 * BLOCK` on that has 100 bytes, and
    /// nothing more; and another file.
    fn files(folder: &Path) {
        let file = File::create(folder.join("holes")).unwrap();
        file.write_all_at(&[7; 3 * BLOCK], 0).unwrap();
        file.write_all_at(&[7; 100], 8 * BLOCK as u64).unwrap();
        file.sync_all().unwrap();
        std::fs::write(folder.join("smaller"), [7; 2 * BLOCK]).unwrap();
    }

    /// What a process can write while the disk is in this state.
    async fn written(library: &Path, full: Option<FullDisk>) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        files(folder.path());
        let faults = ShimFile::create(&folder.path().join("faults")).unwrap();
        faults.set_full(full).unwrap();
        let program = |program: &Path| {
            let mut command = Command::new(program);
            command.env("LD_PRELOAD", library).env(FAULTS, faults.path());
            command.env("FOLDER", folder.path()).stderr(Stdio::null());
            command
        };
        let output = program(&std::env::current_exe().unwrap())
            .args(["shim::tests::writer", "--exact", "--ignored", "--nocapture"])
            .output();
        let text = String::from_utf8(output.await.unwrap().stdout).unwrap();
        let lines = text.lines().filter_map(|line| line.strip_prefix("> "));
        let mut lines: Vec<String> = lines.map(str::to_owned).collect();
        for (what, offset, length) in [("reserved", 0, BLOCK), ("more", 4 * BLOCK, BLOCK)] {
            let (offset, length) = (offset.to_string(), length.to_string());
            let mut command = program(Path::new("fallocate"));
            command.args(["-n", "-o", &offset, "-l", &length]).arg(folder.path().join("holes"));
            let is_done = command.status().await.unwrap().success();
            lines.push(format!("{what}: {is_done}"));
        }
        lines
    }

    #[tokio::test]
    async fn a_full_disk_takes_what_needs_no_new_block() {
        let folder = tempfile::tempdir().unwrap();
        let Some(library) = compile(folder.path()).unwrap() else { return };
        let all = [
            "overwrite: 8192",
            "to the hole: 8192",
            "hole: 8192",
            "last block: 10",
            "end: 8192",
            "position: 7",
            "larger: 0",
            "new space: 8192",
            "smaller: 0",
            "new file: 8192",
            "reserved: true",
            "more: true",
        ];
        assert_eq!(written(&library, None).await, all);
        let blocks = [
            "overwrite: 8192",
            "to the hole: 4096",
            "hole: StorageFull",
            "last block: 10",
            "end: StorageFull",
            "position: 7",
            "larger: StorageFull",
            "new space: StorageFull",
            "smaller: 0",
            "new file: StorageFull",
            "reserved: true",
            "more: false",
        ];
        assert_eq!(written(&library, Some(FullDisk::Blocks)).await, blocks);
        let mut sizes = blocks;
        sizes[6] = "larger: 0";
        assert_eq!(written(&library, Some(FullDisk::Sizes)).await, sizes);
        let mut nothing = blocks;
        nothing[0] = "overwrite: StorageFull";
        nothing[1] = "to the hole: StorageFull";
        nothing[3] = "last block: StorageFull";
        nothing[10] = "reserved: false";
        assert_eq!(written(&library, Some(FullDisk::Nothing)).await, nothing);
    }

    #[tokio::test]
    async fn a_disk_is_full_only_until_the_fault_is_over() {
        let folder = tempfile::tempdir().unwrap();
        let Some(library) = compile(folder.path()).unwrap() else { return };
        let faults = ShimFile::create(&folder.path().join("faults")).unwrap();
        faults.set_full(Some(FullDisk::Blocks)).unwrap();
        let grow = async || {
            let mut command = Command::new("truncate");
            command.args(["-s", "8192"]).arg(folder.path().join("file"));
            command.env("LD_PRELOAD", &library).env(FAULTS, faults.path()).stderr(Stdio::null());
            command.status().await.unwrap().success()
        };
        assert!(!faults.has_refused().unwrap());
        assert!(!grow().await);
        faults.set_full(None).unwrap();
        assert!(grow().await && faults.has_refused().unwrap());
        faults.set_full(Some(FullDisk::Sizes)).unwrap();
        assert!(grow().await && !faults.has_refused().unwrap(), "it took all");
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
