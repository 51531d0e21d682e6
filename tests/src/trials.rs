//! Trials that run on every driver.

use std::{fmt::Display, marker::PhantomData, process::ExitCode, sync::Arc};

use async_trait::async_trait;
use clock::Clock;
use libtest_mimic::Arguments;
use tck::{
    storage::{ScratchKeyspace, Subject},
    trial::{Conclusion, Trial, TrialRunner, harness, is_long},
};
use tokio::{runtime::Runtime, sync::OnceCell};

use crate::drivers::{DriverSubject, Drivers};

/// The result of making or removing things in a database.
pub type SetupResult<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The runner of the trials on one driver.
#[async_trait]
pub trait DriverRunner: TrialRunner + Send + Sized + 'static {
    /// Makes what all trials on the driver share.
    ///
    /// # Errors
    /// The errors of the storage.
    async fn new(subject: Arc<dyn Subject>) -> SetupResult<Self>;

    /// Drops everything that was made in the database.
    ///
    /// # Errors
    /// The errors of the storage.
    async fn remove(self) -> SetupResult<()>;
}

#[async_trait]
impl DriverRunner for ScratchKeyspace {
    async fn new(subject: Arc<dyn Subject>) -> SetupResult<ScratchKeyspace> {
        Ok(ScratchKeyspace::create(subject).await?)
    }

    async fn remove(self) -> SetupResult<()> {
        Ok(ScratchKeyspace::remove(self).await?)
    }
}

/// The database of one trial on one driver, and everything that the trial needs in it.
#[async_trait]
pub trait Fixture: Sized + Send + Sync + 'static {
    /// Makes an empty fixture.
    ///
    /// # Errors
    /// The errors of the storage.
    async fn new(subject: Arc<dyn Subject>) -> istorage::Result<Self>;

    /// Drops everything that was made in the database, even after a trial that failed.
    ///
    /// # Errors
    /// The errors of the storage.
    async fn remove(self) -> istorage::Result<()>;
}

/// Runs each trial on a fixture of its own.
#[expect(missing_debug_implementations, reason = "a `Subject` has none")]
pub struct OwnFixtures<F> {
    subject: Arc<dyn Subject>,
    fixtures: PhantomData<fn() -> F>,
}

#[async_trait]
impl<F: Fixture> TrialRunner for OwnFixtures<F> {
    type Context = F;

    async fn run(&self, trial: &Trial<F>) -> Conclusion {
        let failed =
            |what: &str, error: &dyn Display| Conclusion::Failed(format!("{what}: {error}"));
        let fixture = match F::new(Arc::clone(&self.subject)).await {
            Ok(fixture) => fixture,
            Err(error) => return failed("the fixture cannot be made", &error),
        };
        // The trial runs on the thread of its test, because it may block its thread.
        let conclusion = trial.call(&fixture).await.into();
        match (fixture.remove().await, conclusion) {
            (Err(error), Conclusion::Passed) => failed("the fixture cannot be removed", &error),
            (_, conclusion) => conclusion,
        }
    }
}

#[async_trait]
impl<F: Fixture> DriverRunner for OwnFixtures<F> {
    async fn new(subject: Arc<dyn Subject>) -> SetupResult<OwnFixtures<F>> {
        Ok(OwnFixtures { subject, fixtures: PhantomData })
    }

    async fn remove(self) -> SetupResult<()> {
        Ok(())
    }
}

/// A server, as the fixture of trials that remove everything that they make.
#[expect(missing_debug_implementations, reason = "a `Subject` has none")]
pub struct ServerFixture {
    /// The database that nodes are connected to.
    pub subject: Arc<dyn Subject>,
    /// The clock of the nodes.
    pub clock: Clock,
}

#[async_trait]
impl Fixture for ServerFixture {
    async fn new(subject: Arc<dyn Subject>) -> istorage::Result<ServerFixture> {
        Ok(ServerFixture { clock: subject.clock(), subject })
    }

    async fn remove(self) -> istorage::Result<()> {
        Ok(())
    }
}

