//! Creates, opens and drops keyspaces, although each server has its own view of the schema.
//!
//! **Each server has its own copy of the schema**, and learns of changes some moments later than
//! other servers. The servers' own sign of agreement is the schema version. Schema versions can be
//! equal because no server has come far enough to change its version. So the driver asks every
//! server that it can reach for its view of the keyspace. A server that shows the table must also
//! answer a query of the table.
//!
//! - Creating or dropping a keyspace is done when all servers show the same. A server that does not
//!   answer holds up both. A server without a connection holds up both for [`UNREACHED`], because
//!   the server may only be slow.
//! - A keyspace is opened when all servers that answer in time show it, and these servers are more
//!   than half. A server that hangs, or that its peers cannot reach, must not keep a node from
//!   taking over. The driver waits for servers that do not know the table yet, but only for
//!   [`STRAGGLERS`], because the requests of a storage avoid such servers.
//!
//! **Several nodes may create a keyspace at once.** If two servers create a table at the same
//! moment, the table gets two identities. One of the two identities then loses, and all rows that
//! were written under it are lost. So the driver chooses the identity. The driver makes the
//! identity from the name of the keyspace and from the time at which the keyspace was created. All
//! creators wait until the servers show the same time, so all creators create the same table. A
//! keyspace that is dropped and created again has another time. So a server that slept through the
//! drop cannot bring the old rows back.

use std::{collections::BTreeMap, mem, sync::Arc, time::Duration};

use clock::{Clock, Instant};
use futures::future::join_all;
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
    limits::{KEEPALIVE, KEEPALIVE_TIMEOUT},
};

/// The pause before a server is asked again.
const PAUSE: Duration = Duration::from_millis(50);

/// The time in which a server must answer when a keyspace is opened. Each time that the servers are
/// asked again, the time is doubled, because more than half of the servers may be slow.
/// [`LONGEST_ANSWER`] is the limit.
const ANSWER: Duration = Duration::from_secs(2);
const LONGEST_ANSWER: Duration = Duration::from_secs(16);

/// The time to wait for servers that answer and do not show a keyspace yet.
const STRAGGLERS: Duration = Duration::from_secs(5);

/// The time to wait for servers without a connection when a keyspace is created or dropped. An
/// attempt to connect to a server that answers each of its few questions within 2 s succeeds in
/// this time.
///
/// Without this wait two tables can be created. Creator A reaches servers 1 and 2, creator B
/// reaches servers 2 and 3. Server 2 can then show the keyspace of A while server 3 already shows
/// the keyspace of B. So both create a table, and one of the two tables loses.
const UNREACHED: Duration = KEEPALIVE.saturating_add(KEEPALIVE_TIMEOUT);

/// The number of times that a server may refuse to create the table. A server that does not know
/// the keyspace yet also refuses, for a moment.
const REFUSALS: usize = 100;

/// The view that one server has of a keyspace.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Found {
    Nothing,
    /// A keyspace without tables, and the time at which the keyspace was created. Either this
    /// driver began to create the keyspace and has not finished, or an operator prepared the
    /// keyspace with another replication.
    Empty(i64),
    /// The table of this driver, but the server does not know all its columns yet.
    Unfinished,
    /// A keyspace of this driver, with the identity of its table.
    Ours(CqlValue),
}

/// The last reason for which a call could not go on. A call that misses its deadline reports this
/// reason as the cause.
pub(crate) type Hindrance = Option<Error>;

/// Whether the keyspace exists and more than half of the servers of the datacenter answer queries
/// of it.
pub(crate) async fn is_there(
    session: &Session,
    clock: &Clock,
    name: &KeyspaceName,
    datacenter: Option<&str>,
    hindrance: &mut Hindrance,
) -> Result<bool> {
    let mut opening = Opening::new(name, clock.now());
    let mut answer = ANSWER;
    loop {
        let survey = survey(session, clock, name, datacenter, clock.now() + answer).await?;
        // A server that is only slow gets more time on the next attempt.
        answer = LONGEST_ANSWER.min(2 * answer);
        match opening.judge(survey, clock.now()) {
            Ok(is_there) => return Ok(is_there),
            Err(why) => pause(clock, Err(why), hindrance).await?,
        }
    }
}

