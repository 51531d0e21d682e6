//! What a partition is asked to do, and what it answers.

use std::{collections::BTreeMap, fmt};

use bytes::Bytes;
use clock::Instant;
use eventlog::{Epoch, Fields, Name, Offset, Parent, QName, RecordId, Value, Version, WsId};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// A command.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    /// The workspace that it is for.
    pub ws: WsId,
    /// What is asked for.
    pub name: QName,
    /// With what, as it came; its handler understands it.
    pub params: Bytes,
    /// Which rows are to be written.
    pub rows: Vec<RowChange>,
    /// How the request is called, for whoever follows it through logs.
    pub request: String,
    /// If it may be sent again.
    pub repeat: Option<Repeat>,
    /// Until when it may begin, and how long whoever sent it waits.
    pub deadline: Instant,
}

/// A row that is to be written.
#[derive(Clone, Debug, PartialEq)]
pub enum RowChange {
    /// A new one.
    Create {
        /// From 1 to 65535, once in a command: what other rows of the command call it. It gets a real id.
        raw: RecordId,
        /// Its table.
        table: QName,
        /// Where it stands; the parent may be a row of the command.
        parent: Option<Parent>,
        /// What it holds. The ids of rows of the command are replaced by real ones.
        fields: Fields,
    },
    /// One that is there.
    Update {
        /// Which.
        id: RecordId,
        /// Of which table it is; `None` if that is of no matter.
        table: Option<QName>,
        /// Which version of it; `None` for whatever is there.
        version: Option<Version>,
        /// Whether it is in use from now on; `None` to leave that as it is.
        is_active: Option<bool>,
        /// What changes; `None` for a field that is to hold nothing.
        fields: BTreeMap<Name, Option<Value>>,
    },
}

/// A command that may be sent again: it is done once, and always gets the first answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeat {
    /// Who sends it.
    pub(crate) principal: String,
    /// The hash of that, and of the key.
    pub(crate) key: [u8; 32],
    /// The hash of what it says.
    pub(crate) body: [u8; 32],
}

impl Repeat {
    /// `key` is what the principal calls the command, and `body` all that it says: the same key with another body is refused.
    pub fn new(principal: impl Into<String>, key: &[u8], body: &[u8]) -> Repeat {
        let principal = principal.into();
        let mut both = Sha256::new();
        both.update((principal.len() as u64).to_be_bytes());
        both.update(&principal);
        both.update(key);
        Repeat { key: both.finalize().into(), body: Sha256::digest(body).into(), principal }
    }
}

/// A command is done: its event is in the logs, and applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// Of the leader that did it.
    pub epoch: Epoch,
    /// Where its event is in the log of the partition.
    pub plog: Offset,
    /// Where it is in the log of the workspace.
    pub wlog: Offset,
    /// What it said.
    pub answer: Answer,
    /// It was done before, and this is the first answer.
    pub is_repeated: bool,
}

impl Done {
    /// That of all records that it wrote: what a later change of one of them may [expect](RowChange::Update).
    pub fn version(&self) -> Version {
        Version { epoch: self.epoch, plog: self.plog }
    }
}

/// What a command says when it is done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The ids that its new rows got, by those in the command.
    pub ids: Vec<(RecordId, RecordId)>,
    /// What its handler says.
    pub result: Bytes,
}

#[derive(Serialize, Deserialize)]
struct WireAnswer<'a> {
    ids: Vec<(u64, u64)>,
    #[serde(borrow)]
    result: &'a [u8],
}

impl Answer {
    pub(crate) fn to_bytes(&self) -> Bytes {
        let ids = self.ids.iter().map(|(raw, id)| (raw.0, id.0)).collect();
        let written = postcard::to_stdvec(&WireAnswer { ids, result: &self.result });
        written.expect("memory takes all that is written, and all lengths are known").into()
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Answer> {
        let WireAnswer { ids, result } = postcard::from_bytes(bytes).ok()?;
        let ids = ids.into_iter().map(|(raw, id)| (RecordId(raw), RecordId(id))).collect();
        Some(Answer { ids, result: Bytes::copy_from_slice(result) })
    }
}

/// Why a command is not done, by what whoever sent it can do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Send it again later: nothing was done.
    #[error("busy: {0}")]
    Busy(Busy),
    /// It cannot be done. Nothing was.
    #[error(transparent)]
    Rejected(Rejection),
    /// It is in the log of the partition, and will be applied when what is in the way is gone.
    #[error("it is in the log at offset {}, and could not be applied: {why}", .plog.0)]
    NotApplied {
        /// Where its event is.
        plog: Offset,
        /// What is in the way.
        why: String,
    },
    /// Whether it was done, or will be, is not known. With a key it can be sent again, and is done once.
    #[error("whether it was done is not known: {0}")]
    Unknown(String),
}