/// A driver that trials run on. The first trial makes the runner. If that fails, all trials of the
/// driver fail.
#[expect(missing_debug_implementations, reason = "a `Subject` has none")]
pub struct Target<R> {
    name: &'static str,
    /// The modules of trials that run. None means all.
    modules: &'static [&'static str],
    /// The modules of trials that do not run.
    left_out: &'static [&'static str],
    subject: DriverSubject,
    runner: OnceCell<Result<R, String>>,
}

impl<R: DriverRunner> Target<R> {
    /// All trials on this driver. The names of the tests begin with `name`.
    #[must_use]
    pub fn new(name: &'static str, subject: DriverSubject) -> Target<R> {
        Target { name, modules: &[], left_out: &[], subject, runner: OnceCell::new() }
    }

    /// Only the trials of these modules.
    #[must_use]
    pub fn only(self, modules: &'static [&'static str]) -> Target<R> {
        Target { modules, ..self }
    }

    /// Not the trials of these modules.
    #[must_use]
    pub fn without(self, left_out: &'static [&'static str]) -> Target<R> {
        Target { left_out, ..self }
    }

    fn has(&self, trial: &Trial<R::Context>) -> bool {
        let module = trial.name().split("::").next().unwrap_or_default();
        let is_wanted = self.modules.is_empty() || self.modules.contains(&module);
        is_wanted && !self.left_out.contains(&module)
    }
}

#[async_trait]
impl<R: DriverRunner> TrialRunner for Target<R> {
    type Context = R::Context;

    async fn run(&self, trial: &Trial<R::Context>) -> Conclusion {
        let subject = match &self.subject {
            DriverSubject::Ignored(why) => return Conclusion::Ignored(why),
            DriverSubject::Available(subject) => subject,
        };
        let create = async || {
            let created = R::new(Arc::clone(subject)).await;
            created.map_err(|error| format!("{} cannot be used: {error:?}", self.name))
        };
        match self.runner.get_or_init(create).await {
            Ok(runner) => runner.run(trial).await,
            Err(why) => Conclusion::Failed(why.clone()),
        }
    }
}

/// All storages: for suites where several servers prove nothing beyond the suites of storages and
/// of elections. So a cluster runs them only in a long run.
#[must_use]
pub fn on_all_storages<R: DriverRunner>(drivers: Drivers) -> Vec<Target<R>> {
    let mut targets = vec![
        Target::new("mem", drivers.mem),
        Target::new("redb", drivers.redb),
        Target::new("cassandra", drivers.cassandra),
        Target::new("dynamodb", drivers.dynamodb),
    ];
    if is_long() {
        targets.push(Target::new("cassandra_cluster", drivers.cassandra_cluster));
    }
    targets
}

/// Runs trials on the chosen drivers. Each trial is a test with the name `driver::trial`. Files are
/// made in `folder`. Without an argument of the command line, `threads` tests run at once, or one
/// for each processor.
///
/// # Panics
/// If the runtime, or a file of redb, cannot be made.
pub fn run_trials<R: DriverRunner>(
    folder: &str,
    threads: Option<usize>,
    choose: impl FnOnce(Drivers) -> Vec<Target<R>>,
    trials: impl IntoIterator<Item = &'static Trial<R::Context>>,
) -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = arguments.test_threads.or(threads);
    let runtime = Runtime::new().expect("a runtime needs no more than some threads");
    let folder =
        tempfile::tempdir_in(folder).expect("the folder for temporary files must be writable");
    let drivers = runtime.block_on(Drivers::open(folder.path())).expect("a new file can be opened");
    let targets: Vec<_> = choose(drivers).into_iter().map(Arc::new).collect();
    let trials: Vec<_> = trials.into_iter().collect();
    let tests = targets.iter().flat_map(|target| {
        let wanted = trials.iter().copied().filter(|trial| target.has(trial));
        harness::tests(runtime.handle(), &format!("{}::", target.name), target, wanted)
    });
    let mut code = libtest_mimic::run(&arguments, tests.collect()).exit_code();
    for target in targets {
        let runner = Arc::into_inner(target).and_then(|target| target.runner.into_inner());
        if let Some(Ok(runner)) = runner
            && let Err(error) = runtime.block_on(runner.remove())
        {
            eprintln!("something was left behind: {error:?}");
            code = ExitCode::FAILURE;
        }
    }
    code
}
