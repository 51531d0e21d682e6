//! Lengths of time in the configuration.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// The shortest time except 0: one millisecond. Nothing can be done in less time.
const SHORTEST: f64 = 0.001;

/// The longest time: one year.
const LONGEST: f64 = 365.0 * 24.0 * 3_600.0;

/// A length of time, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Seconds(f64);

impl Seconds {
    pub(super) fn of(time: Duration) -> Seconds {
        Seconds(time.as_secs_f64())
    }

    pub(crate) fn get(self) -> Duration {
        Duration::from_secs_f64(self.0)
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Seconds, D::Error> {
        let seconds = seconds(from)?;
        match seconds.get().is_zero() {
            true => Err(D::Error::custom("more than 0 seconds are expected")),
            false => Ok(seconds),
        }
    }
}

/// Reads a length of time: 0, or a time that is long enough to do something.
fn seconds<'de, D: Deserializer<'de>>(from: D) -> Result<Seconds, D::Error> {
    let seconds = f64::deserialize(from)?;
    if seconds == 0.0 || (SHORTEST..=LONGEST).contains(&seconds) {
        Ok(Seconds(seconds))
    } else {
        let wanted = format!("a number of seconds from {SHORTEST} to a year is expected");
        Err(D::Error::custom(wanted))
    }
}

pub(super) fn zero_as_none<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Seconds>, D::Error> {
    Ok(Some(seconds(from)?).filter(|seconds| !seconds.get().is_zero()))
}

pub(super) fn none_as_zero<S: Serializer>(
    time: &Option<Seconds>,
    to: S,
) -> Result<S::Ok, S::Error> {
    to.serialize_f64(time.map_or(0.0, |Seconds(seconds)| seconds))
}
