//! The configuration of the driver, as an operator writes it.

use std::{collections::BTreeMap, fmt, fs, path::PathBuf};

use istorage::InvalidSetting;
use serde::Deserialize;

use crate::{Tls, tls};

/// How to reach the cluster, and the consistency and replication to use.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CassandraConfig {
    /// Some servers of the cluster, as `host:port` or `host` (port 9042). The client finds the
    /// other servers through them. A login belongs in [`login`](Self::login), and is refused here.
    pub contact_points: Vec<String>,
    /// The datacenter that this process works with. It never sends a request to servers of other
    /// datacenters. Without this setting it uses the servers of all datacenters.
    #[serde(default)]
    pub datacenter: Option<String>,
    /// The user name and the password. Without this setting, the cluster must accept connections
    /// without authentication.
    #[serde(default)]
    pub login: Option<Login>,
    /// Encrypts all connections.
    #[serde(default)]
    pub tls: Option<Tls>,
    /// The replication of a keyspace that does not exist yet. A keyspace that exists keeps its
    /// replication. Without this setting every datacenter gets three replicas, and no keyspace is
    /// created while a datacenter has fewer servers.
    #[serde(default)]
    pub replication: Option<Replication>,
    /// The number of replicas that must answer a read or a write.
    #[serde(default)]
    pub consistency: QuorumConsistency,
    /// The replicas that must agree on a conditional write or a linearizable read.
    #[serde(default)]
    pub serial_consistency: SerialConsistency,
}

/// A user of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Login {
    /// The name of the user.
    pub username: String,
    /// The password of the user. Give either this setting or `password_file`.
    #[serde(default)]
    pub password: Option<Password>,
    /// The file that holds the password. A line break at the end of the file is not part of the
    /// password.
    #[serde(default)]
    pub password_file: Option<PathBuf>,
}

/// A password, which is never shown in a log.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Password(String);

/// The number of copies of each row, and their places.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Replication {
    /// `NetworkTopologyStrategy`: the number of replicas for each datacenter. Right for production.
    Datacenters(BTreeMap<String, u8>),
    /// `SimpleStrategy`: this number of replicas, in any datacenters. Only for trying things out.
    Simple(u8),
    /// `NetworkTopologyStrategy`: three replicas in each datacenter, or as many as the datacenter
    /// has servers when the keyspace is created. Only for trying things out: a keyspace that is
    /// created on one server keeps its one replica.
    UpToThree,
}

/// The number of replicas that must answer a read or a write: a majority, so that a read sees each
/// acknowledged write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuorumConsistency {
    /// A majority of all replicas.
    #[default]
    Quorum,
    /// A majority of the replicas in [`CassandraConfig::datacenter`]. Only right if all nodes of
    /// the application are in that datacenter.
    LocalQuorum,
}

/// The replicas that must agree on a conditional write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SerialConsistency {
    /// All replicas must agree.
    #[default]
    Serial,
    /// The replicas in [`CassandraConfig::datacenter`] must agree. **Two datacenters then decide
    /// without each other**: two nodes can win one row. Only right if all nodes of the application
    /// are in that datacenter.
    LocalSerial,
}

impl CassandraConfig {
    /// The default settings for a cluster that contains these servers.
    pub fn new<P: Into<String>>(contact_points: impl IntoIterator<Item = P>) -> CassandraConfig {
        CassandraConfig {
            contact_points: contact_points.into_iter().map(P::into).collect(),
            datacenter: None,
            login: None,
            tls: None,
            replication: None,
            consistency: QuorumConsistency::Quorum,
            serial_consistency: SerialConsistency::Serial,
        }
    }

    /// Checks for settings that cannot work with any cluster. Reads the files that the settings
    /// name.
    ///
    /// # Errors
    /// The first setting that is wrong.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        if self.contact_points.is_empty() || self.contact_points.iter().any(String::is_empty) {
            let why = "name at least one server of the cluster, each as host:port";
            return Err(InvalidSetting::new("contact_points", why));
        }
        // Messages show the list of servers, so a login must not be in it, and the error does not
        // show it.
        if self.contact_points.iter().any(|point| point.contains('@')) {
            let why = "a server is given as host:port, without a login: set `login.username` and \
                       `login.password_file`";
            return Err(InvalidSetting::new("contact_points", why));
        }
        if let Some(replication) = &self.replication {
            replication.check()?;
        }
        for (key, value, is_local) in [
            ("consistency", "local_quorum", self.consistency == QuorumConsistency::LocalQuorum),
            (
                "serial_consistency",
                "local_serial",
                self.serial_consistency == SerialConsistency::LocalSerial,
            ),
        ] {
            if is_local && self.datacenter.is_none() {
                let why = format!("`{value}` needs the setting `datacenter`");
                return Err(InvalidSetting::new(key, why));
            }
        }
        if let Some(login) = &self.login {
            login.password()?;
        }
        if let Some(tls) = &self.tls {
            tls::client_config(tls)?;
        }
        Ok(())
    }
}

impl Replication {
    pub(crate) fn check(&self) -> Result<(), InvalidSetting> {
        let wrong = |why: String| Err(InvalidSetting::new("replication", why));
        let factors: Vec<u8> = match self {
            Replication::Simple(factor) => vec![*factor],
            Replication::Datacenters(factors) => factors.values().copied().collect(),
            Replication::UpToThree => return Ok(()),
        };
        if factors.is_empty() || factors.contains(&0) {
            return wrong(
                "name at least one datacenter, each with at least one replica".to_owned(),
            );
        }
        // The names become part of a statement.
        let safe = |c: char| c.is_alphanumeric() || "-_. ".contains(c);
        match self {
            Replication::Datacenters(factors) => {
                match factors.keys().find(|name| !name.chars().all(safe)) {
                    Some(name) => wrong(format!("`{name}` cannot be the name of a datacenter")),
                    None => Ok(()),
                }
            }
            Replication::Simple(_) | Replication::UpToThree => Ok(()),
        }
    }
}

impl Login {
    /// The password, from the configuration or from the file.
    pub(crate) fn password(&self) -> Result<String, InvalidSetting> {
        match (&self.password, &self.password_file) {
            (Some(password), None) => Ok(password.0.clone()),
            (None, Some(path)) => match fs::read_to_string(path) {
                Ok(text) => Ok(text.trim_end_matches(['\r', '\n']).to_owned()),
                Err(error) => {
                    let why = format!("{} cannot be read: {error}", path.display());
                    Err(InvalidSetting::new("login.password_file", why))
                }
            },
            _ => Err(InvalidSetting::new("login", "give either `password` or `password_file`")),
        }
    }
}

impl From<String> for Password {
    fn from(password: String) -> Password {
        Password(password)
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests;
