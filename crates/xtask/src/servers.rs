//! Real servers for tests, without containers, from the files in `tests/servers`.
//!
//! All state is in folders below `run` in the cache. `run/up` belongs to [`up`], and its servers
//! outlive the command. Each command that starts servers for itself has a folder of its own
//! ([`OwnServers`]). The folder of a server holds the folders of its nodes and, once the server is
//! ready, the file `address`.
//!
//! No server outlives its purpose. A command holds a lock while it runs. The next command finds the
//! servers of a command that was killed, because the lock of that command is free, and stops them.

mod cassandra;
mod dynamodb;
mod environment;
mod java;
mod node;
pub(crate) mod ports;
mod probe;

use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    thread,
    time::Instant,
};

use crate::{
    error::{Error, ErrorContext, Result, failed},
    folders, interrupt,
};

/// A kind of server that tests can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerKind {
    /// One Apache Cassandra node.
    Cassandra,
    /// Three Apache Cassandra nodes that form a cluster.
    Cluster,
    /// DynamoDB Local.
    Dynamodb,
}

impl ServerKind {
    pub(crate) const ALL: [ServerKind; 3] =
        [ServerKind::Cassandra, ServerKind::Cluster, ServerKind::Dynamodb];

    fn name(self) -> &'static str {
        match self {
            ServerKind::Cassandra => "cassandra",
            ServerKind::Cluster => "cluster",
            ServerKind::Dynamodb => "dynamodb",
        }
    }

    /// Returns the name of its storage in the arguments of programs.
    pub(crate) fn driver(self) -> &'static str {
        match self {
            ServerKind::Cassandra => "cassandra",
            ServerKind::Cluster => "cassandra_cluster",
            ServerKind::Dynamodb => "dynamodb",
        }
    }

    /// Returns the environment variable that tells tests where the server is.
    pub(crate) fn variable(self) -> &'static str {
        match self {
            ServerKind::Cassandra => "VVM_TEST_CASSANDRA",
            ServerKind::Cluster => "VVM_TEST_CASSANDRA_CLUSTER",
            ServerKind::Dynamodb => "VVM_TEST_DYNAMODB",
        }
    }

    /// Starts the server with its data in `folder`, which does not exist yet. Returns the address
    /// when the server is ready.
    fn start(self, folder: &Path, purpose: Purpose) -> Result<String> {
        let started = Instant::now();
        fs::create_dir_all(folder).context(folder.display())?;
        let address = match self {
            ServerKind::Cassandra => cassandra::start_single(folder, purpose),
            ServerKind::Cluster => cassandra::start_cluster(folder, purpose),
            ServerKind::Dynamodb => dynamodb::start(folder, purpose),
        }?;
        fs::write(folder.join("address"), &address)
            .context("cannot write the file with the address")?;
        eprintln!("[{}] ready at {address} after {} s", self.name(), started.elapsed().as_secs());
        Ok(address)
    }
}

/// What servers are started for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// Suites, and people who try something.
    Tests,
    /// Rounds of faults that kill servers.
    Rounds,
    /// Measurements.
    Measurements,
}

impl Purpose {
    /// Returns the lines of the configuration of a Cassandra server that say when it writes its
    /// commit log to the disk: now and then, as it does by default, or before it acknowledges a
    /// write. Otherwise a server that is killed may lose the writes that it acknowledged in the
    /// last moment.
    fn commit_log(self) -> &'static str {
        match self {
            Purpose::Rounds => "commitlog_sync: batch",
            _ => "commitlog_sync: periodic\ncommitlog_sync_period: 10000ms",
        }
    }

    /// Returns the options of Java. The servers of tests live for some minutes. The optimizing
    /// compiler took a quarter of their time of the processors, which suites need, and they
    /// answered slowly until it was done.
    fn java_options(self) -> &'static [&'static str] {
        match self {
            Purpose::Tests => &["-XX:TieredStopAtLevel=1"],
            _ => &[],
        }
    }
}

