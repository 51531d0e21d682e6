//! The number of slots of a cluster.

use std::num::NonZeroU32;

use bytes::Bytes;
use clock::Instant;

use super::System;
use crate::{Error, Result, layout};

impl System {
    /// Fixes the number of slots of the cluster. The first call decides the number. Any number of
    /// nodes may call at once.
    ///
    /// # Errors
    /// [`Error::OtherSlots`] if another number was decided before.
    pub async fn fix_slots(&self, slots: NonZeroU32, deadline: Instant) -> Result<()> {
        let ours = Bytes::copy_from_slice(&slots.get().to_be_bytes());
        let there = self.get_or_insert(layout::slots(), ours.clone(), deadline).await?;
        if there == ours {
            return Ok(());
        }
        match there.as_ref().try_into().map(u32::from_be_bytes) {
            Ok(stored) => Err(Error::OtherSlots { stored, wanted: slots.get() }),
            Err(_) => Err(Error::Foreign {
                what: format!("the number of slots, {there:?}, does not have 4 bytes"),
            }),
        }
    }
}
