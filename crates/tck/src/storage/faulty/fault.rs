//! The kinds of faults, and how often each happens.

use std::time::Duration;

/// The fault of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No fault.
    None,
    /// The write is done, and its answer is lost. A read is `Unavailable`.
    AppliedButError,
    /// The write is not done, and the caller does not learn this. A read is `Unavailable`.
    NotAppliedButError,
    /// The outcome is unknown. The write lands after this time, when the wrapper is called next or
    /// when [`land_late_writes`](super::Faulty::land_late_writes) is called. A read is
    /// `Unavailable`.
    AppliedLate(Duration),
    /// The call is not done, and the answer is `Unavailable`.
    Unavailable,
    /// The call is not done and never answers.
    Hang,
    /// The call is done after this time.
    Slow(Duration),
    /// The call is done, and its answer comes after the deadline.
    ReplyAfterDeadline,
}

/// The frequency of each fault: how many of 1,000 calls have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultRates {
    /// [`Fault::AppliedButError`].
    pub applied_but_error: u32,
    /// [`Fault::NotAppliedButError`].
    pub not_applied_but_error: u32,
    /// [`Fault::AppliedLate`], after up to [`FaultRates::delay`].
    pub applied_late: u32,
    /// [`Fault::Unavailable`].
    pub unavailable: u32,
    /// [`Fault::Hang`].
    pub hang: u32,
    /// [`Fault::Slow`], by up to [`FaultRates::delay`].
    pub slow: u32,
    /// [`Fault::ReplyAfterDeadline`].
    pub reply_after_deadline: u32,
    /// The longest delay.
    pub delay: Duration,
}

impl FaultRates {
    pub(super) fn draw(&self, random: &mut fastrand::Rng) -> Fault {
        let delay = Duration::from_nanos(
            random.u64(..=u64::try_from(self.delay.as_nanos()).unwrap_or(u64::MAX)),
        );
        let faults = [
            (self.applied_but_error, Fault::AppliedButError),
            (self.not_applied_but_error, Fault::NotAppliedButError),
            (self.applied_late, Fault::AppliedLate(delay)),
            (self.unavailable, Fault::Unavailable),
            (self.hang, Fault::Hang),
            (self.slow, Fault::Slow(delay)),
            (self.reply_after_deadline, Fault::ReplyAfterDeadline),
        ];
        let mut draw = random.u32(..1_000);
        for (rate, fault) in faults {
            if draw < rate {
                return fault;
            }
            draw -= rate;
        }
        Fault::None
    }
}
