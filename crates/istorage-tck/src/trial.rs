//! A trial: one case of the contract, by name.

use std::{fmt, time::Duration};

use futures::future::BoxFuture;

use crate::{context::TrialContext, failure::Verdict};

/// The longest time of a trial. Most trials are done within a second.
const LIMIT: Duration = Duration::from_secs(180);
/// The longest time of a trial that writes very many rows.
const LIMIT_OF_LONG_ONES: Duration = Duration::from_secs(900);

/// One case of the contract.
pub struct Trial {
    name: &'static str,
    limit: Duration,
    run: fn(TrialContext) -> BoxFuture<'static, Verdict>,
}

impl Trial {
    pub(crate) const fn new(
        name: &'static str,
        run: fn(TrialContext) -> BoxFuture<'static, Verdict>,
    ) -> Trial {
        Trial { name, limit: LIMIT, run }
    }

    pub(crate) const fn long(mut self) -> Trial {
        self.limit = LIMIT_OF_LONG_ONES;
        self
    }

    /// The name of the trial, as `module::case`. A module is an operation, or a topic that several
    /// operations have in common.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The longest time of the trial. A trial that is not over then has failed.
    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    pub(crate) fn run(&self, context: TrialContext) -> BoxFuture<'static, Verdict> {
        (self.run)(context)
    }
}

impl fmt::Debug for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Trial").field(&self.name).finish()
    }
}

/// The list of a module's trials. Each trial of a module that is `long` may take long.
macro_rules! trials {
    (long $module:ident: $($case:ident),+ $(,)?) => {
        pub(super) const TRIALS: &[$crate::Trial] =
            &[$($crate::trial::trials!(@ $module $case).long()),+];
    };
    ($module:ident: $($case:ident),+ $(,)?) => {
        pub(super) const TRIALS: &[$crate::Trial] =
            &[$($crate::trial::trials!(@ $module $case)),+];
    };
    (@ $module:ident $case:ident) => {
        $crate::Trial::new(
            concat!(stringify!($module), "::", stringify!($case)),
            |context| Box::pin($case(context)),
        )
    };
}

pub(crate) use trials;
