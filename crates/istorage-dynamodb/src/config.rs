//! The configuration of the driver, as an operator writes it.

use std::fmt;

use istorage::{InvalidSetting, KeyspaceName};
use serde::Deserialize;

/// The endpoint and the credentials of DynamoDB, and the names and the billing of tables. Every
/// setting has a default. The defaults use the service of Amazon, with the region and credentials
/// that the usual AWS chain finds (environment, profile, container, instance).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DynamoDbConfig {
    /// The URL of an endpoint other than the region's own, with `http://` or `https://`. A login in
    /// the URL is refused.
    pub endpoint: Option<String>,
    /// The region. Without this setting the region comes from the AWS chain.
    pub region: Option<String>,
    /// The id of an access key, which needs `secret_access_key`. Without this setting the
    /// credentials come from the AWS chain.
    pub access_key_id: Option<String>,
    /// The secret of the access key.
    pub secret_access_key: Option<Secret>,
    /// The prefix of the names of all tables.
    pub table_prefix: String,
    /// The billing of new tables. Tables that exist keep their billing.
    pub billing: Billing,
}

/// The billing of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum Billing {
    /// The account pays for each request.
    #[default]
    OnDemand,
    /// The account pays for capacity, whether used or not.
    Provisioned {
        /// Consistent reads per second, each of up to 4 KiB.
        read_units: u32,
        /// Writes per second, each of up to 1 KiB.
        write_units: u32,
    },
}

/// A secret text, which is never shown.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl DynamoDbConfig {
    /// The configuration for DynamoDB Local at `endpoint`, which accepts any credentials.
    pub fn local(endpoint: impl Into<String>) -> DynamoDbConfig {
        DynamoDbConfig {
            endpoint: Some(endpoint.into()),
            region: Some("local".to_owned()),
            access_key_id: Some("local".to_owned()),
            secret_access_key: Some(Secret::new("local")),
            ..DynamoDbConfig::default()
        }
    }

    /// The name of the table of a keyspace.
    pub(crate) fn table_name(&self, keyspace: &KeyspaceName) -> String {
        format!("{}{keyspace}", self.table_prefix)
    }

    /// Checks for settings that cannot work with any service.
    ///
    /// # Errors
    /// The first setting that is wrong.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        const PREFIX_MAX: usize = 255 - KeyspaceName::MAX_LEN;
        let safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if !self.table_prefix.chars().all(safe) || self.table_prefix.len() > PREFIX_MAX {
            let why = format!(
                "`{}` cannot start the names of tables: at most {PREFIX_MAX} characters, each of a-z, A-Z, 0-9, `_`, `-` \
                 and `.`",
                self.table_prefix
            );
            return Err(InvalidSetting::new("table_prefix", why));
        }
        if let Some(endpoint) = &self.endpoint
            && !is_url(endpoint)
        {
            // The error does not show the text, which may have a password.
            let why = "a URL is expected, such as http://127.0.0.1:8000";
            return Err(InvalidSetting::new("endpoint", why));
        }
        // The client shows the address in its log.
        if self.endpoint.as_ref().is_some_and(|endpoint| endpoint.contains('@')) {
            let why = "the address of the service is given without a login: set `access_key_id` and \
                       `secret_access_key`";
            return Err(InvalidSetting::new("endpoint", why));
        }
        let (id, secret) = ("access_key_id", "secret_access_key");
        let (key, other) = match (&self.access_key_id, &self.secret_access_key) {
            (Some(_), None) => (id, secret),
            (None, Some(_)) => (secret, id),
            _ => return Ok(()),
        };
        Err(InvalidSetting::new(key, format!("it needs `{other}`: give both, or none")))
    }
}

fn is_url(text: &str) -> bool {
    let rest = ["http://", "https://"].iter().find_map(|scheme| text.strip_prefix(scheme));
    rest.is_some_and(|rest| !rest.is_empty() && !rest.contains(char::is_whitespace))
}

impl Default for DynamoDbConfig {
    fn default() -> DynamoDbConfig {
        DynamoDbConfig {
            endpoint: None,
            region: None,
            access_key_id: None,
            secret_access_key: None,
            table_prefix: "vvm.".to_owned(),
            billing: Billing::OnDemand,
        }
    }
}

impl Secret {
    /// Makes a secret from a text.
    pub fn new(secret: impl Into<String>) -> Secret {
        Secret(secret.into())
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_setting_is_required_and_an_unknown_one_is_refused() {
        assert_eq!(toml::from_str::<DynamoDbConfig>("").unwrap(), DynamoDbConfig::default());
        let typo = toml::from_str::<DynamoDbConfig>("table_prefx = \"x\"");
        assert!(typo.unwrap_err().to_string().contains("table_prefx"));
    }

    #[test]
    fn capacity_is_given_in_units() {
        let billing =
            |text: &str| toml::from_str::<DynamoDbConfig>(text).map(|config| config.billing);
        assert_eq!(billing("billing = 'on_demand'").unwrap(), Billing::OnDemand);
        let provisioned = billing("[billing.provisioned]\nread_units = 5\nwrite_units = 7");
        let expected = Billing::Provisioned { read_units: 5, write_units: 7 };
        assert_eq!(provisioned.unwrap(), expected);
    }

    #[test]
    fn the_secret_is_not_shown() {
        let config = toml::from_str::<DynamoDbConfig>("secret_access_key = 'hush'").unwrap();
        assert!(!format!("{config:?}").contains("hush"));
    }

    #[test]
    fn a_prefix_that_no_table_can_have_is_refused() {
        let check = |prefix: &str| {
            DynamoDbConfig { table_prefix: prefix.to_owned(), ..DynamoDbConfig::default() }
                .check()
                .is_ok()
        };
        assert!(check("") && check("Prod-1_a."));
        assert!(!check("a/") && !check("\u{e4}") && !check(&"a".repeat(208)));
    }

    #[test]
    fn half_of_an_access_key_is_refused() {
        let config =
            DynamoDbConfig { access_key_id: Some("id".to_owned()), ..DynamoDbConfig::default() };
        assert_eq!(config.check().unwrap_err().key, "access_key_id");
        let secret = Some(Secret::new("hush"));
        let config = DynamoDbConfig { secret_access_key: secret, ..DynamoDbConfig::default() };
        assert_eq!(config.check().unwrap_err().key, "secret_access_key");
    }

    /// The client accepted such an endpoint, and then could make no request.
    #[test]
    fn an_endpoint_is_a_url() {
        let check = |endpoint: &str| DynamoDbConfig::local(endpoint).check().is_ok();
        assert!(check("http://localhost:8000") && check("https://dynamodb.example/"));
        for bad in ["", "localhost:8000", "http://", "http://local host", "ftp://localhost"] {
            assert!(!check(bad), "{bad}");
        }
    }

    /// The log of the client had the password of such an endpoint.
    #[test]
    fn an_endpoint_with_a_login_is_refused() {
        let refused = DynamoDbConfig::local("http://user:hush@localhost:8000").check().unwrap_err();
        assert_eq!(refused.key, "endpoint");
        assert!(!refused.reason.contains("hush"), "{}", refused.reason);
    }
}
