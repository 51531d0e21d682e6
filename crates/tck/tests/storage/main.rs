//! The proof of the trials: a correct storage passes all trials, and each trial fails on a storage
//! with a defect.

#[path = "../support/mod.rs"]
mod support;
mod table;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use clock::{Clock, ManualClock};
use istorage::{CallKind, Result, StorageDriver, mem::MemDriver};
use libtest_mimic::{Arguments, Failed, Trial};
use tck::{
    storage::{
        Fault, Faulty, Scale, ScratchKeyspace, Subject, WrappedSubject, trials, wrong::Defect,
    },
    trial::{self, Conclusion, Progress, Report, TrialRunner, run_all},
};
use tokio::runtime::Handle;

use support::wrong;
use table::TABLE;

/// The trials that a storage must pass even if it sometimes loses answers.
const UNDER_LOST_ANSWERS: &[&str] = &["races::", "linearizable::get_", "linearizable::read"];

/// A correct storage in memory. Its clock is moved by hand, or is the clock of the machine.
struct Mem {
    manual: Option<ManualClock>,
    driver: MemDriver,
}

impl Mem {
    fn on_a_clock_of_its_own() -> Mem {
        let manual = ManualClock::new(1);
        Mem { driver: MemDriver::new(manual.clock()), manual: Some(manual) }
    }

    fn on_the_machines_clock() -> Mem {
        Mem { driver: MemDriver::new(Clock::system()), manual: None }
    }
}

#[async_trait::async_trait]
impl Subject for Mem {
    fn clock(&self) -> Clock {
        self.manual.as_ref().map_or_else(Clock::system, ManualClock::clock)
    }

    fn scale(&self) -> Scale {
        Scale::Embedded
    }

    async fn node(&self, _wall_ahead_ms: i64) -> Result<Arc<dyn StorageDriver>> {
        Ok(Arc::new(self.driver.clone()))
    }

    async fn spare(&self) -> Result<Arc<dyn StorageDriver>> {
        Ok(Arc::new(MemDriver::new(self.clock())))
    }

    async fn pass(&self, duration: Duration) {
        match &self.manual {
            Some(manual) => manual.advance(duration),
            None => self.clock().sleep(duration).await,
        }
    }

    fn max_concurrent_trials(&self) -> usize {
        if self.manual.is_some() { 1 } else { 4 }
    }
}

async fn conclusion(subject: impl Subject + 'static, trial: &str) -> Conclusion {
    let wanted = trials().find(|wanted| wanted.name() == trial).expect("a trial of that name");
    let scratch = ScratchKeyspace::create(Arc::new(subject)).await.expect("a keyspace");
    scratch.run(wanted).await
}

async fn on_defect(defect: Defect, trial: &'static str) -> Conclusion {
    conclusion(defect.put_into(Mem::on_a_clock_of_its_own()), trial).await
}

/// Every trial on the correct storage, through the wrapper that also puts in the defects.
fn right(handle: &Handle) -> impl Iterator<Item = Trial> {
    trials().map(|trial| {
        let handle = handle.clone();
        Trial::ignorable_test(format!("right::{}", trial.name()), move || {
            handle.block_on(on_defect(Defect::None, trial.name())).into()
        })
    })
}

/// Trials under contention on a storage that loses answers. Such a storage breaks no contract: the
/// trials settle the writes with unknown outcomes.
fn losing_answers(handle: &Handle) -> impl Iterator<Item = Trial> {
    let wanted = |name: &str| UNDER_LOST_ANSWERS.iter().any(|start| name.starts_with(start));
    trials().filter(move |trial| wanted(trial.name())).map(move |trial| {
        let handle = handle.clone();
        Trial::test(format!("losing_answers::{}", trial.name()), move || {
            let mem = Mem::on_the_machines_clock();
            let subject = WrappedSubject::new(mem, move |inner, clock| {
                Arc::new(Faulty::scripted(inner, clock, losing_answers_of_writes()))
            });
            passed(handle.block_on(conclusion(subject, trial.name())))
        })
    })
}

/// Loses two answers in every ten conditional writes. One of these two writes is done, and the
/// other is not.
fn losing_answers_of_writes() -> impl FnMut(CallKind) -> Fault + Send {
    let mut writes = 0_u32;
    move |kind| {
        writes += u32::from(kind == CallKind::WriteIf);
        match (kind, writes % 10) {
            (CallKind::WriteIf, 3) => Fault::AppliedButError,
            (CallKind::WriteIf, 7) => Fault::NotAppliedButError,
            _ => Fault::None,
        }
    }
}

