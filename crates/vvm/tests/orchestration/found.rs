//! Wrong nodes. Each mistake with owners and moves must be found by the test that is for it.
//!
//! The owner of a partition is decided inside of the node. So most mistakes change what the node
//! reads and writes of the rows of owners and leases. The rows are then what the wrong code would
//! have seen or written. Mistakes in answers replace the answers of the node.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
    time::Duration,
};

use clock::{Clock, Instant};
use futures::{FutureExt, StreamExt, TryStreamExt, future::ready, stream};
use ielections::Incarnation;
use istorage::{
    Call, CallAnswer, Conditional, ExpiringRowStream, Outcome, RangeRead, Row, RowStream,
    SharedStorage, StorageWrapper, Write, bytes::Bytes,
};
use processor::{Busy, Command, Commands, Done, Refused};
use sysvvm::ownership::{OwnerEpoch, OwnerRow};
use tck::trial::finding_of;

use crate::{moves, owners};

/// The partition keys of leases and of owners.
const LEASES: [u8; 4] = [0, 0, 0, 1];
const OWNERS: [u8; 4] = [0, 0, 0, 9];

/// The incarnation of the node that takes partitions away.
const STRANGER: Incarnation = Incarnation(0xb);

/// One of this many answers is wrong.
const ONE_IN: u64 = 50;

/// A mistake of a node with the owners of partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnerDefect {
    /// A node that takes a partition begins again with the first epoch.
    EpochForgotten,
    /// A node takes only the first partitions, and believes that it has all.
    OnlyFirstTaken,
    /// A node does not see the lease of the owner of a partition.
    LeaseNotSeen,
    /// A node does not see that another node took its partition.
    LossNotSeen,
}

/// A mistake of a node with one of its answers. Each is made in a workspace of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnswerDefect {
    /// A command is dropped, and answered as the one before.
    DroppedIsDone,
    /// A command that is done is refused as if nothing was done, so it is sent again.
    DoneIsRefused,
    /// The outcome of a command that is done is not known.
    OutcomeForgotten,
    /// A command waits for long.
    WaitsForLong,
}

const ANSWER_DEFECTS: [(AnswerDefect, &str); 4] = [
    (AnswerDefect::DroppedIsDone, "a command was lost"),
    (AnswerDefect::DoneIsRefused, "a command was done twice"),
    (AnswerDefect::OutcomeForgotten, "a planned move leaves no outcome unknown"),
    (AnswerDefect::WaitsForLong, "a command waited"),
];

thread_local! {
    /// What is wrong. The runtime of a test runs on the thread of the test.
    static OWNER_DEFECT: Cell<Option<OwnerDefect>> = const { Cell::new(None) };
    static ANSWERS_ARE_WRONG: Cell<bool> = const { Cell::new(false) };
    /// The number of answers of each workspace, and the last command that was done.
    static ANSWERS: RefCell<HashMap<u64, (u64, Option<Done>)>> = RefCell::default();
}

/// The system keyspace as a node uses it.
pub(crate) fn with_defect(inner: SharedStorage) -> SharedStorage {
    match OWNER_DEFECT.get() {
        Some(defect) => Arc::new(WrongOwners { inner, defect, written: Arc::default() }),
        None => inner,
    }
}

/// Sends a command to a node that owns its partition.
pub(crate) async fn run(commands: &Commands, command: Command) -> Result<Done, Refused> {
    let ws = command.ws.0;
    let defect = ANSWER_DEFECTS.get(ws as usize).filter(|_| ANSWERS_ARE_WRONG.get());
    let Some((defect, _)) = defect else { return commands.run(command).await };
    let (count, last) = ANSWERS.with_borrow_mut(|answers| {
        let (count, last) = answers.entry(ws).or_default();
        *count += 1;
        (*count, last.clone())
    });
    match (last, defect) {
        (Some(last), AnswerDefect::DroppedIsDone) if count % ONE_IN == 0 => return Ok(last),
        (_, AnswerDefect::WaitsForLong) if count % ONE_IN == 0 => {
            Clock::system().sleep(Duration::from_millis(600)).await;
        }
        _ => {}
    }
    let done = commands.run(command).await?;
    ANSWERS.with_borrow_mut(|answers| answers.entry(ws).or_default().1 = Some(done.clone()));
    match defect {
        AnswerDefect::DoneIsRefused if count % ONE_IN == 0 => Err(Refused::Busy(Busy::Stopping)),
        AnswerDefect::OutcomeForgotten if count % ONE_IN == 0 => {
            Err(Refused::Unknown("the partition moves".to_owned()))
        }
        _ => Ok(done),
    }
}

/// The rows of owners and leases as a wrong node sees and writes them.
#[derive(Debug)]
struct WrongOwners {
    inner: SharedStorage,
    defect: OwnerDefect,
    /// The owners that the node believes it has written, by the places of their rows.
    written: Arc<Mutex<HashMap<Bytes, Bytes>>>,
}

