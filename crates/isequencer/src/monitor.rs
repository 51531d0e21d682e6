//! A view of the state of a sequencer, for any thread.

use std::sync::Arc;

use crate::{
    Offset, SeqId, SequencerBusy, StorageError, Unflushed, WsId, engine::Phase,
    shared::SharedEngine,
};

/// A view of the state of a sequencer.
#[derive(Clone, Debug)]
pub struct Monitor(pub(crate) Arc<SharedEngine>);

impl Monitor {
    /// Returns why no transaction can begin now; `None` if one can.
    pub fn busy(&self) -> Option<SequencerBusy> {
        self.0.engine().admit().err()
    }

    /// Returns the numbers and events that wait to be stored.
    pub fn unflushed(&self) -> Unflushed {
        self.0.engine().unflushed()
    }

    /// Returns the last number that finished transactions drew from a sequence of a workspace, if
    /// the number is not stored yet.
    ///
    /// To look up a number, ask here first and the storage afterwards: one of the two has the
    /// number.
    pub fn unflushed_number(&self, ws: WsId, seq: SeqId) -> Option<u64> {
        let numbers = self.0.engine().unflushed_numbers(ws, &[seq]);
        numbers.first().copied().filter(|number| *number > 0)
    }

    /// Returns the offset of the next event; `None` unless numbers can be drawn.
    pub fn next_offset(&self) -> Option<Offset> {
        self.0.engine().next_offset()
    }

    pub(crate) fn phase(&self) -> Phase {
        self.0.engine().phase()
    }

    /// Returns the error of the storage, while the storage fails.
    pub fn last_error(&self) -> Option<Arc<StorageError>> {
        self.0.engine().last_error()
    }
}
