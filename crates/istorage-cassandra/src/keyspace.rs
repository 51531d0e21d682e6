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

use std::{collections::BTreeMap, mem, sync::Arc, time::Duration};

use clock::{Clock, Instant};
use futures::future::try_join_all;
use istorage::{BadSetting, Error, ErrorKind, KeyspaceName, Result};
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

/// Whether the keyspace is there. If it is, all servers that can be reached know it and answer a query.
///
/// One server that has it is not enough: a node that opened a keyspace while another node created it sent its first
/// requests to servers that did not know the table yet.
pub(crate) async fn is_there(
    session: &Session,
    clock: &Clock,
    name: &KeyspaceName,
    deadline: Instant,
) -> Result<bool> {
    loop {
        let step = match everywhere(session, name).await {
            Ok(Some(Found::Nothing | Found::Empty(_))) => return Ok(false),
            Ok(Some(Found::Ours(_))) => match usable_everywhere(session, name).await {
                Ok(()) => return Ok(true),
                Err(error) => Err(error),
            },
            Ok(Some(Found::Unfinished) | None) => Ok(()),
            Err(error) => Err(error),
        };
        pause(clock, deadline, step).await?;
    }
}

/// Makes sure that the keyspace is there and that all servers that can be reached know it.
pub(crate) async fn create(
    session: &Session,
    clock: &Clock,
    name: &KeyspaceName,
    replication: Option<&Replication>,
    deadline: Instant,
) -> Result<()> {
    let mut refusals = 0;
    loop {
        let step = match everywhere(session, name).await {
            Ok(Some(Found::Nothing)) => create_keyspace(session, name, replication).await,
            Ok(Some(Found::Empty(created_at))) => {
                let table = layout::create_table(name.as_str(), table_id(name, created_at));
                match change(session, table).await {
                    Err(error) if error.kind() == ErrorKind::Invalid && refusals < REFUSALS => {
                        refusals += 1;
                        Ok(())
                    }
                    changed => changed,
                }
            }
            Ok(Some(Found::Ours(_))) => match usable_everywhere(session, name).await {
                Ok(()) => return Ok(()),
                Err(error) => Err(error),
            },
            Ok(Some(Found::Unfinished) | None) => Ok(()),
            Err(error) => Err(error),
        };
        pause(clock, deadline, step).await?;
    }
}

