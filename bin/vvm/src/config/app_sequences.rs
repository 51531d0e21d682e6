//! The sequences of an application, in the configuration.

use std::collections::BTreeMap;

use eventlog::Name;
use isequencer::{SeqId, Sequence};
use processor::InvalidApplication;
use serde::{Deserialize, Serialize};

/// The sequences of the workspaces of a kind, by name.
pub(super) type KindSequences = BTreeMap<String, SequenceConfig>;

/// One sequence.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SequenceConfig {
    /// The id that the last numbers are stored under.
    id: u16,
    /// The first number.
    #[serde(default = "one")]
    start: u64,
    /// The last number. Without it, the sequence ends before 2^62.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    end: Option<u64>,
}

fn one() -> u64 {
    1
}

/// The wrong key and the reason.
type WrongKey = (String, String);

impl SequenceConfig {
    /// Checks the sequence with this name.
    fn sequence(&self, name: &str) -> Result<(Name, Sequence), WrongKey> {
        let Self { start, end, .. } = *self;
        let wrong = |key: &str, why: String| Err((key.to_owned(), why));
        if start == 0 {
            return wrong(".start", "numbers begin at 1: set 1 or more".to_owned());
        }
        if let Some(end) = end.filter(|end| *end < start) {
            let why = format!(
                "the last number {end} is below the first number {start}: set {start} or more"
            );
            return wrong(".end", why);
        }
        let name: Name = name.parse().map_err(|error| (String::new(), format!("{error}")))?;
        let id = SeqId(self.id);
        let sequence = match end.and_then(|last| last.checked_add(1)) {
            Some(end) => Sequence::within(id, start..end),
            None => Sequence::counting_from(id, start),
        };
        let sequence = sequence.map_err(|error| (String::new(), error.to_string()))?;
        Ok((name, sequence))
    }
}

/// Makes the sequences of a kind of workspaces.
pub(super) fn sequences(
    kind: &str,
    sequences: &KindSequences,
) -> Result<Vec<(Name, Sequence)>, WrongKey> {
    let of_kind = |(name, config): (&String, &SequenceConfig)| {
        let wrong = |(key, why)| (format!("sequences.{kind}.{name}{key}"), why);
        config.sequence(name).map_err(wrong)
    };
    sequences.iter().map(of_kind).collect()
}

/// The key of the kind of workspaces, or of its sequence, that an application refuses.
pub(super) fn refused(
    kind: &str,
    sequences: &KindSequences,
    refused: &InvalidApplication,
) -> WrongKey {
    let of_id = |id: &SeqId| sequences.iter().find(|(_, config)| config.id == id.0);
    let name = match refused {
        InvalidApplication::SystemSequence(id) => of_id(id).map(|(name, _)| name.clone()),
        InvalidApplication::SequenceIdTwice(_, _, name, _) => Some(name.to_string()),
        _ => None,
    };
    let key =
        name.map_or_else(|| "workspaces".to_owned(), |name| format!("sequences.{kind}.{name}.id"));
    (key, refused.to_string())
}

/// Checks that each kind with sequences is declared.
pub(super) fn check_kinds(
    sequences: &BTreeMap<String, KindSequences>,
    kinds: &BTreeMap<String, u16>,
) -> Result<(), WrongKey> {
    let Some(kind) = sequences.keys().find(|kind| !kinds.contains_key(*kind)) else {
        return Ok(());
    };
    let known: Vec<String> = kinds.keys().map(|kind| format!("`{kind}`")).collect();
    let why = format!(
        "`workspaces` has no kind `{kind}` (it has: {}): declare the kind, or correct its name",
        known.join(", ")
    );
    Err((format!("sequences.{kind}"), why))
}