/// The variables that tell tests the addresses of the servers.
pub(crate) type Variables = Vec<(&'static str, String)>;

/// Starts the servers that do not run yet, and leaves them running.
pub(crate) fn up(kinds: &[ServerKind]) -> Result<Variables> {
    let run = run_folder()?;
    let _lock = lock(&run.join("up.lock"))?;
    sweep(&run)?;
    let (mut variables, missing) = environment::split_by_environment(kinds)?;
    let folder = run.join("up");
    let mut to_start = Vec::new();
    for kind in missing {
        match running_address(&folder.join(kind.name())) {
            Some(address) => variables.push((kind.variable(), address)),
            None => to_start.push(kind),
        }
    }
    for kind in &to_start {
        stop_server(&folder.join(kind.name()))?;
    }
    match start_all(&to_start, &folder, Purpose::Tests) {
        Ok(started) => variables.extend(started),
        Err(error) => {
            for kind in &to_start {
                stop_server(&folder.join(kind.name()))?;
            }
            return Err(error);
        }
    }
    variables.sort_unstable();
    Ok(variables)
}

/// Stops the servers that [`up`] started, and the servers that killed commands left behind.
pub(crate) fn down() -> Result<()> {
    let run = run_folder()?;
    let _lock = lock(&run.join("up.lock"))?;
    sweep(&run)?;
    stop_all(&run.join("up"))
}

/// The servers of one command. They are stopped and removed when the value is dropped.
pub(crate) struct OwnServers {
    folder: PathBuf,
    lock_path: PathBuf,
    _lock: File,
}

impl OwnServers {
    /// Makes a place for servers, and starts none.
    pub(crate) fn new() -> Result<OwnServers> {
        let run = run_folder()?;
        // A new lock file is not held for a moment. During that moment another command could take
        // it for the lock file of a killed command. This lock prevents that.
        let _sweep_lock = lock(&run.join("sweep.lock"))?;
        let name = format!("own-{}", std::process::id());
        let lock_path = run.join(format!("{name}.lock"));
        let lock = lock(&lock_path)?;
        Ok(OwnServers { folder: run.join(name), lock_path, _lock: lock })
    }

    /// Starts these kinds at the same time, except those with an address in the environment.
    pub(crate) fn start(&self, kinds: &[ServerKind], purpose: Purpose) -> Result<Variables> {
        sweep(&run_folder()?)?;
        let (mut variables, missing) = environment::split_by_environment(kinds)?;
        variables.extend(start_all(&missing, &self.folder, purpose)?);
        Ok(variables)
    }

    /// Fails if a process of the servers has ended, and says so with the end of its log. Without
    /// this, a run in which a server died shows only the many tests that missed it.
    pub(crate) fn check(&self) -> Result<()> {
        let mut ended = Vec::new();
        for server in subfolders(&self.folder)? {
            ended.extend(node_folders(&server)?.iter().filter_map(|node| node::ended(node)));
        }
        match ended.as_slice() {
            [] => Ok(()),
            _ => failed(ended.join("\n")),
        }
    }
}

impl Drop for OwnServers {
    fn drop(&mut self) {
        if self.folder.exists() {
            eprintln!("[servers] stopping");
        }
        match stop_all(&self.folder) {
            Ok(()) => drop(fs::remove_file(&self.lock_path)),
            Err(error) => eprintln!("{error}"),
        }
    }
}

/// Stops the processes whose ids are noted in these folders.
pub(crate) fn stop_processes(folders: &[PathBuf]) -> Result<()> {
    node::stop(folders)
}

fn run_folder() -> Result<PathBuf> {
    let folder = folders::cache()?.join("run");
    fs::create_dir_all(&folder).context(folder.display())?;
    Ok(folder)
}

/// Waits for the lock, and holds it until the file is dropped. The end of the process drops the
/// file, too.
fn lock(path: &Path) -> Result<File> {
    let file = File::create(path).context(path.display())?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => interrupt::pause()?,
            Err(TryLockError::Error(error)) => return Err(error).context(path.display()),
        }
    }
}

/// Stops the servers of commands that were killed.
fn sweep(run: &Path) -> Result<()> {
    let _sweep_lock = lock(&run.join("sweep.lock"))?;
    for entry in fs::read_dir(run).context(run.display())? {
        let path = entry.context(run.display())?.path();
        let is_own =
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("own-"));
        if !is_own || path.extension().is_none_or(|extension| extension != "lock") {
            continue;
        }
        let file = File::open(&path).context(path.display())?;
        if file.try_lock().is_ok() {
            stop_all(&path.with_extension(""))?;
            fs::remove_file(&path).context(path.display())?;
        }
    }
    Ok(())
}

