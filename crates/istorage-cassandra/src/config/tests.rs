use istorage::{Error, ErrorKind};

use super::*;

fn parse(text: &str) -> CassandraConfig {
    toml::from_str(text).unwrap()
}

#[test]
fn contact_points_are_enough_and_the_defaults_are_safe() {
    let config = parse("contact_points = ['a:9042', 'b']");
    assert_eq!(config, CassandraConfig::new(["a:9042", "b"]));
    assert_eq!(config.serial_consistency, SerialConsistency::Serial);
    assert_eq!(config.consistency, QuorumConsistency::Quorum);
    config.check().unwrap();
}

#[test]
fn every_setting_can_be_given() {
    let mut config = parse(
        "contact_points = ['a']\n datacenter = 'north'\n consistency = 'local_quorum'\n serial_consistency = \
         'local_serial'\n [login]\n username = 'vvm'\n password = 'secret'\n [tls]\n ca_file = 'ca.pem'\n cert_file = \
         'us.pem'\n key_file = 'us.key'\n [replication]\n datacenters = { north = 3, south = 2 }",
    );
    // The files that `tls` names do not exist.
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
fn an_unknown_setting_is_refused() {
    let typo =
        toml::from_str::<CassandraConfig>("contact_points = ['a']\n consistencey = 'quorum'");
    assert!(typo.unwrap_err().to_string().contains("consistencey"));
}

#[test]
fn a_wrong_value_is_refused_with_the_name_of_the_setting() {
    for (text, names) in [
        ("contact_points = []", "contact_points"),
        ("contact_points = ['']", "contact_points"),
        ("contact_points = ['a', 'u:hush@b']", "contact_points"),
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
        let error = Error::invalid_setting(parse(text).check().unwrap_err());
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