/// The state of waiting until the servers agree whether a keyspace exists.
struct Opening<'a> {
    name: &'a KeyspaceName,
    patient_until: Instant,
    is_told: bool,
}

impl Opening<'_> {
    fn new(name: &KeyspaceName, now: Instant) -> Opening<'_> {
        Opening { name, patient_until: now + STRAGGLERS, is_told: false }
    }

    /// Whether the keyspace exists. Logs once that the node waits for servers, with the reason.
    ///
    /// # Errors
    /// `Unavailable` while the servers do not agree.
    fn judge(&mut self, survey: Survey, now: Instant) -> Result<bool> {
        let may_differ = now >= self.patient_until;
        match survey.verdict(may_differ) {
            Some(Found::Nothing | Found::Empty(_)) => return Ok(false),
            Some(Found::Ours(_)) => return Ok(true),
            Some(Found::Unfinished) | None => {}
        }
        let why = survey.hindrance(self.name);
        if may_differ && !mem::replace(&mut self.is_told, true) {
            tracing::warn!(keyspace = %self.name, ?why, "waiting for Cassandra servers");
        }
        Err(why)
    }
}

/// Makes sure that the keyspace exists and that all servers that can be reached know the keyspace.
pub(crate) async fn create(
    session: &Session,
    clock: &Clock,
    name: &KeyspaceName,
    replication: Option<&Replication>,
    hindrance: &mut Hindrance,
) -> Result<()> {
    let patient_until = clock.now() + UNREACHED;
    let (mut refusals, mut is_told) = (0, false);
    loop {
        let step = match everywhere(session, clock, name, patient_until).await {
            Ok(Found::Nothing) => match strategy(session, replication) {
                Ok(strategy) => create_keyspace(session, name, &strategy).await,
                Err(why) => {
                    if !mem::replace(&mut is_told, true) {
                        tracing::warn!(keyspace = %name, %why, "waiting for Cassandra servers");
                    }
                    Err(why)
                }
            },
            Ok(Found::Empty(created_at)) => {
                let table = layout::create_table(name.as_str(), table_id(name, created_at));
                match change(session, table).await {
                    Err(error) if error.kind() == ErrorKind::Invalid && refusals < REFUSALS => {
                        refusals += 1;
                        Ok(())
                    }
                    changed => changed,
                }
            }
            Ok(Found::Ours(_)) => return Ok(()),
            Ok(Found::Unfinished) => Err(differ(name)),
            Err(error) => Err(error),
        };
        pause(clock, step, hindrance).await?;
    }
}

/// Drops the keyspace if it exists.
pub(crate) async fn drop(
    session: &Session,
    clock: &Clock,
    name: &KeyspaceName,
    hindrance: &mut Hindrance,
) -> Result<()> {
    let patient_until = clock.now() + UNREACHED;
    loop {
        let step = match everywhere(session, clock, name, patient_until).await {
            Ok(Found::Nothing) => return Ok(()),
            Ok(_) => change(session, format!("DROP KEYSPACE IF EXISTS {name}")).await,
            Err(error) => Err(error),
        };
        pause(clock, step, hindrance).await?;
    }
}

/// Waits before the next step. A step that failed as `Unavailable` is tried again until the caller
/// gives up.
async fn pause(clock: &Clock, step: Result<()>, hindrance: &mut Hindrance) -> Result<()> {
    match step {
        Err(error) if error.kind() == ErrorKind::Unavailable => *hindrance = Some(error),
        step => step?,
    }
    clock.sleep(PAUSE).await;
    Ok(())
}

