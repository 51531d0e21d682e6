//! The text of a storage on the command line and in messages, such as `redb:data/vvm.redb`.

use std::{fmt, str::FromStr};

use istorage::InvalidSetting;
use istorage_cassandra::CassandraConfig;
use istorage_dynamodb::DynamoDbConfig;
use istorage_redb::RedbConfig;

use super::StorageTarget;

impl fmt::Display for StorageTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StorageTarget::Mem => f.write_str("mem"),
            StorageTarget::Redb(config) => write!(f, "redb:{}", config.path.display()),
            StorageTarget::Cassandra(config) => {
                write!(f, "cassandra:{}", config.contact_points.join(","))
            }
            StorageTarget::DynamoDb(config) => match &config.endpoint {
                Some(endpoint) => write!(f, "dynamodb:{endpoint}"),
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
                let config = cassandra(address);
                config.check().map_err(|InvalidSetting { reason, .. }| reason)?;
                Ok(StorageTarget::Cassandra(Box::new(config)))
            }
            ("dynamodb", endpoint) if endpoint.starts_with("http://") || endpoint.starts_with("https://") => {
                let config = dynamodb(endpoint);
                config.check().map_err(|InvalidSetting { reason, .. }| reason)?;
                Ok(StorageTarget::DynamoDb(Box::new(config)))
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

    /// A storage is shown in messages, with its address.
    #[test]
    fn a_storage_with_a_login_is_refused() {
        for text in [
            "cassandra:u:4711@a:9042",
            "cassandra:a:9042,u:4711@b:9042",
            "dynamodb:http://u:4711@127.0.0.1:8000",
            "dynamodb:https://u:47@11@db.example/x",
        ] {
            let why = text.parse::<StorageTarget>().unwrap_err();
            assert!(why.contains("without a login") && !why.contains("47"), "{why}");
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
