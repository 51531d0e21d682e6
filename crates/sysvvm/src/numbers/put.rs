//! Writes of number rows that are read back.
//!
//! The rows are written with an order, so that a late write never lowers a number. A row that was
//! written plainly or conditionally hides such a write: the storage acknowledges the write, and the
//! row stays. Other programs and repairs leave such rows. So each row is read back, and a row that
//! hides its number is written conditionally.
//!
//! Invariant: `Ok` means that the storage has shown each number, or a higher one.

use std::{cmp::Ordering, collections::BTreeMap, time::Duration};

use bytes::Bytes;
use clock::Instant;
use futures::{TryStreamExt, stream};
use istorage::{Conditional, ErrorKind, FoundRow, Key, Order, OrderedPut};

use super::{LastNumber, NO_NUMBER, NumberRows, StoredOffset, corrupt, number_in};
use crate::{Error, Result};

/// How many conditional writes are sent at a time, each to a different storage partition.
const CONDITIONAL_AT_ONCE: usize = 16;

/// How long smaller parts are tried after the last part that was stored.
const TRY_FOR: Duration = Duration::from_secs(5);

/// A number to be stored in a row.
#[derive(Clone, Debug)]
struct NumberPut {
    key: Key,
    /// The bytes of the ordered write.
    value: u64,
    /// Of two writes of the row, the one with the higher rank stays. A row that is written
    /// conditionally holds the rank.
    rank: u64,
    order: Order,
    is_offset: bool,
}

impl NumberPut {
    /// The last number of a sequence.
    fn of_number(key: Key, number: u64) -> Result<NumberPut> {
        let order = Order::new(number)?;
        Ok(NumberPut { key, value: number, rank: number, order, is_offset: false })
    }

    /// The stored offset of a leader.
    ///
    /// The order of the write has the epoch, so that no earlier leader replaces the offset. A row
    /// that is written conditionally has no order, so its bytes have the epoch. A simpler version
    /// writes the offset alone. Leader A stalls at trust level 2 before it swaps offset 9 for 12;
    /// leader B has other events than A from 9 on, and its offset is 9, too; A's swap lands; B
    /// writes event 9, and ends before it stores its number. The next leader reads the log from
    /// 12, and gives the number again.
    fn of_offset(key: Key, epoch: u64, next: u64) -> Result<NumberPut> {
        let order = Order::from_parts(epoch, next)?;
        Ok(NumberPut {
            key,
            value: next,
            rank: order.rank().unsigned_abs(),
            order,
            is_offset: true,
        })
    }

    fn by_key(&self, other: &NumberPut) -> Ordering {
        self.key.cmp(&other.key)
    }

    fn ordered(&self) -> OrderedPut {
        let value = Bytes::copy_from_slice(&self.value.to_be_bytes());
        OrderedPut { key: self.key.clone(), value, order: self.order, ttl: None }
    }

    /// Whether the row shows this number, or one of a higher rank.
    fn is_shown_by(&self, found: Option<&FoundRow>) -> bool {
        match found {
            // The order of such a row is not below that of this write.
            Some(row) if self.is_offset && !row.hides_ordered => true,
            Some(row) => number_in(&row.value).is_some_and(|there| there >= self.rank),
            None => false,
        }
    }
}

/// A row that does not show its number.
struct HiddenRow {
    put: NumberPut,
    found: Option<FoundRow>,
}

impl HiddenRow {
    /// The write of the number, on the condition that the row is unchanged.
    ///
    /// The number follows from the events of the log, and is the last one that was given. So it
    /// also replaces bytes that are no number.
    fn write(&self) -> Conditional {
        let (ccols, ttl) = (self.put.key.ccols.clone(), None);
        let value = Bytes::copy_from_slice(&self.put.rank.to_be_bytes());
        match &self.found {
            None => Conditional::Insert { ccols, value, ttl },
            Some(row) => Conditional::Swap { ccols, old: row.value.clone(), new: value, ttl },
        }
    }
}

impl NumberRows {
    /// Stores numbers that no event has, so that no lower ones are given. A stored number that is
    /// higher stays. Makes the calls of [`NumberRows::store`].
    ///
    /// # Errors
    /// Fails with errors of the storage and of `deadline`. Then any of them may be stored, even
    /// later.
    pub async fn raise<D: Future<Output = Result<Instant>>>(
        &self,
        numbers: &[LastNumber],
        deadline: impl Fn() -> D,
    ) -> Result<()> {
        self.put_in_parts(&self.puts_of(numbers)?, &deadline).await
    }

