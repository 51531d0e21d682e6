//! What an operator decides.

use std::{collections::BTreeMap, fmt, fs, path::PathBuf};

use istorage::BadSetting;
use serde::Deserialize;

use crate::tls;

/// How to reach the cluster, and what is asked of it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Some nodes of the cluster, as `host:port` or `host` (port 9042); the others are found through them.
    pub contact_points: Vec<String>,
    /// The datacenter that this process works with. Nodes of others are never asked. Without it every node is asked,
    /// wherever it is.
    #[serde(default)]
    pub datacenter: Option<String>,
    /// Who we are; without it the cluster must let anybody in.
    #[serde(default)]
    pub login: Option<Login>,
    /// Encrypts all connections.
    #[serde(default)]
    pub tls: Option<Tls>,
    /// How a keyspace that does not exist yet is replicated. One that exists keeps what it has. Without this every
    /// datacenter gets three replicas, and no keyspace is made while a datacenter has fewer nodes.
    #[serde(default)]
    pub replication: Option<Replication>,
    /// How many replicas answer a read or a write.
    #[serde(default)]
    pub consistency: Consistency,
    /// How many replicas agree on a conditional write or a linearizable read.
    #[serde(default)]
    pub serial_consistency: SerialConsistency,
}

/// A user of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Login {
    /// Its name.
    pub username: String,
    /// Its password; or else `password_file`.
    #[serde(default)]
    pub password: Option<Password>,
    /// The file that holds the password; a line break at its end does not belong to it.
    #[serde(default)]
    pub password_file: Option<PathBuf>,
}

/// A password, which no log shows.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Password(String);

/// Which certificates prove who is who. A node's certificate must name the address at which it is reached.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// The certificates, in PEM, of the authorities that may vouch for the cluster's nodes.
    pub ca_file: PathBuf,
    /// The certificate, in PEM, that we show; needed if the cluster asks for one.
    #[serde(default)]
    pub cert_file: Option<PathBuf>,
    /// The key of that certificate, in PEM.
    #[serde(default)]
    pub key_file: Option<PathBuf>,
}

/// How many copies of each row there are, and where.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Replication {
    /// `NetworkTopologyStrategy`: for each datacenter the number of its replicas. What production wants.
    Datacenters(BTreeMap<String, u8>),
    /// `SimpleStrategy`: that many replicas, wherever their nodes are. For trying things out: it knows no datacenters.
    Simple(u8),
    /// `NetworkTopologyStrategy`: three replicas in each datacenter, or as many as it has nodes when the keyspace is
    /// made. For trying things out: a keyspace that is made on one node keeps its one replica.
    UpToThree,
}

/// How many replicas answer a read or a write: a majority, so that a read sees each acknowledged write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Consistency {
    /// A majority of all replicas.
    #[default]
    Quorum,
    /// A majority of the replicas in [`Config::datacenter`]. Only right if all nodes of the application are in that one.
    LocalQuorum,
}

/// Among which replicas a conditional write is agreed upon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SerialConsistency {
    /// All.
    #[default]
    Serial,
    /// Those in [`Config::datacenter`]. **Two datacenters then decide without each other**: two nodes can win one row. Only
    /// right if all nodes of the application are in that one.
    LocalSerial,
}

impl Config {
    /// The usual settings for a cluster with these nodes in it.
    pub fn new<P: Into<String>>(contact_points: impl IntoIterator<Item = P>) -> Config {
        Config {
            contact_points: contact_points.into_iter().map(P::into).collect(),
            datacenter: None,
            login: None,
            tls: None,
            replication: None,
            consistency: Consistency::Quorum,
            serial_consistency: SerialConsistency::Serial,
        }
    }

