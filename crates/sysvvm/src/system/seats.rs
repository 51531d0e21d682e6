//! The number of seats of a cluster.

use std::num::NonZeroU32;

use bytes::Bytes;
use clock::Instant;

use super::System;
use crate::{Error, Result, layout};

impl System {
    /// Fixes the number of seats of the cluster. The first call decides the number. Any number of
    /// nodes may call at once.
    ///
    /// # Errors
    /// [`Error::OtherSeats`] if another number was decided before.
    pub async fn fix_seats(&self, seats: NonZeroU32, deadline: Instant) -> Result<()> {
        let ours = Bytes::copy_from_slice(&seats.get().to_be_bytes());
        let there = self.get_or_insert(layout::seats(), ours.clone(), deadline).await?;
        if there == ours {
            return Ok(());
        }
        match there.as_ref().try_into().map(u32::from_be_bytes) {
            Ok(stored) => Err(Error::OtherSeats { stored, wanted: seats.get() }),
            Err(_) => Err(Error::Foreign {
                what: format!("the number of seats, {there:?}, does not have 4 bytes"),
            }),
        }
    }
}