/// Why nothing was done now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Busy {
    /// Too many commands wait.
    #[error("too many commands wait")]
    QueueFull,
    /// The log of the partition is being read.
    #[error("the partition is being recovered{}", trouble(.0))]
    Recovering(Option<String>),
    /// A row holds what it cannot, and an operator must look at it.
    #[error("the partition has stopped: {0}")]
    Violation(String),
    /// Another node leads.
    #[error("this node does not lead any more: {0}")]
    LeadLost(String),
    /// The partition has ended, and must be deployed again under a new lead.
    #[error("the partition has failed, and must be deployed under a new lead: {0}")]
    Failed(String),
    /// The partition is not at work here.
    #[error("the partition is not at work on this node")]
    NotDeployed,
    /// It is being stopped.
    #[error("the partition is being stopped")]
    Stopping,
    /// Its turn did not come in time, or its handler took too long.
    #[error("it was not done in time")]
    TimedOut,
    /// Something was written before it that its group did not expect, or the storage did not do what it was asked to.
    #[error("{0}")]
    Storage(String),
}

fn trouble(trouble: &Option<String>) -> String {
    trouble.as_ref().map_or_else(String::new, |trouble| format!(": {trouble}"))
}

/// What is wrong with a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// What kind of mistake it is.
    pub kind: RejectionKind,
    /// What exactly.
    pub message: String,
}

/// What kind of mistake there is in a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RejectionKind {
    /// It makes no sense.
    Invalid,
    /// There is no such workspace, row or command.
    NotFound,
    /// A row is not, or no longer, what the command expects.
    Conflict,
    /// It says something else than the command that was sent with its key before.
    KeyReused,
    /// What it writes is too large.
    TooLarge,
    /// Not the command is wrong: its handler failed, or what is stored cannot be understood.
    Internal,
}

impl Rejection {
    /// A mistake of this kind.
    pub fn new(kind: RejectionKind, message: impl Into<String>) -> Rejection {
        Rejection { kind, message: message.into() }
    }

    /// It makes no sense.
    pub fn invalid(message: impl Into<String>) -> Rejection {
        Rejection::new(RejectionKind::Invalid, message)
    }

    /// There is no such thing.
    pub fn not_found(message: impl Into<String>) -> Rejection {
        Rejection::new(RejectionKind::NotFound, message)
    }

    /// Something is not what the command expects.
    pub fn conflict(message: impl Into<String>) -> Rejection {
        Rejection::new(RejectionKind::Conflict, message)
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Rejection {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_of_its_principal() {
        let key = |principal: &str, key: &[u8]| Repeat::new(principal, key, b"").key;
        assert_eq!(key("joe", b"1"), key("joe", b"1"));
        assert_ne!(key("joe", b"1"), key("joe", b"2"));
        assert_ne!(key("joe", b"1"), key("jo", b"e1"), "where the name ends counts");
        assert_ne!(Repeat::new("joe", b"1", b"a").body, Repeat::new("joe", b"1", b"b").body);
    }

    /// They are stored: whoever sends a command again after an upgrade relies on them.
    #[test]
    fn hashes_of_keys_and_bodies_are_pinned() {
        let hex = |bytes: [u8; 32]| bytes.map(|byte| format!("{byte:02x}")).concat();
        let Repeat { key, body, .. } = Repeat::new("joe", b"key", b"body");
        assert_eq!(hex(key), "27476cfb89c9ec11a7eb38eb5d5e94a4a61932d3a9fedd37267cea68fc7a095e");
        assert_eq!(hex(body), "230d8358dc8e8890b4c58deeb62912ee2f20357ae92a5cc861b98e68fe31acb5");
    }

    #[test]
    fn an_answer_is_read_back() {
        let ids = vec![(RecordId(1), RecordId(322_680_000_131_072))];
        let answer = Answer { ids, result: Bytes::from_static(b"{}") };
        // It is a stored format, described in docs/event-format.md.
        let pinned = [1, 1, 0x80, 0xe0, 0xa2, 0xd6, 0x9c, 0xaf, 0x49, 2, b'{', b'}'];
        assert_eq!(answer.to_bytes(), pinned.as_slice());
        assert_eq!(Answer::from_bytes(&answer.to_bytes()), Some(answer));
        assert_eq!(Answer::from_bytes(b"\xff"), None);
    }

    /// Whatever an answer was replaced by, it is read or refused: each change of a byte or two, and lengths that no bytes have.
    #[test]
    fn bytes_that_are_no_answer_are_read_or_refused() {
        const HUGE: [u8; 10] = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        let read = |bytes: &[u8]| {
            if let Some(answer) = Answer::from_bytes(bytes) {
                let again = answer.to_bytes();
                assert!(again.len() <= bytes.len(), "{bytes:02x?}");
                assert_eq!(Answer::from_bytes(&again), Some(answer));
            }
        };
        let ids = vec![(RecordId(1), RecordId(322_680_000_131_072)), (RecordId(2), RecordId(3))];
        let whole = Answer { ids, result: Bytes::from_static(b"{}") }.to_bytes().to_vec();
        for at in 0..whole.len() {
            read(&whole[..at]);
            for end in at + 1..=whole.len() {
                let huge = [&whole[..at], &HUGE, &whole[end..]].concat();
                read(&huge);
            }
            for byte in 0..=u8::MAX {
                let mut changed = whole.clone();
                changed[at] = byte;
                read(&changed);
                for other in [0, 1, 0x7f, 0x80, 0xff] {
                    changed[(at + 1) % whole.len()] = other;
                    read(&changed);
                }
            }
        }
    }
}
