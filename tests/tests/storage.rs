//! Every driver against the contract: each trial of `istorage-tck` is a test with the name
//! `driver::operation::case`.

use std::sync::Arc;

use istorage::{Fault, Faulty, Guarded, Metered};
use istorage_tck::{Conclusion, ScratchKeyspace, WrappedSubject, trials};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use tokio::{runtime::Runtime, sync::OnceCell};
use vvm_tests::{
    drivers::{DriverSubject, Drivers},
    subjects::Mem,
};

/// A driver, or a wrapper over one.
struct Target {
    name: &'static str,
    /// The modules of trials that run. None means all.
    modules: &'static [&'static str],
    subject: DriverSubject,
    scratch: OnceCell<Result<ScratchKeyspace, String>>,
}

impl Target {
    fn new(name: &'static str, subject: DriverSubject) -> Target {
        Target { name, modules: &[], subject, scratch: OnceCell::new() }
    }

    fn only(self, modules: &'static [&'static str]) -> Target {
        Target { modules, ..self }
    }

    async fn run(&self, trial: &istorage_tck::Trial) -> Result<Completion, Failed> {
        let subject = match &self.subject {
            DriverSubject::Ignored(why) => return Ok(Completion::ignored_with(*why)),
            DriverSubject::Available(subject) => subject,
        };
        // The first trial makes the keyspace. If that fails, all trials of the driver fail.
        let create = async || {
            let created = ScratchKeyspace::create(Arc::clone(subject)).await;
            created.map_err(|error| format!("{} cannot be reached: {error:?}", self.name))
        };
        let scratch = self.scratch.get_or_init(create).await.as_ref()?;
        match scratch.run(trial).await.conclusion {
            Conclusion::Passed => Ok(Completion::Completed),
            Conclusion::Ignored(reason) => Ok(Completion::ignored_with(reason)),
            Conclusion::Failed(why) => Err(why.into()),
        }
    }
}

/// The modules of trials in which several nodes of a cluster may see different rows.
const OF_A_CLUSTER: &[&str] =
    &["conditional", "write_if", "ordered", "linearizable", "races", "dropped", "lifecycle"];

fn targets(drivers: Drivers) -> Vec<Target> {
    let guarded =
        WrappedSubject::new(Mem::default(), |inner, clock| Arc::new(Guarded::new(inner, clock)));
    let metered = WrappedSubject::new(Mem::default(), |inner, clock| {
        Arc::new(Metered::new(inner, "mem", clock))
    });
    let faulty = WrappedSubject::new(Mem::default(), |inner, clock| {
        Arc::new(Faulty::scripted(inner, clock, |_| Fault::None))
    });
    vec![
        Target::new("mem", DriverSubject::available(Mem::default())),
        Target::new("mem+guarded", DriverSubject::available(guarded)),
        Target::new("mem+metered", DriverSubject::available(metered)),
        Target::new("mem+faulty", DriverSubject::available(faulty)),
        Target::new("redb", drivers.redb),
        Target::new("cassandra", drivers.cassandra),
        Target::new("cassandra_cluster", drivers.cassandra_cluster).only(OF_A_CLUSTER),
        Target::new("dynamodb", drivers.dynamodb),
    ]
}

fn main() -> std::process::ExitCode {
    let mut arguments = Arguments::from_args();
    // Most threads only wait: for a server, for time to pass, or for a place. Each driver has a
    // limited number of places.
    arguments.test_threads.get_or_insert(24);
    let runtime = Runtime::new().expect("a runtime needs no more than some threads");
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))
        .expect("the folder for temporary files must be writable");

    let drivers = runtime.block_on(Drivers::open(folder.path())).expect("a new file can be opened");
    let targets: Vec<Arc<Target>> = targets(drivers).into_iter().map(Arc::new).collect();
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