/// The answers of the servers that can be reached.
#[derive(Default)]
struct Survey {
    found: Vec<Found>,
    /// The number of servers in the cluster, or in the datacenter that is asked.
    servers: usize,
    /// The addresses of the servers without a connection.
    unconnected: Vec<String>,
    /// The reason for which a connected server did not answer.
    silent: Option<Error>,
}

impl Survey {
    /// The view of the keyspace on which opening relies. All servers that answered must have the
    /// same view. If servers `may_differ`, the most frequent view is enough. In both cases more
    /// than half of the servers must have this view.
    fn verdict(&self, may_differ: bool) -> Option<Found> {
        let count = |wanted: &Found| self.found.iter().filter(|found| *found == wanted).count();
        let most = self.found.iter().max_by_key(|found| count(found))?;
        let is_enough = 2 * count(most) > self.servers;
        let is_agreed = may_differ || count(most) == self.found.len();
        (is_enough && is_agreed).then(|| most.clone())
    }

    /// The error that says why there is no verdict.
    fn hindrance(self, name: &KeyspaceName) -> Error {
        let Survey { found, servers, unconnected, silent } = self;
        let shown = found.iter().filter(|found| matches!(found, Found::Ours(_))).count();
        let mut why = format!(
            "{shown} of {servers} Cassandra servers show the keyspace `{name}`, and {} answered: more than half must agree",
            found.len()
        );
        if !unconnected.is_empty() {
            why = format!("{why}; not connected: {}", unconnected.join(", "));
        }
        match silent {
            Some(silent) => Error::unavailable(why).because(silent),
            None => Error::unavailable(why),
        }
    }
}

/// Asks every server that can be reached for its view of the keyspace, until a deadline. With
/// `datacenter`, only the servers of that datacenter are asked. A server that shows the table of
/// this driver must also answer a query of the table.
///
/// # Errors
/// `Corrupt` if the keyspace was not made by this driver.
async fn survey(
    session: &Session,
    clock: &Clock,
    name: &KeyspaceName,
    datacenter: Option<&str>,
    deadline: Instant,
) -> Result<Survey> {
    let state = session.get_cluster_state();
    let is_meant = |node: &&Arc<Node>| {
        datacenter.is_none_or(|datacenter| node.datacenter.as_deref() == Some(datacenter))
    };
    // While the client has not read the list of servers, the client knows only the contact points
    // that answered. The contact points may be a small part of the cluster.
    if state.get_nodes_info().iter().all(|node| node.datacenter.is_none()) {
        let silent = Error::unavailable("the client does not know the servers of the cluster yet");
        return Ok(Survey { silent: Some(silent), ..Survey::default() });
    }
    let meant = state.get_nodes_info().iter().filter(is_meant);
    let (connected, unconnected): (Vec<&Arc<Node>>, Vec<&Arc<Node>>) =
        meant.partition(|node| node.is_connected());
    let ask = async |node: &Arc<Node>| {
        let asked = clock.timeout_at(deadline, look_and_use(session, node, name));
        let server = node.address;
        let late = |_| Err(Error::unavailable(format!("{server} did not answer in time")));
        asked.await.unwrap_or_else(late)
    };
    let mut survey = Survey {
        found: Vec::new(),
        servers: connected.len() + unconnected.len(),
        unconnected: unconnected.iter().map(|node| node.address.to_string()).collect(),
        silent: None,
    };
    for answer in join_all(connected.into_iter().map(ask)).await {
        match answer {
            Ok(found) => survey.found.push(found),
            Err(error) if error.kind() == ErrorKind::Unavailable => survey.silent = Some(error),
            Err(error) => return Err(error),
        }
    }
    Ok(survey)
}

