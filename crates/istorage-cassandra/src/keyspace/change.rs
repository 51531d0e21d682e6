//! Creates and drops keyspaces.

use std::{mem, time::Duration};

use base::with_causes;
use clock::Clock;
use istorage::{ErrorKind, KeyspaceName, Result};
use scylla::client::session::Session;

use super::{
    replication::strategy,
    retry::{LastFailure, pause},
    survey::{common_view, differ},
    view::KeyspaceView,
};
use crate::{
    Replication,
    errors::RequestKind,
    layout,
    limits::{KEEPALIVE, KEEPALIVE_TIMEOUT},
};

/// How long to wait for servers without a connection when a keyspace is created or dropped. In this
/// time, the client connects to any server that answers each of the client's few questions within 2
/// s.
///
/// Without this wait two tables can be created. Creator A reaches servers 1 and 2, creator B
/// reaches servers 2 and 3. Server 2 can then show the keyspace of A while server 3 already shows
/// the keyspace of B. So both create a table, and one of the two tables loses.
const UNCONNECTED_WAIT: Duration = KEEPALIVE.saturating_add(KEEPALIVE_TIMEOUT);

/// How often a server may refuse to create the table or to show it. A server also refuses for a
/// moment while it does not know the keyspace or the permissions yet.
const MAX_REFUSALS: usize = 100;

/// Makes sure that the keyspace exists and that all reachable servers know it.
pub(crate) async fn create(
    session: &Session,
    clock: &Clock,
    name: &KeyspaceName,
    replication: Option<&Replication>,
    last_failure: &mut LastFailure,
) -> Result<()> {
    let patient_until = clock.now() + UNCONNECTED_WAIT;
    let (mut refusals, mut is_logged) = (0, false);
    loop {
        let step = match common_view(session, clock, name, patient_until).await {
            Ok(KeyspaceView::Missing) => match strategy(session, replication) {
                Ok(strategy) => create_keyspace(session, name, &strategy).await,
                Err(error) => {
                    if !mem::replace(&mut is_logged, true) {
                        tracing::warn!(keyspace = %name, error = with_causes(&error), "waiting for Cassandra servers");
                    }
                    Err(error)
                }
            },
            Ok(KeyspaceView::Empty(created_at)) => {
                let table = layout::create_table(name.as_str(), table_id(name, created_at));
                match change(session, table).await {
                    Err(error) if error.kind() == ErrorKind::Invalid && refusals < MAX_REFUSALS => {
                        refusals += 1;
                        Ok(())
                    }
                    changed => changed,
                }
            }
            Ok(KeyspaceView::Ready(_)) => return Ok(()),
            Ok(KeyspaceView::Unfinished) => Err(differ(name)),
            // The creator of the table gets its permissions for the table a moment later.
            Err(error) if error.kind() == ErrorKind::Invalid && refusals < MAX_REFUSALS => {
                refusals += 1;
                Ok(())
            }
            Err(error) => Err(error),
        };
        pause(clock, step, last_failure).await?;
    }
}

/// Drops the keyspace if it exists.
pub(crate) async fn drop(
    session: &Session,
    clock: &Clock,
    name: &KeyspaceName,
    last_failure: &mut LastFailure,
) -> Result<()> {
    let patient_until = clock.now() + UNCONNECTED_WAIT;
    loop {
        let step = match common_view(session, clock, name, patient_until).await {
            Ok(KeyspaceView::Missing) => return Ok(()),
            Ok(_) => change(session, format!("DROP KEYSPACE IF EXISTS {name}")).await,
            Err(error) => Err(error),
        };
        pause(clock, step, last_failure).await?;
    }
}

async fn create_keyspace(session: &Session, name: &KeyspaceName, strategy: &str) -> Result<()> {
    tracing::info!(keyspace = %name, replication = strategy, "creating a keyspace");
    change(session, format!("CREATE KEYSPACE IF NOT EXISTS {name} WITH replication = {strategy}"))
        .await
}

/// The identity of a keyspace's table: the time of creation in the upper half, and a hash of the
/// name in the lower half. The bits of a UUID of version 8, the version for custom UUIDs, are set.
fn table_id(name: &KeyspaceName, created_at: i64) -> u128 {
    const VERSION: u128 = 0xf << 76;
    const VARIANT: u128 = 0b11 << 62;
    // FNV-1a.
    let hash = name.as_str().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    // A time in microseconds has less than 52 bits for another hundred years, so the bits of the
    // version replace no bit of the time.
    let time = u128::from(created_at.unsigned_abs());
    let (high, low) = (time >> 12, time & 0xfff);
    let id = high << 80 | low << 64 | u128::from(hash);
    id & !(VERSION | VARIANT) | 8 << 76 | 0b10 << 62
}

/// Runs a statement that changes the schema.
async fn change(session: &Session, text: String) -> Result<()> {
    let result = session.query_unpaged(text, ()).await;
    result.map(mem::drop).map_err(|error| RequestKind::Repeatable.failed(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str, created_at: i64) -> u128 {
        table_id(&KeyspaceName::new(name).unwrap(), created_at)
    }

    #[test]
    fn a_keyspace_that_is_created_again_gets_another_table_id() {
        const NOW: i64 = 1_795_237_782_051_000;
        assert_eq!(id("app_one", NOW), id("app_one", NOW));
        for later in [1, 0x1000, 1_000_000, 1 << 50] {
            assert_ne!(id("app_one", NOW), id("app_one", NOW + later));
        }
        assert_ne!(id("app_one", NOW), id("app_two", NOW));
    }

    #[test]
    fn a_table_id_is_a_uuid_of_version_8() {
        let statement = layout::create_table("app_one", id("app_one", 1_795_237_782_051_000));
        let id = statement.split('\'').nth(1).unwrap();
        let parts: Vec<usize> = id.split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12]);
        assert_eq!(&id[14..15], "8", "{id}");
        assert!("89ab".contains(&id[19..20]), "{id}");
    }
}
