//! The proof of a suite by implementations that are wrong on purpose.

use std::fmt::Debug;

use libtest_mimic::Trial;
use tck::trial::Conclusion;
use tokio::runtime::Handle;

/// Each pair of a defect and a trial as a test. The test passes if the trial fails on the defect.
pub(crate) fn wrong<D, F>(
    handle: &Handle,
    table: &'static [(D, &'static [&'static str])],
    conclusion: fn(D, &'static str) -> F,
) -> Vec<Trial>
where
    D: Copy + Debug + Send + 'static,
    F: Future<Output = Conclusion> + 'static,
{
    let pairs = table.iter().flat_map(|(defect, names)| names.iter().map(|name| (*defect, *name)));
    let tests = pairs.map(|(defect, name)| {
        let handle = handle.clone();
        Trial::test(format!("{defect:?}::{name}"), move || {
            match handle.block_on(conclusion(defect, name)) {
                Conclusion::Failed(_) => Ok(()),
                other => Err(format!("it should fail, and it is {other:?}").into()),
            }
        })
    });
    tests.collect()
}
