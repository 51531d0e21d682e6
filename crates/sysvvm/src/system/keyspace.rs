//! A keyspace that a node has made, and that some servers may not show yet.

use std::time::Duration;

use clock::{Clock, Instant};
use istorage::{KeyspaceName, SharedStorage, StorageDriver};

use crate::Result;

/// How long after one server of a storage shows a keyspace every server shows it.
const SHOWN_WITHIN: Duration = Duration::from_secs(10);

/// The pause between two tries to open a keyspace that must exist.
const OPEN_PAUSE: Duration = Duration::from_millis(200);

/// Opens a keyspace that must exist.
///
/// Another node may have made the keyspace just now, and some servers of a storage may show it
/// later than others. So the keyspace counts as lost only after it was missing for
/// [`SHOWN_WITHIN`].
pub(super) async fn open_existing(
    driver: &dyn StorageDriver,
    clock: &Clock,
    keyspace: &KeyspaceName,
    deadline: Instant,
) -> Result<SharedStorage> {
    let shown_by = clock.now() + SHOWN_WITHIN;
    loop {
        if let Some(storage) = driver.open(keyspace, deadline).await? {
            return Ok(storage);
        }
        if clock.now() >= shown_by {
            return Err(istorage::Error::corrupt(format!(
                "the keyspace `{keyspace}` was created, and does not exist any more"
            ))
            .into());
        }
        let again = clock.now() + OPEN_PAUSE;
        if again >= deadline {
            return Err(istorage::Error::unavailable(format!(
                "the keyspace `{keyspace}` was created, and the storage does not show it yet"
            ))
            .into());
        }
        clock.sleep_until(again).await;
    }
}
