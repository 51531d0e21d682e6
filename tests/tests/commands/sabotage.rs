//! Rows that nobody of ours wrote, where the next command is to write.

use crate::stage::TrialFn;

pub(crate) const TRIALS: &[(&str, TrialFn)] = &[];
