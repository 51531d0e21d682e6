//! Each trial as a test of `cargo test`, with `libtest-mimic` and `harness = false`.

use std::sync::Arc;

use libtest_mimic::{Completion, Failed};
use tokio::runtime::Handle;

use crate::trial::{Conclusion, Trial, TrialRunner};

impl From<Conclusion> for Result<Completion, Failed> {
    fn from(conclusion: Conclusion) -> Result<Completion, Failed> {
        match conclusion {
            Conclusion::Passed => Ok(Completion::Completed),
            Conclusion::Ignored(reason) => Ok(Completion::ignored_with(reason)),
            Conclusion::Failed(why) => Err(why.into()),
        }
    }
}

/// Makes each trial a test. The name of the test is `prefix` and the name of the trial.
///
/// `handle` must be of a multi-thread runtime. Each test blocks a thread of its own until its trial
/// is over. Meanwhile a current-thread runtime would run no task, and no trial would ever end.
pub fn tests<R: TrialRunner + Send + 'static>(
    handle: &Handle,
    prefix: &str,
    runner: &Arc<R>,
    trials: impl Iterator<Item = &'static Trial<R::Context>>,
) -> Vec<libtest_mimic::Trial> {
    let test = |trial: &'static Trial<R::Context>| {
        let (handle, runner) = (handle.clone(), Arc::clone(runner));
        let name = format!("{prefix}{}", trial.name());
        let run = move || handle.block_on(runner.run(trial)).into();
        libtest_mimic::Trial::ignorable_test(name, run)
    };
    trials.map(test).collect()
}