    /// Looks for what cannot work whatever the cluster says. Reads the files that are named.
    ///
    /// # Errors
    /// The first setting that cannot be.
    pub fn check(&self) -> Result<(), BadSetting> {
        if self.contact_points.is_empty() || self.contact_points.iter().any(String::is_empty) {
            let why = "name one node of the cluster or more, each as host:port";
            return Err(BadSetting::new("contact_points", why));
        }
        if let Some(replication) = &self.replication {
            replication.check()?;
        }
        for (key, value, is_local) in [
            ("consistency", "local_quorum", self.consistency == Consistency::LocalQuorum),
            (
                "serial_consistency",
                "local_serial",
                self.serial_consistency == SerialConsistency::LocalSerial,
            ),
        ] {
            if is_local && self.datacenter.is_none() {
                let why = format!("`{value}` needs `datacenter`, which says where local is");
                return Err(BadSetting::new(key, why));
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
    pub(crate) fn check(&self) -> Result<(), BadSetting> {
        let wrong = |why: String| Err(BadSetting::new("replication", why));
        let factors: Vec<u8> = match self {
            Replication::Simple(factor) => vec![*factor],
            Replication::Datacenters(factors) => factors.values().copied().collect(),
            Replication::UpToThree => return Ok(()),
        };
        if factors.is_empty() || factors.contains(&0) {
            return wrong("name one datacenter or more, each with one replica or more".to_owned());
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
    /// The password, wherever it is kept.
    pub(crate) fn password(&self) -> Result<String, BadSetting> {
        match (&self.password, &self.password_file) {
            (Some(password), None) => Ok(password.0.clone()),
            (None, Some(path)) => match fs::read_to_string(path) {
                Ok(text) => Ok(text.trim_end_matches(['\r', '\n']).to_owned()),
                Err(error) => {
                    let why = format!("{} cannot be read: {error}", path.display());
                    Err(BadSetting::new("login.password_file", why))
                }
            },
            _ => Err(BadSetting::new("login", "it needs either `password` or `password_file`")),
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
mod tests {
    use istorage::{Error, ErrorKind};

    use super::*;

    fn parse(text: &str) -> Config {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn the_nodes_are_enough_and_the_rest_is_safe() {
        let config = parse("contact_points = ['a:9042', 'b']");
        assert_eq!(config, Config::new(["a:9042", "b"]));
        assert_eq!(config.serial_consistency, SerialConsistency::Serial);
        assert_eq!(config.consistency, Consistency::Quorum);
        config.check().unwrap();
    }

    #[test]
    fn everything_can_be_said() {
        let mut config = parse(
            "contact_points = ['a']\n datacenter = 'north'\n consistency = 'local_quorum'\n serial_consistency = \
             'local_serial'\n [login]\n username = 'vvm'\n password = 'secret'\n [tls]\n ca_file = 'ca.pem'\n cert_file = \
             'us.pem'\n key_file = 'us.key'\n [replication]\n datacenters = { north = 3, south = 2 }",
        );
        // There are no such files.
        assert_eq!(config.check().unwrap_err().key, "tls.ca_file");
        config.tls = None;
        config.check().unwrap();
        let up_to_three = parse("contact_points = ['a']\n replication = 'up_to_three'");
        assert_eq!(up_to_three.replication, Some(Replication::UpToThree));
        up_to_three.check().unwrap();
        assert_eq!(
            config.replication,
            Some(Replication::Datacenters([("north".into(), 3), ("south".into(), 2)].into()))
        );
        assert_eq!(config.login.unwrap().password().unwrap(), "secret");
    }

    #[test]
    fn a_typo_is_refused() {
        let typo = toml::from_str::<Config>("contact_points = ['a']\n consistencey = 'quorum'");
        assert!(typo.unwrap_err().to_string().contains("consistencey"));
    }

    #[test]
    fn nonsense_is_refused_with_the_name_of_the_setting() {
        for (text, names) in [
            ("contact_points = []", "contact_points"),
            ("contact_points = ['']", "contact_points"),
            ("contact_points = ['a']\n serial_consistency = 'local_serial'", "datacenter"),
            ("contact_points = ['a']\n consistency = 'local_quorum'", "datacenter"),
            ("contact_points = ['a']\n login = { username = 'u' }", "password_file"),
            (
                "contact_points = ['a']\n login = { username = 'u', password_file = 'no/file' }",
                "login.password_file",
            ),
            ("contact_points = ['a']\n replication = { simple = 0 }", "replication"),
            ("contact_points = ['a']\n replication = { datacenters = {} }", "replication"),
            ("contact_points = ['a']\n replication = { datacenters = { \"a'b\" = 1 } }", "a'b"),
        ] {
            let error = Error::of_setting(parse(text).check().unwrap_err());
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains(names), "{text}: {error}");
        }
    }

    #[test]
    fn a_password_comes_from_one_place_and_is_never_shown() {
        let login = |text: &str| toml::from_str::<Login>(text).unwrap();
        let shown = login("username = 'u'\n password = 'secret'");
        assert!(!format!("{shown:?}").contains("secret"));
        assert!(login("username = 'u'").password().is_err());
        assert!(login("username = 'u'\n password = 'a'\n password_file = 'b'").password().is_err());
        let missing = login("username = 'u'\n password_file = 'no/such/file'").password();
        assert!(missing.unwrap_err().to_string().contains("no/such/file"));
    }
}