fn passed(conclusion: Conclusion) -> std::result::Result<(), Failed> {
    match conclusion {
        Conclusion::Passed => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}

fn every_trial_fails_on_some_defect() -> std::result::Result<(), Failed> {
    let named: BTreeSet<&str> = TABLE.iter().flat_map(|(_, names)| names.iter().copied()).collect();
    let all: BTreeSet<&str> = trials().map(trial::Trial::name).collect();
    let missing: Vec<_> = all.symmetric_difference(&named).collect();
    if missing.is_empty() { Ok(()) } else { Err(format!("{missing:?}").into()) }
}

fn names_are_unique() -> std::result::Result<(), Failed> {
    let names: BTreeSet<&str> = trials().map(trial::Trial::name).collect();
    if names.len() == trials().count() { Ok(()) } else { Err("a name is there twice".into()) }
}

/// Runs some trials on a storage with a `get` that panics or hangs.
async fn report(defect: Defect) -> Report {
    let wrong = defect.put_into(Mem::on_a_clock_of_its_own());
    let scratch = ScratchKeyspace::create(Arc::new(wrong)).await.expect("a keyspace");
    let scratch = scratch.bounded(Duration::from_millis(200));
    let names = [
        "get::clustering_columns_may_be_empty",
        "get::an_empty_batch_returns_nothing",
        "ttl::ordered_rows_report_their_ttl",
    ];
    let wanted = trials().filter(|trial| names.contains(&trial.name()));
    let finished = std::sync::Mutex::new(0);
    let progress = |progress: Progress<'_>| {
        if let Progress::Finished(_) = progress {
            *finished.lock().expect("nobody panics here") += 1;
        }
    };
    let report = run_all(&scratch, wanted, progress).await;
    scratch.remove().await.expect("a keyspace that can be dropped");
    assert_eq!(*finished.lock().expect("nobody panics here"), 3);
    report
}

fn fails_by_name(handle: &Handle, defect: Defect, why: &str) -> std::result::Result<(), Failed> {
    let report = handle.block_on(report(defect));
    let failed = |conclusion: &Conclusion| match conclusion {
        Conclusion::Failed(message) => message.contains(why),
        _ => false,
    };
    let verdicts: Vec<_> =
        report.trials.iter().map(|trial| (trial.name, failed(&trial.conclusion))).collect();
    let expected = [
        ("ttl::ordered_rows_report_their_ttl", false),
        ("get::clustering_columns_may_be_empty", true),
        ("get::an_empty_batch_returns_nothing", false),
    ];
    if verdicts == expected && report.passed() == 2 && report.failed() == 1 {
        Ok(())
    } else {
        Err(format!("{report:?}").into())
    }
}

/// Trials leave nothing behind in the database, even if they fail.
async fn leaves_nothing_behind() -> std::result::Result<(), Failed> {
    let driver = MemDriver::new(Clock::system());
    let mem = Mem { manual: None, driver: driver.clone() };
    let subject = Defect::LongNamesRefused.put_into(mem);
    let scratch = ScratchKeyspace::create(Arc::new(subject)).await?;
    let wanted = trials().filter(|trial| trial.name().starts_with("lifecycle::"));
    let report = run_all(&scratch, wanted, |_| {}).await;
    scratch.remove().await?;
    let left = format!("{driver:?}");
    if report.failed() > 0 && !left.contains("tck_") { Ok(()) } else { Err(left.into()) }
}

fn main() -> std::process::ExitCode {
    // One defect panics on purpose, and the report has its message. So the panic is not printed.
    std::panic::set_hook(Box::new(|_| {}));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime needs some threads");
    let handle = runtime.handle().clone();
    let mut tests: Vec<Trial> = Vec::new();
    tests.extend(right(&handle));
    tests.extend(losing_answers(&handle));
    tests.extend(wrong(&handle, TABLE, on_defect));
    tests.push(Trial::test("every_trial_fails_on_some_defect", every_trial_fails_on_some_defect));
    tests.push(Trial::test("names_are_unique", names_are_unique));
    let own = handle.clone();
    tests.push(Trial::test("a_panic_fails_the_trial_by_name", move || {
        fails_by_name(&own, Defect::Panics, "a defect on purpose")
    }));
    let own = handle.clone();
    tests.push(Trial::test("a_storage_that_hangs_fails_the_trial_by_name", move || {
        fails_by_name(&own, Defect::Hangs, "not over after 200ms")
    }));
    tests.push(Trial::test("nothing_is_left_behind", move || {
        handle.block_on(leaves_nothing_behind())
    }));
    libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
}
