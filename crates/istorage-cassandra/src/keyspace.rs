//! Keyspaces: what is there, making them, removing them.
//!
//! **A schema is not one thing.** Each server has its own copy, and learns of changes some moments later than others. So
//! making and removing a keyspace looks at every server that can be reached, and is done when all of them show the same
//! and answer a query. Nothing less will do: the servers' own sign of agreement, the schema version, can be equal
//! because none of them has come far enough to change it.
//!
//! **Creation by several nodes at once.** Two servers that create a table at the same moment give it two identities; one
//! of the two then loses, with whatever was written to it. So we choose the identity: it is made from the keyspace's name
//! and from the time at which the keyspace was created. All creators wait until the servers show the same time, so they
//! all create the same table. A keyspace that is dropped and created again has another time, so a server that slept
//! through the drop cannot bring the old rows back.

use std::{sync::Arc, time::Duration};

use clock::Clock;
use futures::future::{join_all, try_join_all};
use istorage::{Error, ErrorKind, KeyspaceName, Result};
use scylla::{
    client::session::Session,
    cluster::Node,
    deserialize::row::DeserializeRow,
    policies::load_balancing::{NodeIdentifier, SingleTargetLoadBalancingPolicy},
    response::query_result::QueryRowsResult,
    statement::Statement,
    value::CqlValue,
};

use crate::{
    Replication,
    connect::datacenters,
    errors::Request,
    layout::{self, COLUMNS, TABLE},
};

/// How long a server is left alone before it is asked again.
const PAUSE: Duration = Duration::from_millis(50);

/// How often a server may refuse to create the table. One that does not know the keyspace yet refuses too, for a moment.
const REFUSALS: usize = 100;

/// What one server has under the name of a keyspace.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Found {
    Nothing,
    /// A keyspace without tables, and when it was created: one of ours whose making did not come further yet, or one that an
    /// operator prepared with a replication of his own.
    Empty(i64),
    /// Our table, of which the server does not know all columns yet.
    Unfinished,
    /// A keyspace of ours, with its table's identity.
    Ours(CqlValue),
}

/// What some server has under this name.
///
/// # Errors
/// `Corrupt` if it is not ours.
pub(crate) async fn find(session: &Session, name: &KeyspaceName) -> Result<Found> {
    look(session, None, name).await
}

/// Makes sure that the keyspace is there and that all servers that can be reached know it.
pub(crate) async fn create(
    session: &Session,
    clock: &Clock,
    name: &KeyspaceName,
    replication: Option<&Replication>,
) -> Result<()> {
    let mut refusals = 0;
    loop {
        match everywhere(session, name).await? {
            Some(Found::Nothing) => create_keyspace(session, name, replication).await?,
            Some(Found::Empty(created_at)) => {
                let table = layout::create_table(name.as_str(), table_id(name, created_at));
                match change(session, table).await {
                    Err(error) if error.kind() == ErrorKind::Invalid && refusals < REFUSALS => {
                        refusals += 1
                    }
                    changed => changed?,
                }
            }
            Some(Found::Ours(_)) if is_usable_everywhere(session, name).await => return Ok(()),
            Some(Found::Unfinished | Found::Ours(_)) | None => {}
        }
        clock.sleep(PAUSE).await;
    }
}

/// Removes it, if it is there.
pub(crate) async fn drop(session: &Session, clock: &Clock, name: &KeyspaceName) -> Result<()> {
    if everywhere(session, name).await? == Some(Found::Nothing) {
        return Ok(());
    }
    change(session, format!("DROP KEYSPACE IF EXISTS {name}")).await?;
    while everywhere(session, name).await? != Some(Found::Nothing) {
        clock.sleep(PAUSE).await;
    }
    Ok(())
}

/// What all servers that can be reached have; `None` while they differ.
async fn everywhere(session: &Session, name: &KeyspaceName) -> Result<Option<Found>> {
    let nodes = nodes(session);
    let mut found =
        try_join_all(nodes.iter().map(|node| look(session, Some(node), name))).await?.into_iter();
    let first =
        found.next().ok_or_else(|| Error::unavailable("no Cassandra server is connected"))?;
    Ok(found.all(|other| other == first).then_some(first))
}

