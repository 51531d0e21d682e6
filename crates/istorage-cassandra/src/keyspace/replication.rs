//! The replication of a new keyspace.

use std::collections::BTreeMap;

use istorage::{Error, Result};
use scylla::client::session::Session;

use crate::{Replication, connect::datacenters};

/// The replication of a new keyspace, in Cassandra's syntax.
///
/// # Errors
/// As [`three_everywhere`].
pub(super) fn strategy(session: &Session, replication: Option<&Replication>) -> Result<String> {
    Ok(match replication {
        None => datacenter_strategy(&three_everywhere(datacenters(session))?),
        Some(Replication::UpToThree) => datacenter_strategy(&up_to_three(datacenters(session))),
        Some(Replication::Datacenters(factors)) => datacenter_strategy(factors),
        Some(Replication::Simple(factor)) => {
            format!("{{'class': 'SimpleStrategy', 'replication_factor': {factor}}}")
        }
    })
}

/// The number of replicas in each datacenter.
type Factors = BTreeMap<String, u8>;

/// The number of replicas that every datacenter gets.
const REPLICAS: usize = 3;

/// Three replicas in every datacenter.
///
/// # Errors
/// `Unavailable` if a datacenter has fewer than three servers. A keyspace that is created while a
/// cluster comes up must not keep one replica forever.
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

#[cfg(test)]
mod tests {
    use istorage::ErrorKind;

    use super::*;

    #[test]
    fn a_replication_strategy_has_the_syntax_of_cassandra() {
        let factors = [("north".to_owned(), 3), ("south".to_owned(), 2)];
        assert_eq!(
            datacenter_strategy(&factors.into()),
            "{'class': 'NetworkTopologyStrategy', 'north': 3, 'south': 2}"
        );
    }

    /// A node started together with its cluster, saw one server, and created a keyspace with one
    /// replica. The keyspace kept one replica, so the loss of that server would have been the loss
    /// of all data.
    #[test]
    fn a_keyspace_with_fewer_than_three_replicas_is_made_only_if_the_configuration_says_so() {
        let datacenters =
            |servers: usize| vec![("north".to_owned(), 5), ("south".to_owned(), servers)];
        for servers in [1, 2] {
            let error = three_everywhere(datacenters(servers)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "the others may join");
            let text = error.to_string();
            for part in ["replication", "`south`", "wait"] {
                assert!(text.contains(part), "`{part}` is not in: {text}");
            }
        }
        let three = BTreeMap::from([("north".to_owned(), 3), ("south".to_owned(), 3)]);
        assert_eq!(three_everywhere(datacenters(4)).unwrap(), three);
        let two = BTreeMap::from([("north".to_owned(), 3), ("south".to_owned(), 2)]);
        assert_eq!(up_to_three(datacenters(2)), two);
    }
}
