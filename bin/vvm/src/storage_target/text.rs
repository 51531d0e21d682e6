//! The text of a storage on the command line and in messages, such as `redb:data/vvm.redb`.

use std::{fmt, str::FromStr};

use istorage_cassandra::CassandraConfig;
use istorage_dynamodb::DynamoDbConfig;
use istorage_redb::RedbConfig;

use super::StorageTarget;
use crate::config::without_login;

impl fmt::Display for StorageTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StorageTarget::Mem => f.write_str("mem"),
            StorageTarget::Redb(config) => write!(f, "redb:{}", config.path.display()),
            StorageTarget::Cassandra(config) => {
                write!(f, "cassandra:{}", config.contact_points.join(","))
            }
            StorageTarget::DynamoDb(config) => match &config.endpoint {
                Some(endpoint) => write!(f, "dynamodb:{}", without_login(endpoint)),
                None => f.write_str("dynamodb"),
            },
        }
    }
}

impl FromStr for StorageTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<StorageTarget, String> {
        let (driver, address) = text.split_once(':').unwrap_or((text, ""));
        match (driver, address) {
            ("mem", "") => Ok(StorageTarget::Mem),
            ("redb", path) if !path.is_empty() => Ok(StorageTarget::Redb(RedbConfig::new(path))),
            ("cassandra", address) if has_port(address) => {
                Ok(StorageTarget::Cassandra(Box::new(cassandra(address))))
            }
            ("dynamodb", endpoint) if endpoint.starts_with("http://") || endpoint.starts_with("https://") => {
                Ok(StorageTarget::DynamoDb(Box::new(dynamodb(endpoint))))
            }
            _ => Err("expected mem, redb:PATH, cassandra:HOST:PORT (several with commas) or dynamodb:ENDPOINT, where \
                      ENDPOINT starts with http:// or https://"
                .to_owned()),
        }
    }
}

fn has_port(addresses: &str) -> bool {
    addresses.split(',').all(|address| match address.rsplit_once(':') {
        Some((host, port)) => !host.is_empty() && port.parse::<u16>().is_ok(),
        None => false,
    })
}

/// Returns the settings for addresses on the command line. Such keyspaces are for trying a storage,
/// so a cluster of one server is enough for them.
fn cassandra(addresses: &str) -> CassandraConfig {
    CassandraConfig {
        replication: Some(istorage_cassandra::Replication::UpToThree),
        ..CassandraConfig::new(addresses.split(','))
    }
}

/// Returns the settings for an endpoint on the command line. DynamoDB Local on this machine takes
/// any credentials and region. Elsewhere the usual settings of AWS apply.
fn dynamodb(endpoint: &str) -> DynamoDbConfig {
    if ["http://127.0.0.1:", "http://localhost:"].iter().any(|local| endpoint.starts_with(local)) {
        return DynamoDbConfig::local(endpoint);
    }
    DynamoDbConfig { endpoint: Some(endpoint.to_owned()), ..Default::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storage_is_parsed_from_its_text() {
        for text in [
            "mem",
            "redb:data/vvm.redb",
            "cassandra:127.0.0.1:9042",
            "cassandra:a:9042,b:9042",
            "dynamodb:http://127.0.0.1:8000",
        ] {
            assert_eq!(text.parse::<StorageTarget>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_storage_is_shown_without_a_password() {
        for (given, shown) in [
            ("http://u:p@127.0.0.1:8000", "http://(hidden)@127.0.0.1:8000"),
            ("https://u:p@w/o@db.example/x", "https://(hidden)@db.example/x"),
        ] {
            let target: StorageTarget = format!("dynamodb:{given}").parse().unwrap();
            assert_eq!(target.to_string(), format!("dynamodb:{shown}"));
        }
    }

    #[test]
    fn an_invalid_storage_is_refused() {
        for text in [
            "",
            "mem:x",
            "redb",
            "redb:",
            "cassandra",
            "cassandra:host",
            "cassandra:host:x",
            "cassandra::1",
            "dynamodb",
            "dynamodb:host:1",
            "mongo:x",
        ] {
            assert!(text.parse::<StorageTarget>().is_err(), "{text}");
        }
    }
}
