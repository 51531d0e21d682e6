//! Trials that run on every driver, each on a fixture of its own.

use std::{
    panic::{AssertUnwindSafe, resume_unwind},
    process::ExitCode,
    sync::Arc,
};

use async_trait::async_trait;
use clock::Clock;
use futures::{FutureExt, future::BoxFuture};
use istorage_tck::Subject;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use tokio::runtime::Runtime;

use crate::drivers::{DriverSubject, Drivers};

/// The database of one trial on one driver, and all that the trial needs in it.
#[async_trait]
pub trait Fixture: Sized + Sync {
    /// Makes an empty fixture.
    ///
    /// # Errors
    /// The errors of the storage.
    async fn new(subject: Arc<dyn Subject>) -> istorage::Result<Self>;

    /// Drops all that was made in the database, also after a trial that failed.
    ///
    /// # Errors
    /// The errors of the storage.
    async fn remove(self) -> istorage::Result<()>;
}

/// A server, as the fixture of trials that remove all that they make.
#[expect(missing_debug_implementations, reason = "a `Subject` has none")]
pub struct ServerFixture {
    /// The database to which nodes are connected.
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

/// A trial.
pub type TrialFn<S> = for<'a> fn(&'a S) -> BoxFuture<'a, ()>;

async fn run_trial<S: Fixture>(
    subject: DriverSubject,
    trial: TrialFn<S>,
) -> Result<Completion, Failed> {
    let subject = match subject {
        DriverSubject::Ignored(why) => return Ok(Completion::ignored_with(why)),
        DriverSubject::Available(subject) => subject,
    };
    let fixture = S::new(subject).await?;
    let outcome = AssertUnwindSafe(trial(&fixture)).catch_unwind().await;
    let dropped = fixture.remove().await;
    if let Err(panic) = outcome {
        resume_unwind(panic);
    }
    dropped?;
    Ok(Completion::Completed)
}

/// Runs all trials on the chosen drivers. Each trial is a test with the name `driver::trial`. Files
/// are made in `folder`.
///
/// # Panics
/// If the runtime, or a file of redb, cannot be made.
pub fn run_trials<S: Fixture + Send + 'static>(
    folder: &str,
    choose: impl FnOnce(Drivers) -> Vec<(&'static str, DriverSubject)>,
    trials: &[&'static [(&'static str, TrialFn<S>)]],
) -> ExitCode {
    let arguments = Arguments::from_args();
    let runtime = Runtime::new().expect("a runtime needs no more than some threads");
    let folder =
        tempfile::tempdir_in(folder).expect("the folder for temporary files must be writable");
    let drivers = runtime.block_on(Drivers::open(folder.path())).expect("a new file can be opened");
    let mut tests = Vec::new();
    for (driver, subject) in choose(drivers) {
        for &(name, trial) in trials.iter().copied().flatten() {
            let (handle, subject) = (runtime.handle().clone(), subject.clone());
            let body = move || handle.block_on(run_trial(subject, trial));
            tests.push(Trial::ignorable_test(format!("{driver}::{name}"), body));
        }
    }
    libtest_mimic::run(&arguments, tests).exit_code()
}
