//! The clocks of the machine. No other module reads them.

use std::{
    cell::RefCell,
    time::{Duration, SystemTime},
};

use rustix::time::{ClockId, clock_gettime};

use crate::{Instant, WallTime};

/// The monotonic clock. On Linux, `CLOCK_MONOTONIC` stands still during a suspend, and a lease must
/// not. So `CLOCK_BOOTTIME` is used there.
#[cfg(any(target_os = "linux", target_os = "android"))]
const MONOTONIC: ClockId = ClockId::Boottime;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const MONOTONIC: ClockId = ClockId::Monotonic;

pub(crate) fn now() -> Instant {
    Instant(read(MONOTONIC))
}

/// The time of the C library. So a library that is preloaded can let the clock jump.
#[expect(clippy::disallowed_methods, reason = "the home of time")]
pub(crate) fn wall() -> WallTime {
    // A calendar before 1970 reads as 1970.
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    WallTime::from_nanos(u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX))
}

fn read(id: ClockId) -> Duration {
    let time = clock_gettime(id);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanos)
}

pub(crate) fn random() -> u64 {
    getrandom::u64().expect(NO_RANDOM_NUMBERS)
}

const NO_RANDOM_NUMBERS: &str = "the operating system did not provide random numbers";

/// Random numbers that a thread has drawn at once.
struct DrawnNumbers {
    numbers: [[u8; 8]; 64],
    left: usize,
}

thread_local! {
    static DRAWN: RefCell<DrawnNumbers> =
        const { RefCell::new(DrawnNumbers { numbers: [[0; 8]; 64], left: 0 }) };
}

pub(crate) fn random_for_name() -> u64 {
    DRAWN.with_borrow_mut(|DrawnNumbers { numbers, left }| {
        if *left == 0 {
            getrandom::fill(numbers.as_flattened_mut()).expect(NO_RANDOM_NUMBERS);
            *left = numbers.len();
        }
        *left -= 1;
        u64::from_ne_bytes(numbers[*left])
    })
}

#[expect(clippy::disallowed_methods, reason = "the home of waiting")]
pub(crate) async fn sleep_until(deadline: Instant) {
    // The timer below stands still during a suspend. So the clock decides when the wait is over,
    // and not the timer.
    loop {
        let left = deadline - now();
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left).await;
    }
}
