//! The format of the system keyspace.

use std::cmp::Ordering;

use clock::Instant;

use super::System;
use crate::{Error, Result, layout};

/// The format that this program writes, and the only one that it reads.
///
/// In format 1 the epochs of a partition's log were those of a lease. Since format 2 they are those
/// of the ownership row, which begin at 1. So an older log has epochs that are too high.
pub const FORMAT_VERSION: u32 = 2;

/// The first bytes of the row of the format. The version follows as a u32.
const FORMAT_MAGIC: &[u8; 4] = b"VVM\0";

impl System {
    /// Checks the format of the system keyspace. The first node writes the format.
    pub(super) async fn check_format(&self, deadline: Instant) -> Result<()> {
        let mut ours = FORMAT_MAGIC.to_vec();
        ours.extend_from_slice(&FORMAT_VERSION.to_be_bytes());
        let there = self.get_or_insert(layout::format(), ours.into(), deadline).await?;
        let version = there.strip_prefix(FORMAT_MAGIC).and_then(|version| version.try_into().ok());
        match version.map(u32::from_be_bytes) {
            None | Some(0) => {
                Err(Error::Foreign { what: format!("its format {there:?} is unknown") })
            }
            Some(found) => check(found),
        }
    }
}

/// Checks the format of the system keyspace, or of an application.
pub(super) fn check(found: u32) -> Result<()> {
    match found.cmp(&FORMAT_VERSION) {
        Ordering::Less => Err(Error::OlderFormat { found, needed: FORMAT_VERSION }),
        Ordering::Equal => Ok(()),
        Ordering::Greater => Err(Error::NewerFormat { found, known: FORMAT_VERSION }),
    }
}