/// Whether every server answers a query; one that shows the table may not have opened it yet.
async fn is_usable_everywhere(session: &Session, name: &KeyspaceName) -> bool {
    let nodes = nodes(session);
    let text = format!("SELECT value FROM {name}.{TABLE} WHERE p_key = 0x00 AND c_col = 0x00");
    let answers = join_all(nodes.iter().map(|node| query(session, Some(node), text.clone()))).await;
    answers.iter().all(Result::is_ok)
}

/// The servers with which there is a connection.
fn nodes(session: &Session) -> Vec<Arc<Node>> {
    let state = session.get_cluster_state();
    state.get_nodes_info().iter().filter(|node| node.is_connected()).cloned().collect()
}

/// What `node` has, or any server.
async fn look(session: &Session, node: Option<&Arc<Node>>, name: &KeyspaceName) -> Result<Found> {
    let text = format!(
        "SELECT writetime(durable_writes) FROM system_schema.keyspaces WHERE keyspace_name = '{name}'"
    );
    let Some((created_at,)) = rows::<(i64,)>(session, node, text).await?.pop() else {
        return Ok(Found::Nothing);
    };
    let text =
        format!("SELECT table_name, id FROM system_schema.tables WHERE keyspace_name = '{name}'");
    let mut tables = rows::<(String, CqlValue)>(session, node, text).await?;
    if let Some((other, _)) = tables.iter().find(|(table, _)| table != TABLE) {
        return Err(foreign(name, &format!("it has a table `{other}`")));
    }
    let Some((_, id)) = tables.pop() else {
        return Ok(Found::Empty(created_at));
    };
    let text = format!(
        "SELECT column_name, kind, type, clustering_order FROM system_schema.columns WHERE keyspace_name = '{name}' AND \
         table_name = '{TABLE}'"
    );
    let columns = rows::<(String, String, String, String)>(session, node, text).await?;
    if !columns.iter().all(|column| COLUMNS.contains(&strs(column))) {
        return Err(foreign(name, &format!("its table `{TABLE}` has other columns")));
    }
    if columns.len() < COLUMNS.len() {
        return Ok(Found::Unfinished);
    }
    Ok(Found::Ours(id))
}