/// Starts servers at the same time. If one fails, the others give up, and the caller stops the
/// servers that were started.
fn start_all(kinds: &[ServerKind], folder: &Path, purpose: Purpose) -> Result<Variables> {
    let results = thread::scope(|scope| {
        let start = |kind: ServerKind| {
            let result = kind.start(&folder.join(kind.name()), purpose);
            if result.is_err() {
                interrupt::give_up();
            }
            result.map(|address| (kind.variable(), address))
        };
        let threads =
            kinds.iter().map(|&kind| scope.spawn(move || start(kind))).collect::<Vec<_>>();
        let panicked = || failed("a thread that started a server panicked");
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| panicked()))
            .collect::<Vec<_>>()
    });
    // The first error made the other servers give up, so it comes before their errors.
    let (started, mut errors): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
    errors.sort_by_key(|result| matches!(result, Err(Error::Interrupted)));
    errors.into_iter().chain(started).collect()
}

/// Returns the address of a server if all its nodes run.
fn running_address(server: &Path) -> Option<String> {
    let address = fs::read_to_string(server.join("address")).ok()?;
    let nodes = node_folders(server).ok()?;
    nodes.iter().all(|folder| node::running(folder).is_some()).then_some(address)
}

fn node_folders(server: &Path) -> Result<Vec<PathBuf>> {
    Ok(subfolders(server)?.into_iter().filter(|folder| folder.join("pid").exists()).collect())
}

fn subfolders(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).context(folder.display()),
    };
    let paths =
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>();
    Ok(paths.context(folder.display())?.into_iter().filter(|path| path.is_dir()).collect())
}

/// Stops the servers below a folder at the same time, and removes the folder.
fn stop_all(folder: &Path) -> Result<()> {
    let nodes = subfolders(folder)?
        .iter()
        .map(|server| node_folders(server))
        .collect::<Result<Vec<_>>>()?;
    node::stop(&nodes.concat())?;
    remove(folder)
}

fn stop_server(folder: &Path) -> Result<()> {
    node::stop(&node_folders(folder)?)?;
    remove(folder)
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).context(folder.display())
        }
        _ => Ok(()),
    }
}

/// The files of the repository for a server, and the programs that run it.
struct DataFiles {
    folder: PathBuf,
    java: PathBuf,
    jars: PathBuf,
}

impl DataFiles {
    /// Fetches the files that are missing.
    fn prepare(name: &str) -> Result<DataFiles> {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = folders::root()?.join("tests/servers").join(name);
        let java = java::java()?;
        let jars = java::jars(&java, name, &folder.join("pom.xml"))?;
        Ok(DataFiles { folder, java, jars })
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    fn class_path(&self) -> String {
        self.jars.join("*").display().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_with_a_dead_node_does_not_run() {
        let server = tempfile::tempdir().unwrap();
        fs::write(server.path().join("address"), "127.0.0.1:1").unwrap();
        let node = server.path().join("node1");
        fs::create_dir(&node).unwrap();
        fs::write(node.join("pid"), std::process::id().to_string()).unwrap();
        assert_eq!(running_address(server.path()), None);
        stop_server(server.path()).unwrap();
        assert!(!server.path().exists());
        stop_server(server.path()).unwrap();
    }

    /// All tests with the cluster failed once, and nothing told why.
    #[test]
    fn a_server_that_has_ended_is_reported_with_its_log() {
        let run = tempfile::tempdir().unwrap();
        let (folder, lock_path) = (run.path().join("own-1"), run.path().join("own-1.lock"));
        let lock = lock(&lock_path).unwrap();
        let servers = OwnServers { folder: folder.clone(), lock_path, _lock: lock };
        servers.check().unwrap();
        let node = folder.join("cluster/node2");
        fs::create_dir_all(&node).unwrap();
        // This process is not the node: its command line has another folder.
        fs::write(node.join("pid"), std::process::id().to_string()).unwrap();
        fs::write(node.join("log"), "Terminating due to java.lang.OutOfMemoryError\n").unwrap();
        let error = servers.check().unwrap_err().to_string();
        assert!(error.contains("[cluster] node2 has ended\nTerminating due to"), "{error}");
    }

    #[test]
    fn only_servers_of_killed_commands_are_swept() {
        let run = tempfile::tempdir().unwrap();
        for name in ["own-1", "own-2"] {
            fs::create_dir_all(run.path().join(name).join("cassandra/node1")).unwrap();
            fs::write(run.path().join(format!("{name}.lock")), "").unwrap();
        }
        let _living = lock(&run.path().join("own-2.lock")).unwrap();
        sweep(run.path()).unwrap();
        assert!(!run.path().join("own-1").exists() && !run.path().join("own-1.lock").exists());
        assert!(
            run.path().join("own-2/cassandra").exists() && run.path().join("own-2.lock").exists()
        );
    }
}
