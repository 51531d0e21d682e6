//! The sequencers of the partitions of an application.

use std::{
    fmt,
    sync::{Arc, atomic::AtomicBool},
};

use clock::Clock;

use super::EventSequencer;
use crate::{
    BadSequences, Params, SeqStorage, Sequencer,
    standard::{CRECORD_ID, RECORD_ID, WLOG_OFFSET},
};

/// Makes the sequencer of each partition of an application.
///
/// ```
/// # use std::{sync::Arc, time::Duration};
/// # use clock::Clock;
/// # use isequencer::{EventSequencerFactory, MemSeqStorage, Params, Sequences, WsId, WsKind, standard};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let kind = WsKind(1);
/// let params = Params::new("shop", Sequences::new().with(kind, standard::sequences())?);
/// let storage = Arc::new(MemSeqStorage::new());
/// let factory = EventSequencerFactory::new(params, Arc::new(move |_partition| storage.clone()), Clock::system())?;
///
/// let mut sequencer = factory.partition(1);
/// let mut event = sequencer.start_event(Duration::from_secs(1), kind, WsId(7)).await?;
/// assert_eq!((event.plog_offset().0, event.wlog_offset()), (1, 1));
/// assert_eq!(event.next_record_id()?, standard::FIRST_RECORD_ID);
/// event.finish(); // it is in the log, and applied
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct EventSequencerFactory {
    params: Params,
    storage: SeqStorageFactory,
    clock: Clock,
}

/// A function that returns the storage of the numbers of a partition.
pub type SeqStorageFactory = Arc<dyn Fn(u16) -> Arc<dyn SeqStorage> + Send + Sync>;

impl fmt::Debug for EventSequencerFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventSequencerFactory")
            .field("params", &self.params)
            .finish_non_exhaustive()
    }
}

impl EventSequencerFactory {
    /// Makes a factory for workspaces of all kinds that `params` declare. Each kind has the
    /// [standard](crate::standard) sequences, and may have others.
    ///
    /// The name of a partition in logs and metrics is the name in `params`, a slash, and the number
    /// of the partition.
    ///
    /// # Errors
    /// Fails if a kind lacks a standard sequence.
    pub fn new(
        params: Params,
        storage: SeqStorageFactory,
        clock: Clock,
    ) -> Result<EventSequencerFactory, BadSequences> {
        for kind in params.sequences.kinds() {
            for seq in [WLOG_OFFSET, RECORD_ID, CRECORD_ID] {
                if !params.sequences.has(kind, seq) {
                    return Err(BadSequences::NotStandard(kind, seq));
                }
            }
        }
        Ok(EventSequencerFactory { params, storage, clock })
    }

    /// Makes the sequencer of a partition. It begins at once to read the log of the partition.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime with timers.
    pub fn partition(&self, partition: u16) -> EventSequencer {
        let name = format!("{}/{partition}", self.params.partition);
        let params = Params { partition: name, ..self.params.clone() };
        let storage = (self.storage)(partition);
        let sequencer = Sequencer::new(params, storage, self.clock.clone());
        let is_eventing = Arc::new(AtomicBool::new(false));
        EventSequencer { sequencer, clock: self.clock.clone(), is_eventing }
    }
}