/// The view that all reachable servers share.
///
/// # Errors
/// `Unavailable` if a server does not answer, or while the views differ. Until `patient_until` also
/// if a server is not connected.
async fn everywhere(
    session: &Session,
    clock: &Clock,
    name: &KeyspaceName,
    patient_until: Instant,
) -> Result<Found> {
    let survey = survey(session, clock, name, None, Instant::FAR_FUTURE);
    let Survey { found, silent, unconnected, .. } = survey.await?;
    if let Some(silent) = silent {
        return Err(silent);
    }
    if !unconnected.is_empty() && clock.now() < patient_until {
        let servers = unconnected.join(", ");
        return Err(Error::unavailable(format!("no connection to Cassandra servers: {servers}")));
    }
    let mut found = found.into_iter();
    let first =
        found.next().ok_or_else(|| Error::unavailable("no Cassandra server is connected"))?;
    if found.all(|other| other == first) { Ok(first) } else { Err(differ(name)) }
}

fn differ(name: &KeyspaceName) -> Error {
    Error::unavailable(format!(
        "the Cassandra servers do not agree about the keyspace `{name}` yet"
    ))
}

/// The view that a server has of the keyspace. A server that shows the table of this driver may not
/// know the table yet, so the server must also answer a query of the table.
///
/// The query names no storage partition, so the server answers without a replica. An earlier query
/// named a partition. Nodes could not open a keyspace while that partition had no quorum, and a
/// replica that hung delayed the answer. Each request on the storage finds out by itself whether
/// replicas answer.
async fn look_and_use(session: &Session, node: &Arc<Node>, name: &KeyspaceName) -> Result<Found> {
    let found = look(session, node, name).await?;
    if let Found::Ours(_) = found {
        let text = format!("SELECT value FROM {name}.{TABLE} WHERE p_key IN ()");
        query(session, node, text).await?;
    }
    Ok(found)
}

/// The view that a server has of the keyspace, from the server's schema tables alone.
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
    Error::corrupt(format!(
        "the keyspace `{name}` was not made by this program, use another keyspace: {why}"
    ))
}

/// The replication of a new keyspace, in Cassandra's syntax.
///
/// # Errors
/// As [`three_everywhere`].
fn strategy(session: &Session, replication: Option<&Replication>) -> Result<String> {
    Ok(match replication {
        None => datacenter_strategy(&three_everywhere(datacenters(session))?),
        Some(Replication::UpToThree) => datacenter_strategy(&up_to_three(datacenters(session))),
        Some(Replication::Datacenters(factors)) => datacenter_strategy(factors),
        Some(Replication::Simple(factor)) => {
            format!("{{'class': 'SimpleStrategy', 'replication_factor': {factor}}}")
        }
    })
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

/// The number of replicas in each datacenter.
type Factors = BTreeMap<String, u8>;

/// The number of replicas that every datacenter gets.
const REPLICAS: usize = 3;

/// Three replicas in every datacenter.
///
/// # Errors
/// `Unavailable` if a datacenter has fewer than three servers. A keyspace that is created while a
/// cluster comes up must not keep one replica for ever.
fn three_everywhere(datacenters: Vec<(String, usize)>) -> Result<Factors> {
    if let Some((datacenter, servers)) = datacenters.iter().find(|(_, servers)| *servers < REPLICAS)
    {
        return Err(Error::unavailable(format!(
            "a new keyspace gets three replicas in each datacenter, and `{datacenter}` has {servers} of three servers: wait \
             until the other servers have joined, or set `replication`, for example \
             `replication = \"up_to_three\"`"
        )));
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

/// Runs a statement that changes the schema.
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

/// Sends a query to one server.
async fn query(session: &Session, node: &Arc<Node>, text: String) -> Result<QueryRowsResult> {
    let mut statement = Statement::new(text);
    let node = NodeIdentifier::Node(Arc::clone(node));
    statement.set_load_balancing_policy(Some(SingleTargetLoadBalancingPolicy::new(node, None)));
    let result = session.query_unpaged(statement, ()).await;
    let result = result.map_err(|error| Request::Repeatable.failed(error))?;
    result.into_rows_result().map_err(|error| Request::Repeatable.strange_answer(error))
}

#[cfg(test)]
mod tests;
