//! The faults of the storage of one history, and its crashes.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use clock::{Clock, ManualClock};
use istorage::CallKind;
use tck::storage::Fault;

/// Random numbers that follow from a seed.
#[derive(Clone, Debug)]
pub(crate) struct Dice(Clock);

impl Dice {
    pub(crate) fn of(seed: u64) -> Dice {
        Dice(ManualClock::new(seed).clock())
    }

    pub(crate) fn below(&self, end: u64) -> u64 {
        self.0.random() % end
    }

    pub(crate) fn one_in(&self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// Decides about the fault of each call.
#[derive(Clone, Debug)]
pub(crate) struct FaultScript(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    dice: Dice,
    /// The calls before the crash; `None` if no crash is planned.
    calls_left: Option<u64>,
    has_crashed: bool,
    /// Of 100 calls, this many have a fault.
    rate: u64,
    /// The number of next writes that are refused.
    refused_writes: u64,
    calls: BTreeMap<&'static str, u64>,
}

impl FaultScript {
    pub(crate) fn of(seed: u64) -> FaultScript {
        FaultScript(Arc::new(Mutex::new(State {
            dice: Dice::of(seed),
            calls_left: None,
            has_crashed: false,
            rate: 0,
            refused_writes: 0,
            calls: BTreeMap::new(),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Plans a crash after a number of calls. Before it, `rate` of 100 calls have a fault.
    pub(crate) fn crash_after(&self, calls: u64, rate: u64) {
        let mut state = self.lock();
        (state.calls_left, state.has_crashed, state.rate) = (Some(calls), false, rate);
    }

    pub(crate) fn has_crashed(&self) -> bool {
        self.lock().has_crashed
    }

    /// Refuses the next writes.
    pub(crate) fn refuse_writes(&self, count: u64) {
        self.lock().refused_writes = count;
    }

    /// The number of calls of each kind since the last question.
    pub(crate) fn take_calls(&self) -> BTreeMap<&'static str, u64> {
        std::mem::take(&mut self.lock().calls)
    }

    pub(crate) fn next(&self, kind: CallKind) -> Fault {
        let mut state = self.lock();
        *state.calls.entry(kind.name()).or_default() += 1;
        let is_write = matches!(
            kind,
            CallKind::PutBatch | CallKind::PutOrdered | CallKind::WriteIf | CallKind::WriteAtomic
        );
        if is_write && state.refused_writes > 0 {
            state.refused_writes -= 1;
            return Fault::Unavailable;
        }
        if state.has_crashed {
            return Fault::Hang;
        }
        let dice = state.dice.clone();
        match state.calls_left {
            Some(0) => {
                state.has_crashed = true;
                // The call is not sent; or it is done, but its answer is lost; or it is done later.
                [Fault::Hang, Fault::ReplyAfterDeadline, Fault::AppliedLate(late(&dice))]
                    [usize::try_from(dice.below(3)).unwrap()]
            }
            Some(left) => {
                state.calls_left = Some(left - 1);
                if dice.below(100) >= state.rate {
                    return Fault::None;
                }
                [Fault::AppliedButError, Fault::NotAppliedButError, Fault::Unavailable]
                    [usize::try_from(dice.below(3)).unwrap()]
            }
            None => Fault::None,
        }
    }
}

fn late(dice: &Dice) -> Duration {
    Duration::from_millis(dice.below(300))
}
