//! Every driver against the contract: each of the trials of `istorage-tck` is a test, as `driver::operation::case`.

use std::{
    future::{Ready, ready},
    sync::Arc,
};

use futures::{FutureExt, future::BoxFuture};
use istorage::{Fault, Faulty, Guarded, Metered};
use istorage_tck::{Conclusion, Scratch, Subject, Wrapped, trials};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use tempfile::TempDir;
use tokio::{runtime::Runtime, sync::OnceCell};
use vvm_tests::{
    servers::{CASSANDRA, CASSANDRA_CLUSTER, DYNAMODB, Server},
    subjects::{Cassandra, DynamoDb, Mem, Redb},
};

type Made = Result<Arc<dyn Subject>, String>;

/// A driver, or a wrapper over one.
struct Target {
    name: &'static str,
    /// The modules of trials that are run; none for all.
    modules: &'static [&'static str],
    /// What has to be there, and why the trials are ignored if it was not asked for.
    ignored: Option<&'static str>,
    make: Box<dyn Fn() -> BoxFuture<'static, Made> + Send + Sync>,
    scratch: OnceCell<Result<Scratch, String>>,
}

impl Target {
    fn new<F>(name: &'static str, make: impl Fn() -> F + Send + Sync + 'static) -> Target
    where
        F: Future<Output = Made> + Send + 'static,
    {
        let make = Box::new(move || make().boxed());
        Target { name, modules: &[], ignored: None, make, scratch: OnceCell::new() }
    }

    fn on(server: Server, name: &'static str, make: fn(&str) -> Arc<dyn Subject>) -> Target {
        match server.address() {
            Some(address) => Target::new(name, move || {
                let subject = make(&address);
                async { Ok(subject) }
            }),
            None => {
                let never = || async { Err("it was not asked for".to_owned()) };
                Target { ignored: Some(server.not_asked_for), ..Target::new(name, never) }
            }
        }
    }

    fn only(self, modules: &'static [&'static str]) -> Target {
        Target { modules, ..self }
    }

    /// The keyspace of its trials. The first who asks makes it; if that fails, it fails for all.
    async fn scratch(&self) -> Result<&Scratch, Failed> {
        let make = async || {
            let subject = (self.make)().await?;
            Scratch::create(subject).await.map_err(|error| format!("{error:?}"))
        };
        let made = self.scratch.get_or_init(make).await.as_ref();
        made.map_err(|error| Failed::from(format!("{} cannot be reached: {error}", self.name)))
    }

    async fn run(&self, trial: &istorage_tck::Trial) -> Result<Completion, Failed> {
        if let Some(reason) = self.ignored {
            return Ok(Completion::ignored_with(reason));
        }
        match self.scratch().await?.run(trial).await.conclusion {
            Conclusion::Passed => Ok(Completion::Completed),
            Conclusion::Ignored(reason) => Ok(Completion::ignored_with(reason)),
            Conclusion::Failed(why) => Err(why.into()),
        }
    }
}

/// What several nodes may see differently.
const OF_A_CLUSTER: &[&str] =
    &["conditional", "write_if", "ordered", "linearizable", "races", "dropped", "lifecycle"];

fn targets(folder: &TempDir) -> Vec<Target> {
    let redb = folder.path().to_owned();
    vec![
        Target::new("mem", || async { Ok(Arc::new(Mem::default()) as _) }),
        Target::new("mem+guarded", || {
            wrapped(Wrapped::new(Mem::default(), |inner, clock| {
                Arc::new(Guarded::new(inner, clock))
            }))
        }),
        Target::new("mem+metered", || {
            wrapped(Wrapped::new(Mem::default(), |inner, clock| {
                Arc::new(Metered::new(inner, "mem", clock))
            }))
        }),
        Target::new("mem+faulty", || {
            wrapped(Wrapped::new(Mem::default(), |inner, clock| {
                Arc::new(Faulty::scripted(inner, clock, |_| Fault::None))
            }))
        }),
        Target::new("redb", move || {
            let folder = redb.clone();
            async move {
                let made = Redb::open_in(&folder).await;
                made.map(|redb| Arc::new(redb) as _).map_err(|error| format!("{error:?}"))
            }
        }),
        Target::on(CASSANDRA, "cassandra", |nodes| Arc::new(Cassandra::at(nodes))),
        Target::on(CASSANDRA_CLUSTER, "cassandra-cluster", |nodes| Arc::new(Cassandra::at(nodes)))
            .only(OF_A_CLUSTER),
        Target::on(DYNAMODB, "dynamodb", |endpoint| Arc::new(DynamoDb::at(endpoint))),
    ]
}

fn wrapped(subject: Wrapped<Mem>) -> Ready<Made> {
    ready(Ok(Arc::new(subject)))
}

fn main() -> std::process::ExitCode {
    let mut arguments = Arguments::from_args();
    // Most threads only wait: for a server, for time to pass, or for a place, of which each driver has only some.
    arguments.test_threads.get_or_insert(24);
    let runtime = Runtime::new().expect("a runtime needs no more than some threads");
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))
        .expect("the folder for temporary files must be writable");

    let targets: Vec<Arc<Target>> = targets(&folder).into_iter().map(Arc::new).collect();
    let tests = targets.iter().flat_map(|target| {
        let (handle, modules) = (runtime.handle().clone(), target.modules);
        let wanted = move |trial: &&istorage_tck::Trial| {
            let module = trial.name().split("::").next().unwrap_or_default();
            modules.is_empty() || modules.contains(&module)
        };
        trials().filter(wanted).map(move |trial| {
            let (handle, target) = (handle.clone(), Arc::clone(target));
            let name = format!("{}::{}", target.name, trial.name());
            Trial::ignorable_test(name, move || handle.block_on(target.run(trial)))
        })
    });
    let conclusion = libtest_mimic::run(&arguments, tests.collect());

    let mut code = conclusion.exit_code();
    for target in targets {
        let scratch = Arc::into_inner(target).and_then(|target| target.scratch.into_inner());
        if let Some(Ok(scratch)) = scratch
            && let Err(error) = runtime.block_on(scratch.remove())
        {
            eprintln!("a keyspace was left behind: {error:?}");
            code = std::process::ExitCode::FAILURE;
        }
    }
    code
}