/// Removes it, if it is there.
pub(crate) async fn drop(
    session: &Session,
    clock: &Clock,
    name: &KeyspaceName,
    deadline: Instant,
) -> Result<()> {
    loop {
        let step = match everywhere(session, name).await {
            Ok(Some(Found::Nothing)) => return Ok(()),
            Ok(Some(_)) => change(session, format!("DROP KEYSPACE IF EXISTS {name}")).await,
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        pause(clock, deadline, step).await?;
    }
}

/// Waits before the next step, while there is time for one. A step that the servers cannot take yet is taken again.
async fn pause(clock: &Clock, deadline: Instant, step: Result<()>) -> Result<()> {
    let hindrance = match step {
        Err(error) if error.kind() != ErrorKind::Unavailable => return Err(error),
        step => step.err(),
    };
    if clock.now() + PAUSE < deadline {
        clock.sleep(PAUSE).await;
        return Ok(());
    }
    let late = Error::unavailable(
        "the Cassandra servers that can be reached did not all know the same keyspace before the deadline",
    );
    Err(match hindrance {
        Some(hindrance) => late.because(hindrance),
        None => late,
    })
}

/// What all servers that can be reached have; `None` while they differ.
///
/// # Errors
/// `Corrupt` if it is not ours.
async fn everywhere(session: &Session, name: &KeyspaceName) -> Result<Option<Found>> {
    let nodes = nodes(session);
    let mut found =
        try_join_all(nodes.iter().map(|node| look(session, node, name))).await?.into_iter();
    let first =
        found.next().ok_or_else(|| Error::unavailable("no Cassandra server is connected"))?;
    Ok(found.all(|other| other == first).then_some(first))
}

/// Every server answers a query; one that shows the table may not have opened it yet.
async fn usable_everywhere(session: &Session, name: &KeyspaceName) -> Result<()> {
    let nodes = nodes(session);
    let text = format!("SELECT value FROM {name}.{TABLE} WHERE p_key = 0x00 AND c_col = 0x00");
    try_join_all(nodes.iter().map(|node| query(session, node, text.clone()))).await.map(mem::drop)
}

/// The servers with which there is a connection.
fn nodes(session: &Session) -> Vec<Arc<Node>> {
    let state = session.get_cluster_state();
    state.get_nodes_info().iter().filter(|node| node.is_connected()).cloned().collect()
}

/// What a server has under this name.
async fn look(session: &Session, node: &Arc<Node>, name: &KeyspaceName) -> Result<Found> {
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
    let strategy = match replication {
        None => datacenter_strategy(&three_everywhere(datacenters(session))?),
        Some(Replication::UpToThree) => datacenter_strategy(&up_to_three(datacenters(session))),
        Some(Replication::Datacenters(factors)) => datacenter_strategy(factors),
        Some(Replication::Simple(factor)) => {
            format!("{{'class': 'SimpleStrategy', 'replication_factor': {factor}}}")
        }
    };
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

/// The number of replicas in each datacenter.
type Factors = BTreeMap<String, u8>;

/// How many replicas every datacenter gets.
const REPLICAS: usize = 3;

/// Three replicas in every datacenter.
///
/// # Errors
/// `Invalid` if a datacenter has fewer servers: a keyspace that is made while a cluster comes up must not keep one
/// replica for ever.
fn three_everywhere(datacenters: Vec<(String, usize)>) -> Result<Factors> {
    if let Some((datacenter, servers)) = datacenters.iter().find(|(_, servers)| *servers < REPLICAS)
    {
        let why = format!(
            "a new keyspace gets three replicas in each datacenter, and `{datacenter}` has {servers} servers: wait until \
             the cluster is complete, or set how many replicas are wanted, for example `{{ simple = {servers} }}`"
        );
        return Err(Error::of_setting(BadSetting::new("replication", why)));
    }
    Ok(up_to_three(datacenters))
}

/// Three replicas in every datacenter, or as many as it has servers.
fn up_to_three(datacenters: Vec<(String, usize)>) -> Factors {
    let factor = |servers: usize| u8::try_from(servers.min(REPLICAS)).unwrap_or(1);
    datacenters.into_iter().map(|(name, servers)| (name, factor(servers))).collect()
}

fn datacenter_strategy(factors: &Factors) -> String {
    let factors: String =
        factors.iter().map(|(name, factor)| format!(", '{name}': {factor}")).collect();
    format!("{{'class': 'NetworkTopologyStrategy'{factors}}}")
}

/// A change of the schema.
async fn change(session: &Session, text: String) -> Result<()> {
    let result = session.query_unpaged(text, ()).await;
    result.map(mem::drop).map_err(|error| Request::Repeatable.failed(error))
}

async fn rows<R>(session: &Session, node: &Arc<Node>, text: String) -> Result<Vec<R>>
where
    R: for<'frame> DeserializeRow<'frame, 'frame>,
{
    let result = query(session, node, text).await?;
    let rows = result.rows::<R>().map_err(|error| Request::Repeatable.strange_answer(error))?;
    rows.map(|row| row.map_err(|error| Request::Repeatable.strange_answer(error))).collect()
}

/// Asks one server.
async fn query(session: &Session, node: &Arc<Node>, text: String) -> Result<QueryRowsResult> {
    let mut statement = Statement::new(text);
    let node = NodeIdentifier::Node(Arc::clone(node));
    statement.set_load_balancing_policy(Some(SingleTargetLoadBalancingPolicy::new(node, None)));
    let result = session.query_unpaged(statement, ()).await;
    let result = result.map_err(|error| Request::Repeatable.failed(error))?;
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
        let factors = [("north".to_owned(), 3), ("south".to_owned(), 2)];
        assert_eq!(
            datacenter_strategy(&factors.into()),
            "{'class': 'NetworkTopologyStrategy', 'north': 3, 'south': 2}"
        );
    }

    /// A node that started together with its cluster saw one server, and made a keyspace with one replica, which stayed
    /// so: the loss of that server was the loss of all data.
    #[test]
    fn a_keyspace_with_fewer_than_three_replicas_is_made_only_if_the_configuration_says_so() {
        let datacenters =
            |servers: usize| vec![("north".to_owned(), 5), ("south".to_owned(), servers)];
        for servers in [1, 2] {
            let error = three_everywhere(datacenters(servers)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            let text = error.to_string();
            assert!(text.contains("replication") && text.contains("`south`"), "{text}");
        }
        let three = BTreeMap::from([("north".to_owned(), 3), ("south".to_owned(), 3)]);
        assert_eq!(three_everywhere(datacenters(4)).unwrap(), three);
        let two = BTreeMap::from([("north".to_owned(), 3), ("south".to_owned(), 2)]);
        assert_eq!(up_to_three(datacenters(2)), two);
    }
}