impl WrongOwners {
    /// The operations that a wrong node sends.
    fn sent(&self, ops: Vec<Conditional>) -> Vec<Conditional> {
        let mut written = self.written.lock().unwrap();
        let mut sent = Vec::new();
        for op in ops {
            let ccols = op.ccols().clone();
            let before = written.get(&ccols).cloned();
            written.extend(op.written().map(|new| (ccols.clone(), new.clone())));
            // The place ends with the number of the partition.
            let is_first = ccols.ends_with(&[0, 99]) || ccols.last() < Some(&99);
            match op {
                _ if self.defect == OwnerDefect::OnlyFirstTaken && !is_first => {}
                Conditional::Swap { old, new, ttl, .. }
                    if self.defect == OwnerDefect::EpochForgotten =>
                {
                    let is_own = before.as_ref() == Some(&old);
                    let old = if is_own { first_epoch(&old) } else { old };
                    let new = first_epoch(&new);
                    sent.push(Conditional::Swap { ccols, old, new, ttl });
                }
                op => sent.push(op),
            }
        }
        sent
    }
}

/// The same owner in the first epoch.
fn first_epoch(row: &Bytes) -> Bytes {
    let row = OwnerRow::from_bytes(row).unwrap();
    OwnerRow { epoch: OwnerEpoch(1), ..row }.to_bytes()
}

/// The rows of owners as a wrong node sees them.
fn seen(
    defect: OwnerDefect,
    written: &HashMap<Bytes, Bytes>,
    mut rows: BTreeMap<Bytes, Bytes>,
) -> BTreeMap<Bytes, Bytes> {
    for (ccols, believed) in written {
        let there = rows.get(ccols);
        let owner = there.and_then(|there| OwnerRow::from_bytes(there)?.owner);
        let is_believed = match defect {
            OwnerDefect::EpochForgotten => there == Some(&first_epoch(believed)),
            OwnerDefect::OnlyFirstTaken => there.is_none(),
            OwnerDefect::LossNotSeen => owner.is_some_and(|owner| owner.incarnation == STRANGER),
            OwnerDefect::LeaseNotSeen => false,
        };
        if is_believed {
            rows.insert(ccols.clone(), believed.clone());
        }
    }
    rows
}

impl StorageWrapper for WrongOwners {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn call(&self, call: Call<'_>, deadline: Instant) -> istorage::Result<CallAnswer> {
        match call {
            Call::Write(Write::If(pkey, ops)) if pkey == OWNERS[..] => {
                let ops = self.sent(ops);
                if ops.is_empty() {
                    return Ok(Outcome::Applied.into());
                }
                Ok(self.inner.write_if(pkey, ops, deadline).await?.into())
            }
            call => call.send(&self.inner, deadline).await,
        }
    }

    fn read(&self, read: RangeRead) -> RowStream {
        let (defect, written) = (self.defect, Arc::clone(&self.written));
        let (is_of_owners, is_of_leases) = (read.pkey == OWNERS[..], read.pkey == LEASES[..]);
        let rows = read.send(&self.inner);
        if is_of_leases && defect == OwnerDefect::LeaseNotSeen {
            return rows.try_filter(|row| ready(!is_of_stranger(&row.ccols))).boxed();
        }
        if !is_of_owners {
            return rows;
        }
        let read = async move {
            let rows = rows.map_ok(|row| (row.ccols, row.value)).try_collect().await?;
            let rows = seen(defect, &written.lock().unwrap(), rows);
            let rows = rows.into_iter().map(|(ccols, value)| Ok(Row { ccols, value }));
            istorage::Result::Ok(stream::iter(rows))
        };
        stream::once(read).try_flatten().boxed()
    }

    fn ttl_read(&self, read: RangeRead) -> ExpiringRowStream {
        let hides = self.defect == OwnerDefect::LeaseNotSeen && read.pkey == LEASES[..];
        let rows = read.send_with_ttl(&self.inner);
        rows.try_filter(move |row| ready(!hides || !is_of_stranger(&row.ccols))).boxed()
    }
}

/// Whether a lease is that of the node which takes partitions away. It has seat 9.
fn is_of_stranger(seat: &Bytes) -> bool {
    seat.ends_with(&[9])
}

#[test]
fn every_mistake_with_owners_is_found() {
    let tests: [(OwnerDefect, fn(), &str); 4] = [
        (
            OwnerDefect::EpochForgotten,
            owners::the_epochs_of_partitions_rise_with_each_leader,
            "left: [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]",
        ),
        (
            OwnerDefect::OnlyFirstTaken,
            owners::more_partitions_than_one_call_takes_are_taken,
            "partitions have an owner",
        ),
        (
            OwnerDefect::LeaseNotSeen,
            owners::a_partition_is_taken_only_after_its_owner_has_lost_its_lease,
            "a partition was taken from an owner that lives",
        ),
        (
            OwnerDefect::LossNotSeen,
            owners::a_node_whose_partition_was_taken_ends_its_leadership,
            "does not notice that it lost a partition",
        ),
    ];
    let mut wrong = Vec::new();
    for (defect, test, expected) in tests {
        OWNER_DEFECT.set(Some(defect));
        let found = finding_of(async { test() }).now_or_never().expect("a test has a runtime");
        OWNER_DEFECT.set(None);
        if !found.as_ref().is_some_and(|found| found.contains(expected)) {
            wrong.push(format!("{defect:?}: expected `{expected}`, found {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test]
async fn every_mistake_under_moves_is_found() {
    ANSWERS_ARE_WRONG.set(true);
    let findings = moves::move_under_load(2).await;
    ANSWERS_ARE_WRONG.set(false);
    for ((defect, expected), found) in ANSWER_DEFECTS.into_iter().zip(findings) {
        let is_right = found.as_ref().is_some_and(|found| found.starts_with(expected));
        assert!(is_right, "{defect:?}: expected `{expected}`, found {found:?}");
    }
}
