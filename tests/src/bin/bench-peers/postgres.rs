//! A PostgreSQL server of its own, and clients that call a function of it over its socket.

use std::{
    collections::HashSet,
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::Duration,
};

use clock::Clock;
use tokio::process::{Child, Command};
use vvm_tests::bench::{BenchError, Sample};

use crate::Load;

/// The tables and the functions.
const SCHEMA: &str = include_str!("schema.sql");

const TABLES: &str = "partition_offsets, workspace_numbers, partition_log, workspace_log, records, \
                      events, numbered_records";

/// The longest time for the start of the server.
const START: Duration = Duration::from_secs(30);

/// Settings of a server that is not held up by its own upkeep. Commits are durable, as by default.
const SETTINGS: [&str; 5] = [
    "listen_addresses=",
    "max_connections=400",
    "shared_buffers=1GB",
    "max_wal_size=8GB",
    "logging_collector=off",
];

/// A running server.
#[derive(Debug)]
pub(crate) struct PostgresServer {
    programs: PathBuf,
    folder: PathBuf,
    workspaces: u64,
    server: Child,
}

/// A command, as a function of the schema.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PostgresFunction {
    /// The numbers have no gaps. The counters stay locked until the transaction is durable.
    Gapless,
    /// The numbers come from sequences, and have gaps.
    Sequence,
}