    /// Stores numbers and the offset. The offset is stored after the storage has shown all numbers.
    ///
    /// Before each call of the storage, `deadline` permits the call and returns its deadline. After
    /// a call that took a while and failed, the next calls are for fewer rows. So the numbers are
    /// stored if the storage can do each single row within one call.
    ///
    /// # Errors
    /// Fails with errors of the storage and of `deadline`. Then any part may be stored, even later,
    /// but never the offset without its numbers.
    pub async fn store<D: Future<Output = Result<Instant>>>(
        &self,
        numbers: &[LastNumber],
        replayed: StoredOffset,
        deadline: impl Fn() -> D,
    ) -> Result<()> {
        let numbers = self.puts_of(numbers)?;
        let StoredOffset { partition, epoch, next } = replayed;
        let offset = NumberPut::of_offset(self.keys.offset(partition), epoch, next)?;
        self.put_in_parts(&numbers, &deadline).await?;
        self.put_in_parts(&[offset], &deadline).await
    }

    fn puts_of(&self, numbers: &[LastNumber]) -> Result<Vec<NumberPut>> {
        let put = |LastNumber { ws, seq, number }: &LastNumber| {
            NumberPut::of_number(self.sequence_key(*ws, *seq), *number)
        };
        let mut puts = numbers.iter().map(put).collect::<Result<Vec<_>>>()?;
        // The numbers of a workspace share a storage partition, and should be in one part.
        puts.sort_unstable_by(NumberPut::by_key);
        Ok(puts)
    }

    /// Writes numbers, each in another row, in parts. If a part takes too long, the next part has
    /// half as many rows.
    ///
    /// A simpler version writes all numbers by one call. A recovery has 500 numbers to store, and
    /// the storage needs longer for them than a call may take. So each try makes the same call, and
    /// fails.
    ///
    /// Invariant: an attempt without an answer is not forgotten. In another version the put of 500
    /// numbers gets no answer, and a smaller part meets a damaged row; the version returns the
    /// error of the damaged row, which leaves no write open. So the first put may land under the
    /// next leader.
    async fn put_in_parts<D: Future<Output = Result<Instant>>>(
        &self,
        mut left: &[NumberPut],
        deadline: &impl Fn() -> D,
    ) -> Result<()> {
        let (mut until, mut failed) = (self.clock.now() + TRY_FOR, None);
        while !left.is_empty() {
            let part = self.at_once.first(left);
            match self.put_shown(part, deadline).await {
                Ok(()) => {
                    left = &left[part.len()..];
                    until = self.clock.now() + TRY_FOR;
                }
                Err(error) => {
                    let has_fewer = self.at_once.first(left).len() < part.len();
                    if !is_retryable(&error) || !has_fewer || self.clock.now() >= until {
                        return Err(failed.unwrap_or(error));
                    }
                    failed = Some(error);
                }
            }
        }
        Ok(())
    }

    /// Writes numbers, each in another row, and reads the rows back. Writes each row conditionally
    /// that hides its number.
    ///
    /// The condition is exactly the row that was read, and a row never returns to a lower rank. So
    /// a conditional write may land at any later time, even after its leader has lost the lease: it
    /// lands only if no later number was written.
    ///
    /// A simpler version trusts the acknowledgement of the ordered write. A row hides number 13;
    /// the write of 13 is acknowledged, and the offset of its event is stored; the node restarts,
    /// and reads the number 10. So 11, 12 and 13 are given again.
    ///
    /// Another version asks whether a row hides ordered writes when it loads the number for a
    /// command, and does not read back. The number 10 is loaded; another program writes the row;
    /// the number 13 is put, and is hidden.
    async fn put_shown<D: Future<Output = Result<Instant>>>(
        &self,
        puts: &[NumberPut],
        deadline: &impl Fn() -> D,
    ) -> Result<()> {
        let until = deadline().await?;
        let start = self.clock.now();
        let hidden = async {
            self.storage.put_ordered(puts.iter().map(NumberPut::ordered).collect(), until).await?;
            self.hidden(puts, deadline().await?).await
        };
        let hidden = hidden.await;
        let (took, timeout) = (self.clock.now() - start, until - start);
        match hidden.is_ok() {
            true => self.at_once.note_done(puts.len(), took, timeout),
            false => self.at_once.note_failed(puts.len(), took),
        }
        let hidden = hidden?;
        if hidden.is_empty() {
            return Ok(());
        }
        self.replace(&hidden, deadline).await?;
        // The outcomes of the conditional writes do not count: another leader may have stored a
        // higher number, and a storage may not show a write that it has applied.
        let replaced: Vec<_> = hidden.into_iter().map(|row| row.put).collect();
        match self.hidden(&replaced, deadline().await?).await?.first() {
            None => Ok(()),
            Some(HiddenRow { put, .. }) => Err(not_shown(&self.name_of(&put.key))),
        }
    }

