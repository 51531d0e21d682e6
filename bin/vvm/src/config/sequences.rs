//! The section `sequences` of the configuration.

use std::num::NonZeroUsize;

use eventlog::TrustLevel;
use processor::PartitionSettings;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use super::seconds::Seconds;

/// The section `sequences`: the trust level, and how numbers are kept.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SequencesConfig {
    /// The trust level of the applications that name none of their own. It counts when an
    /// application is deployed for the first time.
    pub(crate) trust_level: LevelNumber,
    /// The place of the numbers. If this place has no numbers yet, the node reads the logs from
    /// their beginning once.
    pub(crate) storage: SequencesIn,
    /// How many numbers each partition keeps in memory.
    pub(crate) cached_numbers: usize,
    /// How many numbers of each partition may wait to be stored.
    pub(crate) unflushed_numbers: NonZeroUsize,
    /// How long numbers wait, so that more numbers are stored with them.
    pub(crate) flush_delay_seconds: Seconds,
    /// The pause before a failed call for numbers is made again.
    pub(crate) retry_seconds: Seconds,
}

impl Default for SequencesConfig {
    fn default() -> SequencesConfig {
        let storage = SequencesIn::default();
        let sequencer = PartitionSettings::new("").sequencer;
        SequencesConfig {
            trust_level: LevelNumber::default(),
            storage,
            cached_numbers: sequencer.cached_numbers,
            unflushed_numbers: sequencer.max_unflushed,
            flush_delay_seconds: Seconds::of(sequencer.flush_delay),
            retry_seconds: Seconds::of(sequencer.retry_after),
        }
    }
}

/// Where numbers can be stored.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SequencesIn {
    /// The system keyspace.
    #[default]
    System,
    /// The keyspace of the application, in rows of `sys.SequencesView`.
    View,
}

/// A trust level, as its number: 0, 1 or 2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LevelNumber(pub(crate) TrustLevel);

impl<'de> Deserialize<'de> for LevelNumber {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<LevelNumber, D::Error> {
        let level = u8::deserialize(from).map(|level| level.to_string().parse());
        let level = level.ok().and_then(Result::ok);
        level.map(LevelNumber).ok_or_else(|| D::Error::custom("0, 1 or 2 is expected"))
    }
}

impl Serialize for LevelNumber {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u8(self.0 as u8)
    }
}
