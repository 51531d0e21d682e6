//! The files of TLS that are refused.

use super::{
    refusals::{check_refusals, dynamodb},
    *,
};

#[test]
fn files_of_tls_that_cannot_be_used_are_refused_with_their_keys() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let signed = || rcgen::generate_simple_self_signed(["node".to_owned()]).unwrap();
    let (own, other) = (signed(), signed());
    let certificate = write("own.pem", &own.cert.pem());
    let key = write("key.pem", &own.signing_key.serialize_pem());
    let other_key = write("other-key.pem", &other.signing_key.serialize_pem());
    let none = folder.path().join("none.pem").display().to_string();
    let tls = |section: &str, [certificate, key]: [&str; 2], more: &str| {
        format!("[{section}.tls]\ncert_file = {certificate:?}\nkey_file = {key:?}\n{more}\n")
    };
    let client_ca = |file: &str| format!("client_ca_file = {file:?}");
    let mut client = rcgen::CertificateParams::new(["node".to_owned()]).unwrap();
    client.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let client = write("client.pem", &client.self_signed(&own.signing_key).unwrap().pem());
    let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = write("ca.pem", &authority.self_signed(&own.signing_key).unwrap().pem());
    let cluster = |key: &str, ca: &str| {
        let text = tls("cluster", [&certificate, key], &format!("ca_file = {ca:?}"));
        dynamodb(&format!("[cluster]\nlisten = \"127.0.0.1:1\"\n{text}"))
    };
    check_refusals(&[
        (&tls("http", [&none, &key], ""), [2, 1], "http.tls.cert_file", &none),
        (&tls("http", [&key, &key], ""), [2, 1], "http.tls.cert_file", "has no certificate"),
        (&tls("http", [&client, &key], ""), [2, 1], "http.tls.cert_file", "`serverAuth`"),
        (&tls("http", [&certificate, &other_key], ""), [3, 1], "http.tls.key_file", &certificate),
        (
            &tls("admin", [&certificate, &certificate], ""),
            [3, 1],
            "admin.tls.key_file",
            "has no private key",
        ),
        (
            &tls("admin", [&certificate, &key], &client_ca(&key)),
            [4, 1],
            "admin.tls.client_ca_file",
            "has no certificate",
        ),
        (
            &tls("admin", [&certificate, &key], &client_ca(&client)),
            [4, 1],
            "admin.tls.client_ca_file",
            "is no authority (CA:TRUE): give",
        ),
        (&cluster(&other_key, &certificate), [8, 1], "cluster.tls.key_file", &certificate),
        (&cluster(&key, &none), [9, 1], "cluster.tls.ca_file", &none),
        ("[http.tls]\ncert_file = \"c\"\n", [1, 7], "http.tls", "the key `key_file` is missing"),
        ("[http.tls]\nclient_ca_file = \"c\"\n", [2, 1], "http.tls.client_ca_file", "unknown key"),
    ]);
    // An admin endpoint with client certificates is authenticated, and the API is not.
    let open = |section: &str, more: &str| {
        let tls = tls(section, [&certificate, &key], more);
        let text = format!("[{section}]\nlisten = \"0.0.0.0:1\"\n{tls}");
        crate::serve::check(&VvmConfig::of_text(&text)).map_err(|error| error.to_string())
    };
    open("admin", &client_ca(&authority)).unwrap();
    let refused = open("admin", "").unwrap_err();
    assert!(refused.contains("set `client_ca_file` in `[admin.tls]`"), "{refused}");
    let refused = open("http", "").unwrap_err();
    assert!(!refused.contains("client_ca_file"), "{refused}");
}