impl PostgresServer {
    /// Starts a server with the tables of this bench. `None` if PostgreSQL is not installed.
    pub(crate) async fn start(
        folder: &Path,
        workspaces: u64,
        settings: &[String],
        clock: &Clock,
    ) -> Result<Option<PostgresServer>, BenchError> {
        let Some(programs) = programs() else { return Ok(None) };
        let folder = folder.join("postgres");
        fs::create_dir(&folder)?;
        let user = User::of_the_server()?;
        if let Some(User { uid, gid }) = user {
            let above = folder.parent().ok_or("the folder has no parent")?;
            fs::set_permissions(above, fs::Permissions::from_mode(0o755))?;
            chown(&folder, Some(uid), Some(gid))?;
        }
        let data = folder.join("data");
        let mut init = command(&programs, "initdb", user);
        init.args(["--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-sync", "-D"]);
        succeeded(init.arg(&data).output().await?)?;
        let mut server = command(&programs, "postgres", user);
        server.arg("-D").arg(&data).arg("-k").arg(&folder);
        for setting in SETTINGS.into_iter().chain(settings.iter().map(String::as_str)) {
            server.args(["-c", setting]);
        }
        let server =
            server.stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true).spawn()?;
        let mut server = PostgresServer { programs, folder, workspaces, server };
        server.wait_until_ready(clock).await?;
        succeeded(server.sql(SCHEMA).output().await?)?;
        server.empty().await?;
        Ok(Some(server))
    }

    async fn wait_until_ready(&mut self, clock: &Clock) -> Result<(), BenchError> {
        let until = clock.now() + START;
        while !self.sql("SELECT 1").output().await?.status.success() {
            if let Some(status) = self.server.try_wait()? {
                return Err(format!("PostgreSQL ended: {status}").into());
            }
            if clock.now() > until {
                return Err(format!("PostgreSQL is not ready after {START:?}").into());
            }
            clock.sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Empties the tables, and makes a counter for each partition and each workspace. After the
    /// checkpoint the server has nothing to do while others are measured.
    async fn empty(&self) -> Result<(), BenchError> {
        let last = self.workspaces - 1;
        let counters = format!(
            "TRUNCATE {TABLES} RESTART IDENTITY; \
             INSERT INTO partition_offsets SELECT number, 0 FROM generate_series(0, 9) number; \
             INSERT INTO workspace_numbers SELECT number, 0, 0 FROM generate_series(0, {last}) number;"
        );
        for text in [&counters, "VACUUM ANALYZE", "CHECKPOINT"] {
            succeeded(self.sql(text).output().await?)?;
        }
        Ok(())
    }

    /// Runs the clients for a time on empty tables. Each client sends its next command when the one
    /// before is answered. The clients take the workspaces in turn, as those of the node, so few
    /// commands wait for the counter of a workspace.
    pub(crate) async fn measure(
        &self,
        function: PostgresFunction,
        load: Load,
    ) -> Result<Sample, BenchError> {
        let Load { clients, records, workspaces, span } = load;
        let function = match function {
            PostgresFunction::Gapless => "gapless",
            PostgresFunction::Sequence => "sequence",
        };
        let folder = tempfile::tempdir_in(&self.folder)?;
        let script = folder.path().join("command.sql");
        let text = format!(
            "\\set turn :turn + 1\n\
             \\set ws (:turn * {clients} + :client_id) % {workspaces}\n\
             SELECT {function}(:ws, {records});\n"
        );
        fs::write(&script, text)?;
        let mut bench = Command::new(self.programs.join("pgbench"));
        let (clients, threads) = (clients.to_string(), clients.min(2).to_string());
        bench.args(["-n", "-M", "prepared", "-U", "postgres", "-c", &clients, "-j", &threads]);
        bench.args(["-D", "turn=0", "-T", &span.as_secs().to_string(), "-f"]).arg(script);
        bench.arg("--log").arg("--log-prefix").arg(folder.path().join("times"));
        succeeded(bench.arg("-h").arg(&self.folder).arg("postgres").output().await?)?;
        self.empty().await?;
        let mut log = String::new();
        for file in fs::read_dir(folder.path())? {
            let file = file?;
            if file.file_name().to_string_lossy().starts_with("times") {
                log += &fs::read_to_string(file.path())?;
            }
        }
        sample(&log)
    }

    fn sql(&self, text: &str) -> Command {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args(["-q", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-c", text, "-h"]);
        psql.arg(&self.folder).arg("postgres");
        psql
    }

    /// Stops the server.
    pub(crate) async fn stop(mut self) -> Result<(), BenchError> {
        self.server.start_kill()?;
        self.server.wait().await?;
        Ok(())
    }
}

/// The figures of a log of pgbench. A line has the number of the client and of the transaction, the
/// duration in microseconds, the number of the script, and the time of the end in seconds and
/// microseconds. The first call of each client also prepares its statement, and is left out.
fn sample(log: &str) -> Result<Sample, BenchError> {
    let (mut times, mut first, mut last) = (Vec::new(), Duration::MAX, Duration::ZERO);
    let mut prepared = HashSet::new();
    for line in log.lines() {
        let fields: Result<Vec<u64>, _> = line.split(' ').map(str::parse).collect();
        let Ok([client, _, took, _, seconds, micros]) = fields.as_deref() else {
            return Err(format!("pgbench logged a line without figures: {line}").into());
        };
        if prepared.insert(*client) {
            continue;
        }
        let took = Duration::from_micros(*took);
        let end = Duration::from_secs(*seconds) + Duration::from_micros(*micros);
        (first, last) = (first.min(end - took), last.max(end));
        times.push(took);
    }
    Sample::of(times, last.saturating_sub(first))
}

/// The folder with the programs of PostgreSQL, of the newest version if there are several.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?.filter_map(Result::ok);
    let version = |folder: &fs::DirEntry| folder.file_name().to_str()?.parse::<u32>().ok();
    let (_, folder) =
        versions.filter_map(|it| Some((version(&it)?, it.path()))).max_by_key(|(it, _)| *it)?;
    let programs = folder.join("bin");
    programs.join("initdb").exists().then_some(programs)
}

/// A user of the machine.
#[derive(Clone, Copy, Debug)]
struct User {
    uid: u32,
    gid: u32,
}

impl User {
    /// The user that runs the server: PostgreSQL refuses to run as root. `None` if this user can.
    fn of_the_server() -> Result<Option<User>, BenchError> {
        if !rustix::process::getuid().is_root() {
            return Ok(None);
        }
        let users = fs::read_to_string("/etc/passwd")?;
        let entry = users.lines().find(|line| line.starts_with("postgres:"));
        let ids: Option<(u32, u32)> = entry.and_then(|line| {
            let mut fields = line.split(':').skip(2);
            Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
        });
        let (uid, gid) = ids.ok_or("there is no user `postgres`")?;
        Ok(Some(User { uid, gid }))
    }
}

fn command(programs: &Path, program: &str, user: Option<User>) -> Command {
    let mut command = Command::new(programs.join(program));
    if let Some(User { uid, gid }) = user {
        command.uid(uid).gid(gid);
    }
    command
}

fn succeeded(output: Output) -> Result<Output, BenchError> {
    match output.status.success() {
        true => Ok(output),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned().into()),
    }
}
