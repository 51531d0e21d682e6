//! The secrets of a configuration, which no text shows.

use super::{
    refusals::{cassandra, dynamodb, error_of},
    *,
};

/// A password without its closing quote was printed with its line, a password without quotes as a
/// number, and of a password of several lines the line that had the error.
#[test]
fn an_error_shows_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vvm.toml");
    for line in [
        "password = \"4711",
        "password = 4711",
        "login = { username = \"u\", password = 4711 }",
        "password = \"\"\"\n4711\"\"\"4711",
    ] {
        let text = match line.starts_with("login") {
            true => cassandra(line),
            false => cassandra(&format!("[storage.cassandra.login]\nusername = \"u\"\n{line}")),
        };
        let message = error_of(&path, &text, &[]);
        assert!(message.contains("line ") && !message.contains("4711"), "{line}: {message}");
    }
}

/// An address with a password was repeated by the error, and by `vvm config show`.
#[test]
fn no_text_shows_the_password_of_an_address() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vvm.toml");
    for endpoint in ["http://u:4711@[::1", "u:4711@127.0.0.1:4318", "http://u:4711@host:1/path"] {
        let traces = format!("[traces]\nendpoint = \"{endpoint}\"\n");
        for text in [&traces, &traces.replace("\"\n", "\n")] {
            let message = error_of(&path, text, &[]);
            assert!(!message.contains("4711"), "{message}");
        }
        let name = "VVM__TRACES__ENDPOINT";
        let message = error_of(&path, "", &[variable(name, endpoint)]);
        assert!(message.starts_with(name) && !message.contains("4711"), "{message}");
        let text = dynamodb(&format!("endpoint = \"{endpoint}\"\n{traces}"));
        let shown = VvmConfig::of_text(&text).to_toml().unwrap();
        assert!(!shown.contains("4711") && shown.contains("(hidden)@"), "{shown}");
    }
    let message = error_of(&path, &dynamodb("endpoint = \"u:4711@127.0.0.1:8000\""), &[]);
    assert!(message.contains("a URL is expected") && !message.contains("4711"), "{message}");
}

/// `vvm config show` had the password of a contact point, and the log of the client of DynamoDB
/// that of an endpoint.
#[test]
fn a_login_in_the_address_of_a_storage_is_refused_and_not_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vvm.toml");
    let points = |points: &str| cassandra("").replace("[\"a\"]", points);
    let point = points("[\"a\", \"u:4711@b:9042\"]");
    let endpoint = dynamodb("endpoint = \"http://u:4711@127.0.0.1:8000\"");
    for (text, key, advice) in [
        (&point, "storage.cassandra.contact_points", "`login.password_file`"),
        (&endpoint, "storage.dynamodb.endpoint", "`secret_access_key`"),
        (&points("\"u:4711@b:9042\""), "storage.cassandra.contact_points", "a list"),
    ] {
        let message = error_of(&path, text, &[]);
        let place = format!("line 4, column 1: `{key}`: ");
        assert!(message.contains(&place) && message.contains(advice), "{message}");
        assert!(!message.contains("4711"), "{message}");
    }
    std::fs::write(&path, &point).unwrap();
    let shown = VvmConfig::read(Some(&path), &[]).unwrap().to_toml().unwrap();
    assert!(!shown.contains("4711") && shown.contains("\"(hidden)@b:9042\""), "{shown}");
}