    /// Replaces the bytes of a row by a number. Returns whether the row held exactly the bytes
    /// `found`.
    ///
    /// # Errors
    /// Fails with errors of the storage. Then the number may be stored, even later.
    pub async fn replace_number(
        &self,
        key: &Key,
        found: Bytes,
        number: u64,
        deadline: Instant,
    ) -> Result<bool> {
        let key = key.clone();
        let value = Bytes::copy_from_slice(&number.to_be_bytes());
        let swap =
            Conditional::Swap { ccols: key.ccols.clone(), old: found, new: value, ttl: None };
        if !self.storage.write_if(key.pkey.clone(), vec![swap], deadline).await?.is_applied() {
            return Ok(false);
        }
        match self.row(&key, deadline).await? {
            // The partition may have stored a higher one already.
            Some(there) if number_in(&there) >= Some(number) => Ok(true),
            _ => Err(not_shown(&self.name_of(&key))),
        }
    }

    /// Replaces the bytes of the row of a stored offset, as [`NumberRows::replace_number`] does.
    ///
    /// # Errors
    /// Those of [`NumberRows::replace_number`].
    pub async fn replace_offset(
        &self,
        found: Bytes,
        replayed: StoredOffset,
        deadline: Instant,
    ) -> Result<bool> {
        let StoredOffset { partition, epoch, next } = replayed;
        let put = NumberPut::of_offset(self.keys.offset(partition), epoch, next)?;
        self.replace_number(&put.key, found, put.rank, deadline).await
    }

    /// Reads rows that were put, and returns those that do not show their numbers.
    async fn hidden(&self, puts: &[NumberPut], deadline: Instant) -> Result<Vec<HiddenRow>> {
        let keys: Vec<Key> = puts.iter().map(|put| put.key.clone()).collect();
        let rows = self.storage.get_batch(&keys, deadline).await?;
        let mut hidden = Vec::new();
        for (put, found) in puts.iter().cloned().zip(rows) {
            if put.is_shown_by(found.as_ref()) {
                continue;
            }
            match found {
                // An ordered write stays unless a higher one exists. So these bytes may be a
                // number above that of this write.
                Some(row) if !row.hides_ordered => {
                    let what = self.name_of(&put.key);
                    return Err(match number_in(&row.value) {
                        Some(_) => not_shown(&what),
                        None => corrupt(what, put.key, row.value, NO_NUMBER),
                    });
                }
                found => hidden.push(HiddenRow { put, found }),
            }
        }
        Ok(hidden)
    }

    /// Writes rows conditionally, those of each storage partition together. If a row has changed,
    /// it is left out together with the other rows of its storage partition.
    async fn replace<D: Future<Output = Result<Instant>>>(
        &self,
        hidden: &[HiddenRow],
        deadline: &impl Fn() -> D,
    ) -> Result<()> {
        let most = self.storage.capabilities().conditional.rows;
        let mut writes: BTreeMap<&Bytes, Vec<Conditional>> = BTreeMap::new();
        for row in hidden {
            writes.entry(&row.put.key.pkey).or_default().push(row.write());
        }
        let writes = writes.into_iter().map(Ok::<_, Error>);
        let written = stream::iter(writes).try_for_each_concurrent(
            CONDITIONAL_AT_ONCE,
            async |(pkey, ops)| {
                for ops in ops.chunks(most) {
                    let until = deadline().await?;
                    let _outcome = self.storage.write_if(pkey.clone(), ops.to_vec(), until).await?;
                }
                Ok(())
            },
        );
        written.await
    }
}

fn is_retryable(error: &Error) -> bool {
    use ErrorKind::{OutcomeUnknown, Unavailable};
    matches!(error, Error::Storage(error) if matches!(error.kind(), Unavailable | OutcomeUnknown))
}

fn not_shown(what: &str) -> Error {
    istorage::Error::unavailable(format!(
        "the storage does not show its last write of {what}: it has lost the write, or another \
         program has written or deleted the row with a time that is ahead"
    ))
    .into()
}
