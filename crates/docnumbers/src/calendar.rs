//! The civil date of a moment in a time zone.

use clock::WallTime;
use jiff::{
    Timestamp,
    civil::Date,
    tz::{TimeZone, TimeZoneDatabase},
};

const SECOND: i128 = 1_000_000_000;
const DAY: i128 = 24 * 60 * 60 * SECOND;

/// The civil dates of a time zone.
#[derive(Clone, Debug)]
pub struct Calendar {
    zone: TimeZone,
}

/// A civil date, and the part of it that has one offset from UTC. The part contains the moment that
/// the caller asked for.
///
/// Nearly every date is one part. A date has several parts if the offset changes on that day. In a
/// zone whose clocks go back over midnight, another date can be between two parts. A part never
/// contains such a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CivilDay {
    /// The date.
    pub date: Date,
    /// The first moment of the part.
    pub from: WallTime,
    /// The first moment after the part.
    pub until: WallTime,
}

impl Calendar {
    /// The calendar of a zone.
    #[must_use]
    pub fn new(zone: TimeZone) -> Calendar {
        Calendar { zone }
    }

    /// The calendar of the zone with this IANA name, in any case. The rules of the zone are those
    /// in the database of this build, and not those of the machine: nodes with one build agree.
    #[must_use]
    pub fn named(zone: &str) -> Option<Calendar> {
        TimeZoneDatabase::bundled().get(zone).ok().map(Calendar::new)
    }

    /// The zone.
    #[must_use]
    pub fn zone(&self) -> &TimeZone {
        &self.zone
    }

    /// The civil date at a moment. The year is 1969 to 2554, because [`WallTime`] ends there.
    ///
    /// ```
    /// use docnumbers::{Calendar, clock::WallTime};
    ///
    /// let berlin = Calendar::named("Europe/Berlin").expect("the database has this zone");
    /// let day = berlin.day(WallTime::from_millis(1_369_180_800_000));
    /// assert_eq!(day.date.to_string(), "2013-05-22");
    /// assert_eq!(day.until.as_millis() - day.from.as_millis(), 24 * 60 * 60 * 1_000);
    /// ```
    #[must_use]
    pub fn day(&self, at: WallTime) -> CivilDay {
        let nanos = i128::from(at.as_nanos());
        let at = timestamp(nanos);
        let offset = self.zone.to_offset(at);
        // While the offset stays, the date stays from one midnight to the next.
        let since_midnight = (nanos + i128::from(offset.seconds()) * SECOND).rem_euclid(DAY);
        let midnight = nanos - since_midnight;
        let (mut from, mut until) = (midnight, midnight + DAY);
        // `TimeZone::preceding` would leave out a change if the zone got new rules with it, as
        // America/Indiana/Winamac did on 2007-03-11. So look forward from midnight.
        for change in self.zone.following(timestamp(midnight)) {
            let change = change.timestamp().as_nanosecond();
            if change > nanos {
                until = until.min(change);
                break;
            }
            from = change;
        }
        let date = offset.to_datetime(at).date();
        CivilDay { date, from: wall(from), until: wall(until) }
    }
}

impl CivilDay {
    /// Whether the answer of [`Calendar::day`] at `at` has this date and this offset. At the last
    /// nanosecond of [`WallTime`] the answer is always no.
    #[must_use]
    pub fn contains(&self, at: WallTime) -> bool {
        self.from <= at && at < self.until
    }
}

/// The timestamp of a moment in nanoseconds since 1970. Timestamps end in 9999, after [`WallTime`].
fn timestamp(nanos: i128) -> Timestamp {
    Timestamp::from_nanosecond(nanos).unwrap_or(Timestamp::MAX)
}

/// The nearest moment that [`WallTime`] has.
fn wall(nanos: i128) -> WallTime {
    WallTime::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
}