fn strs((name, kind, r#type, order): &(String, String, String, String)) -> [&str; 4] {
    [name, kind, r#type, order]
}

fn foreign(name: &KeyspaceName, why: &str) -> Error {
    Error::corrupt(format!("the keyspace `{name}` was not made by this program: {why}"))
}

async fn create_keyspace(
    session: &Session,
    name: &KeyspaceName,
    replication: Option<&Replication>,
) -> Result<()> {
    let replication = match replication {
        Some(replication) => replication.clone(),
        None => usual_replication(session)?,
    };
    let strategy = strategy(&replication);
    tracing::info!(keyspace = %name, replication = strategy, "creating a keyspace");
    change(session, format!("CREATE KEYSPACE IF NOT EXISTS {name} WITH replication = {strategy}"))
        .await
}

/// The time in the upper half and a hash of the name in the lower, with the bits of a UUID of one's own making (version 8).
fn table_id(name: &KeyspaceName, created_at: i64) -> u128 {
    const VERSION: u128 = 0xf << 76;
    const VARIANT: u128 = 0b11 << 62;
    // FNV-1a.
    let hash = name.as_str().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    // A time in microseconds has less than 52 bits for another hundred years, so that the version's bits cost nothing.
    let time = u128::from(created_at.unsigned_abs());
    let (high, low) = (time >> 12, time & 0xfff);
    let id = high << 80 | low << 64 | u128::from(hash);
    id & !(VERSION | VARIANT) | 8 << 76 | 0b10 << 62
}

/// Three replicas in every datacenter, or as many as it has nodes.
fn usual_replication(session: &Session) -> Result<Replication> {
    const REPLICAS: usize = 3;
    let datacenters = datacenters(session);
    for (datacenter, nodes) in datacenters.iter().filter(|(_, nodes)| *nodes < REPLICAS) {
        tracing::warn!(
            datacenter,
            nodes,
            "a keyspace gets less than three replicas because there are less than three nodes; raise its replication when \
             there are more, or set it in the configuration"
        );
    }
    let factors = datacenters
        .into_iter()
        .map(|(name, nodes)| (name, u8::try_from(nodes.min(REPLICAS)).unwrap_or(1)));
    let replication = Replication::Datacenters(factors.collect());
    replication.check().map_err(Error::of_setting)?;
    Ok(replication)
}

fn strategy(replication: &Replication) -> String {
    match replication {
        Replication::Simple(factor) => {
            format!("{{'class': 'SimpleStrategy', 'replication_factor': {factor}}}")
        }
        Replication::Datacenters(factors) => {
            let factors: String =
                factors.iter().map(|(name, factor)| format!(", '{name}': {factor}")).collect();
            format!("{{'class': 'NetworkTopologyStrategy'{factors}}}")
        }
    }
}

/// A change of the schema.
async fn change(session: &Session, text: String) -> Result<()> {
    let result = session.query_unpaged(text, ()).await;
    result.map(std::mem::drop).map_err(|error| Request::Repeatable.failed(error))
}

async fn rows<R>(session: &Session, node: Option<&Arc<Node>>, text: String) -> Result<Vec<R>>
where
    R: for<'frame> DeserializeRow<'frame, 'frame>,
{
    let result = query(session, node, text).await?;
    let rows = result.rows::<R>().map_err(|error| Request::Repeatable.strange_answer(error))?;
    rows.map(|row| row.map_err(|error| Request::Repeatable.strange_answer(error))).collect()
}

/// Asks `node`, or any server.
async fn query(
    session: &Session,
    node: Option<&Arc<Node>>,
    text: String,
) -> Result<QueryRowsResult> {
    let mut statement = Statement::new(text);
    if let Some(node) = node {
        let node = NodeIdentifier::Node(Arc::clone(node));
        statement.set_load_balancing_policy(Some(SingleTargetLoadBalancingPolicy::new(node, None)));
    }
    let result = session
        .query_unpaged(statement, ())
        .await
        .map_err(|error| Request::Repeatable.failed(error))?;
    result.into_rows_result().map_err(|error| Request::Repeatable.strange_answer(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str, created_at: i64) -> u128 {
        table_id(&KeyspaceName::new(name).unwrap(), created_at)
    }

    #[test]
    fn a_table_is_another_one_after_its_keyspace_was_created_again() {
        const NOW: i64 = 1_795_237_782_051_000;
        assert_eq!(id("app_one", NOW), id("app_one", NOW));
        for later in [1, 0x1000, 1_000_000, 1 << 50] {
            assert_ne!(id("app_one", NOW), id("app_one", NOW + later));
        }
        assert_ne!(id("app_one", NOW), id("app_two", NOW));
    }

    #[test]
    fn it_is_a_uuid_of_version_8() {
        let statement = layout::create_table("app_one", id("app_one", 1_795_237_782_051_000));
        let id = statement.split('\'').nth(1).unwrap();
        let parts: Vec<usize> = id.split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12]);
        assert_eq!(&id[14..15], "8", "{id}");
        assert!("89ab".contains(&id[19..20]), "{id}");
    }

    #[test]
    fn the_strategy_is_said_as_cassandra_wants_it() {
        assert_eq!(
            strategy(&Replication::Simple(2)),
            "{'class': 'SimpleStrategy', 'replication_factor': 2}"
        );
        let factors = [("north".to_owned(), 3), ("south".to_owned(), 2)];
        assert_eq!(
            strategy(&Replication::Datacenters(factors.into())),
            "{'class': 'NetworkTopologyStrategy', 'north': 3, 'south': 2}"
        );
    }
}
