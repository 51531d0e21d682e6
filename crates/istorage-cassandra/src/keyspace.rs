//! Keyspaces: what is there, making them, removing them.
//!
//! **A schema is not one thing.** Each server has its own copy, and learns of changes some moments later than others. The
//! servers' own sign of agreement, the schema version, can be equal because none of them has come far enough to change it.
//! So every server that can be reached is asked what it has, and has to answer a query of the table.
//!
//! - Making and removing a keyspace is done when all of them show the same. A server that does not answer holds both up.
//!   A server without a connection holds both up for [`UNREACHED`]: it may only be slow.
//! - A keyspace is opened when those that answer in time show it, and are more than half. A server that hangs, or that its
//!   peers cannot reach, must not keep a node from taking over. Servers that do not know the table yet are waited for, but
//!   not for long: the requests of a storage avoid such servers.
//!
//! **Creation by several nodes at once.** Two servers that create a table at the same moment give it two identities; one
//! of the two then loses, with whatever was written to it. So we choose the identity: it is made from the keyspace's name
//! and from the time at which the keyspace was created. All creators wait until the servers show the same time, so they
//! all create the same table. A keyspace that is dropped and created again has another time, so a server that slept
//! through the drop cannot bring the old rows back.

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

/// How long a server is left alone before it is asked again.
const PAUSE: Duration = Duration::from_millis(50);

/// How long a server may need to say what it has when a keyspace is opened. It gets twice as long each time that it is asked
/// again, as more than half of the servers may be slow.
const ANSWER: Duration = Duration::from_secs(2);
const LONGEST_ANSWER: Duration = Duration::from_secs(16);

/// How long servers that answer and do not show a keyspace yet are waited for.
const STRAGGLERS: Duration = Duration::from_secs(5);

/// How long servers without a connection are waited for when a keyspace is made or removed. An attempt to connect to a
/// server that answers each of its few questions within 2 s succeeds in this time. Creator A reaches servers 1 and 2, creator B reaches servers 2 and 3: if neither waits, server 2 can show
/// the keyspace of A while server 3 already shows that of B, so both create a table, and one of the two tables loses.
const UNREACHED: Duration = KEEPALIVE.saturating_add(KEEPALIVE_TIMEOUT);

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

/// What keeps a call from going on. A call that is late tells the last of it.
pub(crate) type Hindrance = Option<Error>;

/// Whether the keyspace is there, and more than half of the servers of the datacenter answer queries of it.
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
        // Servers that are only slow get their time.
        answer = LONGEST_ANSWER.min(2 * answer);
        match opening.judge(survey, clock.now()) {
            Ok(is_there) => return Ok(is_there),
            Err(why) => pause(clock, Err(why), hindrance).await?,
        }
    }
}

/// Waiting until the servers agree whether a keyspace is there.
struct Opening<'a> {
    name: &'a KeyspaceName,
    patient_until: Instant,
    is_told: bool,
}

impl Opening<'_> {
    fn new(name: &KeyspaceName, now: Instant) -> Opening<'_> {
        Opening { name, patient_until: now + STRAGGLERS, is_told: false }
    }

    /// Whether the keyspace is there. Logs once what the node waits for.
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

/// Makes sure that the keyspace is there and that all servers that can be reached know it.
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

/// Removes it, if it is there.
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

/// Waits before the next step. A step that the servers cannot take yet is taken again, until the caller gives up.
async fn pause(clock: &Clock, step: Result<()>, hindrance: &mut Hindrance) -> Result<()> {
    match step {
        Err(error) if error.kind() == ErrorKind::Unavailable => *hindrance = Some(error),
        step => step?,
    }
    clock.sleep(PAUSE).await;
    Ok(())
}

/// What the servers answered that can be reached.
#[derive(Default)]
struct Survey {
    found: Vec<Found>,
    /// How many servers there are: in the cluster, or in the datacenter that is asked.
    servers: usize,
    /// The addresses of the servers to which there is no connection.
    unconnected: Vec<String>,
    /// Why a connected server did not answer.
    silent: Option<Error>,
}

impl Survey {
    /// What there is for those that open it: what all found that answered, or, if they `may_differ`, what most found. Either
    /// must be more than half of the servers.
    fn verdict(&self, may_differ: bool) -> Option<Found> {
        let count = |wanted: &Found| self.found.iter().filter(|found| *found == wanted).count();
        let most = self.found.iter().max_by_key(|found| count(found))?;
        let is_enough = 2 * count(most) > self.servers;
        let is_agreed = may_differ || count(most) == self.found.len();
        (is_enough && is_agreed).then(|| most.clone())
    }

    /// Why there is no verdict.
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

/// Asks every server that can be reached what it has, until a deadline: all of them, or those of one datacenter. One that
/// has our table must answer a query of it, too.
///
/// # Errors
/// `Corrupt` if it is not ours.
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
    // The client that could not read the list of servers yet goes on with the contact points that answered. They might
    // be a small part of the cluster.
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

/// What all servers have that can be reached.
///
/// # Errors
/// `Unavailable` if one does not answer, or while they differ. Until `patient_until` also if one is not connected.
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
    Error::unavailable(format!("the Cassandra servers do not all show the keyspace `{name}` alike"))
}

/// What a server has. A server that shows our table may not know the table yet, so it has to answer a query.
///
/// The query is about no partition, so the server answers without a replica. A query about a partition kept nodes from
/// opening a keyspace while that partition had no quorum, and a replica that hung delayed it. Whether replicas answer,
/// each request on the storage finds out.
async fn look_and_use(session: &Session, node: &Arc<Node>, name: &KeyspaceName) -> Result<Found> {
    let found = look(session, node, name).await?;
    if let Found::Ours(_) = found {
        let text = format!("SELECT value FROM {name}.{TABLE} WHERE p_key IN ()");
        query(session, node, text).await?;
    }
    Ok(found)
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

/// How a new keyspace is replicated, as Cassandra wants it said.
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
/// `Unavailable` if a datacenter has fewer servers: a keyspace that is made while a cluster comes up must not keep one
/// replica for ever.
fn three_everywhere(datacenters: Vec<(String, usize)>) -> Result<Factors> {
    if let Some((datacenter, servers)) = datacenters.iter().find(|(_, servers)| *servers < REPLICAS)
    {
        return Err(Error::unavailable(format!(
            "a new keyspace gets three replicas in each datacenter, and `{datacenter}` has {servers} of three servers: wait \
             until the others have joined, or set `replication` to what is wanted, for example \
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
mod tests;
