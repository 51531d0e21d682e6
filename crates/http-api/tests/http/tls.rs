//! TLS of the API and of the admin endpoint.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    thread::sleep,
    time::{Duration, Instant},
};

use clock::{Clock, ManualClock};
use http_api::HttpApiSettings;
use http_server::TlsFile;
use rcgen::{
    BasicConstraints, CertificateParams,
    ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth},
    IsCa, date_time_ymd,
};
use shop::http_client::{answer, command_path, workspace_path};
use tempfile::TempDir;
use tokio_rustls::rustls::{
    AlertDescription, CertificateError, DEFAULT_VERSIONS, Error, ProtocolVersion,
    version::{TLS12, TLS13},
};

use crate::support::{
    Answer, PATIENCE, ROW, TestAuthority, TestFiles, TestNode, TlsClient, WS, answer_to, connect,
};

const GET: &str = "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// The name in the certificates of nodes.
const NAME: &str = "localhost";

/// A node with TLS on both ports, and its authority.
struct SecuredNode {
    node: TestNode,
    authority: TestAuthority,
    _folder: TempDir,
}

impl SecuredNode {
    /// Starts a node with TLS. Clients of the admin endpoint need certificates.
    fn with(change: impl FnOnce(&mut HttpApiSettings)) -> SecuredNode {
        SecuredNode::with_clock(Clock::system(), change)
    }

    fn with_clock(clock: Clock, change: impl FnOnce(&mut HttpApiSettings)) -> SecuredNode {
        let (authority, folder) = (TestAuthority::new(), tempfile::tempdir().unwrap());
        let files = authority.files(folder.path(), "node", NAME);
        let node = TestNode::with_clock(clock, |api, admin| {
            api.tls = Some(files.server().unwrap());
            admin.tls = Some(files.server_with_clients().unwrap());
            change(api);
        });
        SecuredNode { node, authority, _folder: folder }
    }

    fn client(&self) -> TlsClient {
        TlsClient::new(&self.authority.pem())
    }

    /// Sends a command with TLS.
    fn command(&self, name: &str, body: &str) -> Answer {
        let request = command(name, body);
        self.client().ask(self.node.api, &request).unwrap()
    }

    fn create_workspace(&self) {
        let made = self.command("sys.CreateWorkspace", r#"{"args":{"kind":"Shop"}}"#);
        assert_eq!(made.status, 200, "{made:?}");
    }
}

fn command(name: &str, body: &str) -> String {
    let (path, length) = (command_path(WS, name), body.len());
    format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}")
}

/// The error of TLS in an error of a connection.
fn tls_error(error: &io::Error) -> &Error {
    let inner = error.get_ref().and_then(|error| error.downcast_ref());
    inner.unwrap_or_else(|| panic!("{error:?}"))
}

/// The error that a client gets when a node refuses it. With TLS 1.3 the client learns it only when
/// it reads.
fn refused(client: &TlsClient, address: SocketAddr) -> Error {
    tls_error(&client.ask(address, GET).unwrap_err()).clone()
}

#[test]
fn both_versions_of_tls_serve_requests_and_say_when_a_connection_ends() {
    let secured = SecuredNode::with(|_| {});
    secured.create_workspace();
    let own = secured.authority.sign("a client", |_| {});
    let versions = [(&TLS12, ProtocolVersion::TLSv1_2), (&TLS13, ProtocolVersion::TLSv1_3)];
    for (version, named) in versions {
        let pem = secured.authority.pem();
        let client = TlsClient::with(&pem, Some(&own), &[version]);
        for address in [secured.node.api, secured.node.admin] {
            let mut connection = client.connect(address).unwrap();
            assert_eq!(connection.conn.protocol_version(), Some(named));
            assert_eq!(connection.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
            let path = workspace_path(WS);
            let path =
                if address == secured.node.api { path + "/numbers" } else { "/livez".into() };
            for _ in 0..3 {
                write!(connection, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
                assert_eq!(Answer::read(&mut connection).unwrap().status, 200);
            }
            let last = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
            connection.write_all(last.as_bytes()).unwrap();
            let mut rest = String::new();
            connection.read_to_string(&mut rest).unwrap();
            assert!(rest.to_ascii_lowercase().contains("\r\nconnection: close\r\n"), "{rest}");
        }
    }
    let malformed = secured.client().ask(secured.node.api, "G@T / HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(malformed.status, 400);
    // An absolute URI names the scheme of the port.
    for (scheme, status) in [("https", 404), ("http", 421)] {
        let request = format!("GET {scheme}://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(secured.client().ask(secured.node.api, &request).unwrap().status, status);
    }
    // A node that stops says so on idle connections.
    let mut idle = secured.client().connect(secured.node.api).unwrap();
    secured.node.stop();
    assert_eq!(idle.read(&mut [0]).unwrap(), 0, "close_notify");
}

#[test]
fn a_client_or_a_node_without_the_right_certificate_is_refused() {
    let secured = SecuredNode::with(|_| {});
    let (node, pem) = (&secured.node, secured.authority.pem());
    let other = TestAuthority::new();
    // The client trusts another authority.
    let stranger = TlsClient::new(&other.pem());
    assert_eq!(
        refused(&stranger, node.api),
        Error::InvalidCertificate(CertificateError::UnknownIssuer)
    );
    // The API asks for no certificate.
    assert_eq!(secured.client().ask(node.api, GET).unwrap().status, 404);
    let over = |params: &mut CertificateParams| {
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
    };
    let for_servers = |params: &mut CertificateParams| {
        params.extended_key_usages = vec![ServerAuth];
    };
    for version in [&TLS12, &TLS13] {
        let with = |own: Option<&[String; 2]>| TlsClient::with(&pem, own, &[version]);
        let alert = AlertDescription::CertificateRequired;
        assert_eq!(refused(&with(None), node.admin), Error::AlertReceived(alert));
        for (own, alert) in [
            (other.sign("a client", |_| {}), AlertDescription::UnknownCA),
            (secured.authority.sign("a client", over), AlertDescription::CertificateExpired),
            (
                secured.authority.sign("a client", for_servers),
                AlertDescription::UnsupportedCertificate,
            ),
            // rustls takes a certificate without purposes for one with all of them.
            (
                secured.authority.sign("a client", |params| params.extended_key_usages.clear()),
                AlertDescription::UnsupportedCertificate,
            ),
        ] {
            assert_eq!(refused(&with(Some(&own)), node.admin), Error::AlertReceived(alert));
        }
        let own = secured.authority.sign("a client", |_| {});
        assert_eq!(with(Some(&own)).ask(node.admin, GET).unwrap().status, 200);
    }
    let closed = "httpapi_connections_closed_total{service=\"admin\",reason=\"tls_refused\"}";
    assert_eq!(node.metric(closed), 10.0);
    secured.node.stop();
}

/// A client that spoke plain HTTP to a port with TLS got bytes that mean nothing to it.
#[test]
fn plain_http_on_a_port_with_tls_is_answered_and_tls_on_a_plain_port_refused() {
    let secured = SecuredNode::with(|_| {});
    for address in [secured.node.api, secured.node.admin] {
        for request in [GET, "POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc"]
        {
            let answer = answer_to(address, request);
            assert_eq!((answer.status, &*answer.code()), (400, "bad_request"));
            assert!(answer.body.contains("this port speaks TLS") && answer.closes(), "{answer:?}");
            let id = answer.json()["requestId"].clone();
            assert_eq!(id.as_str().unwrap(), answer.header("x-request-id").unwrap());
            assert!(answer.header("date").is_some(), "{answer:?}");
        }
        let mut head = connect(address);
        head.write_all(GET.replace("GET", "HEAD").as_bytes()).unwrap();
        assert_eq!(Answer::read_head(&mut head).unwrap().status, 400);
        assert_eq!(head.read(&mut [0]).unwrap(), 0);
        // Other bytes get an alert of TLS.
        let mut noise = connect(address);
        noise.write_all(&[0; 64]).unwrap();
        let mut bytes = Vec::new();
        let _ = noise.read_to_end(&mut bytes);
        assert_eq!(bytes.first(), Some(&21), "{bytes:?}");
    }
    let log = secured.node.log_text();
    assert!(log.contains("this port speaks TLS") && log.contains("TLS refused"), "{log}");
    let plain = TestNode::start();
    let error = secured.client().connect(plain.api).unwrap_err();
    assert!(matches!(tls_error(&error), Error::InvalidMessage(_)), "{error:?}");
    // hyper answers before the node writes the line.
    let start = Instant::now();
    while !plain.log_text().contains("malformed request refused") {
        assert!(start.elapsed() < PATIENCE, "{}", plain.log_text());
        sleep(Duration::from_millis(5));
    }
    plain.stop();
    secured.node.stop();
}

#[test]
fn a_handshake_that_is_not_finished_is_cut_or_gives_way() {
    // The first byte of a handshake, or half of it, or nothing at all.
    let begins: [&[u8]; 3] = [b"", &[22], &[22, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3]];
    let secured =
        SecuredNode::with(|settings| settings.limits.head_time = Duration::from_millis(500));
    let start = Instant::now();
    for begin in begins {
        let mut slow = connect(secured.node.api);
        slow.write_all(begin).unwrap();
        let mut rest = Vec::new();
        // The node closes the connection with bytes unread, which may be a reset.
        let _ = slow.read_to_end(&mut rest);
        assert_eq!(rest, [0; 0]);
    }
    assert!(start.elapsed() >= Duration::from_millis(1_400), "{:?}", start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert!(secured.node.log_text().contains("TLS not finished in time"));
    secured.node.stop();

    let secured = SecuredNode::with(|settings| settings.limits.connections = 3);
    let idle = begins.map(|begin| {
        let mut idle = connect(secured.node.api);
        idle.write_all(begin).unwrap();
        idle
    });
    for _ in 0..6 {
        let start = Instant::now();
        assert_eq!(secured.client().ask(secured.node.api, GET).unwrap().status, 404);
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    }
    drop(idle);
    secured.node.stop();
}

/// A stop cut off connections during their handshakes. The clients did not know whether their
/// requests were done.
///
/// The node gives a handshake 200 ms from the beginning of the stop. On a busy machine the clients
/// took longer, one after another. So this test moves the time of the node.
#[test]
fn a_handshake_under_way_is_finished_and_served_at_a_stop() {
    const CLIENTS: usize = 10;
    let manual = ManualClock::new(1);
    let secured = std::thread::scope(|scope| {
        let made = scope.spawn(|| {
            let secured = SecuredNode::with_clock(manual.clock(), |_| {});
            secured.create_workspace();
            secured
        });
        pass_time_until(&manual, || made.is_finished());
        made.join().unwrap()
    });
    while secured.node.metric("httpapi_connections{service=\"api\"}") > 0.0 {
        sleep(Duration::from_millis(1));
    }
    let client = secured.client();
    let begun: Vec<_> = (0..CLIENTS).map(|_| client.begin(secured.node.api).unwrap()).collect();
    while secured.node.metric("httpapi_connections{service=\"api\"}") < CLIENTS as f64 {
        sleep(Duration::from_millis(1));
    }
    let api = secured.node.api;
    let stopping = std::thread::spawn(move || secured.node.stop());
    // The node accepts no more connections when the stop has begun. At most one more step of time
    // has passed since.
    pass_time_until(&manual, || TcpStream::connect(api).is_err());
    manual.advance(Duration::from_millis(50));
    for mut connection in begun {
        connection.write_all(command("sys.CUD", ROW).as_bytes()).unwrap();
        assert_eq!(Answer::read(&mut connection).unwrap().status, 200);
    }
    pass_time_until(&manual, || stopping.is_finished());
    stopping.join().unwrap();
}

fn pass_time_until(manual: &ManualClock, is_reached: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_reached() {
        assert!(start.elapsed() < PATIENCE, "the node does not get on");
        manual.advance(Duration::from_millis(1));
        sleep(Duration::from_millis(1));
    }
}

/// A demand to give way was dropped only after the new connection had begun. So the new connection
/// met the demand during its handshake, and ended.
#[test]
fn at_the_limit_of_connections_a_new_one_waits_for_a_busy_one() {
    let secured = SecuredNode::with(|settings| {
        settings.limits.connections = 1;
        settings.limits.body_bytes = 16 << 20;
    });
    secured.create_workspace();
    let name = "x".repeat(200_000);
    let rows: Vec<String> = (1..=40)
        .map(|id| format!(r#"{{"id":{id},"table":"shop.Article","fields":{{"name":"{name}"}}}}"#))
        .collect();
    for rows in rows.chunks(4) {
        let body = format!(r#"{{"rows":[{}]}}"#, rows.join(","));
        assert_eq!(secured.command("sys.CUD", &body).status, 200);
    }
    let (client, api) = (secured.client(), secured.node.api);
    let gave_way = "httpapi_connections_closed_total{service=\"api\",reason=\"gave_way\"}";
    let before = secured.node.metric(gave_way);
    let mut slow = client.connect(api).unwrap();
    let path = format!("{}/wlog", workspace_path(WS));
    write!(slow, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut buffer = vec![0; 16 << 10];
    let mut taken = slow.read(&mut buffer).unwrap();
    // From now on another client waits for the only place.
    let waits = std::thread::spawn(move || client.ask(api, GET).unwrap().status);
    loop {
        let bytes = slow.read(&mut buffer).unwrap();
        if bytes == 0 {
            break;
        }
        taken += bytes;
        sleep(Duration::from_millis(1));
    }
    assert!(taken > 8_000_000, "{taken}");
    assert_eq!(waits.join().unwrap(), 404);
    assert_eq!(secured.node.metric(gave_way), before, "the busy connection gave way");
    secured.node.stop();
}

#[test]
fn a_client_that_takes_nothing_of_its_answer_is_disconnected_with_tls_too() {
    let secured = SecuredNode::with(|settings| {
        settings.limits.answer_time = Duration::from_millis(500);
        settings.limits.body_bytes = 16 << 20;
    });
    secured.create_workspace();
    let body = format!(
        r#"{{"rows":[{{"id":1,"table":"shop.Article","fields":{{"name":"{}"}}}}]}}"#,
        "x".repeat(900_000)
    );
    for _ in 0..20 {
        assert_eq!(secured.command("sys.CUD", &body).status, 200);
    }
    let mut silent = secured.client().connect(secured.node.api).unwrap();
    let head = format!("GET {}/wlog HTTP/1.1\r\nHost: localhost\r\n\r\n", workspace_path(WS));
    silent.write_all(head.as_bytes()).unwrap();
    let cut = "httpapi_connections_closed_total{service=\"api\",reason=\"answer_not_taken\"}";
    let start = Instant::now();
    while secured.node.metric(cut) == 0.0 {
        assert!(start.elapsed() < PATIENCE, "it is still there");
        sleep(Duration::from_millis(20));
    }
    secured.node.stop();
}

#[test]
fn files_that_cannot_be_used_are_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let files = TestAuthority::new().files(folder.path(), "node", NAME);
    let other = TestAuthority::new().files(folder.path(), "other", NAME);
    files.server().unwrap();
    files.server_with_clients().unwrap();
    let half = folder.path().join("half.pem");
    let pem = std::fs::read_to_string(&files.certificate).unwrap();
    std::fs::write(&half, &pem[..pem.len() / 2]).unwrap();
    type Change<'c> = &'c dyn Fn(&mut TestFiles);
    let changes: [(TlsFile, Change<'_>, &str); 6] = [
        (TlsFile::Certificate, &|files| files.certificate.push("x"), "cannot be read"),
        (TlsFile::Certificate, &|files| files.certificate.clone_from(&half), "not whole"),
        (TlsFile::Certificate, &|files| files.certificate.clone_from(&files.key), "no certificate"),
        (TlsFile::Key, &|files| files.key.clone_from(&files.certificate), "no private key"),
        (TlsFile::Key, &|files| files.key.clone_from(&other.key), "node-certificate.pem"),
        (TlsFile::Authority, &|files| files.authority.clone_from(&files.key), "no certificate"),
    ];
    for (file, change, why) in changes {
        let mut files = files.clone();
        change(&mut files);
        let error = files.server_with_clients().unwrap_err();
        assert_eq!(error.file, file, "{error}");
        let path = error.path.display().to_string();
        assert!(error.to_string().starts_with(&path), "{error}");
        assert!(error.to_string().contains(why), "{why}: {error}");
    }
}

/// rustls trusts each certificate that it gets as an authority. So the owner of one client's
/// certificate could sign further ones. With the certificate of a node in the file, no client was
/// let in.
#[test]
fn a_leaf_in_the_place_of_an_authority_is_refused() {
    let (authority, folder) = (TestAuthority::new(), tempfile::tempdir().unwrap());
    let files = authority.files(folder.path(), "node", NAME);
    let leaf = |change: ParamChange| authority.sign("an operator", change)[0].clone();
    let leaves: [ParamChange; 3] = [
        |params| params.extended_key_usages = vec![ClientAuth],
        |params| {
            params.extended_key_usages.clear();
            params.is_ca = IsCa::ExplicitNoCa;
        },
        |params| {
            params.subject_alt_names.clear();
            (params.not_before, params.not_after) =
                (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
        },
    ];
    // A certificate that signed itself is no authority either.
    let own = |change: ParamChange| {
        let mut params = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
        change(&mut params);
        params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem()
    };
    for change in leaves {
        for (text, number) in [
            (leaf(change), 1),
            (authority.pem() + &leaf(change) + &leaf(change), 2),
            (own(change), 1),
            (authority.pem() + &own(change), 2),
        ] {
            std::fs::write(&files.authority, text).unwrap();
            let error = files.server_with_clients().unwrap_err();
            assert_eq!((error.file, &error.path), (TlsFile::Authority, &files.authority));
            let why = format!("certificate {number} in the file is no authority (CA:TRUE): give");
            assert!(error.to_string().contains(&why), "{error}");
        }
    }
    std::fs::write(&files.authority, authority.pem() + &TestAuthority::new().pem()).unwrap();
    files.server_with_clients().unwrap();
}

/// A reload accepted a file with a leaf, and the port let no client in any more.
#[test]
fn a_port_keeps_its_authorities_if_the_new_file_has_a_leaf() {
    let (authority, folder) = (TestAuthority::new(), tempfile::tempdir().unwrap());
    let files = authority.files(folder.path(), "node", NAME);
    let tls = files.server_with_clients().unwrap();
    let node = TestNode::with_admin(|_, admin| admin.tls = Some(tls.clone()));
    let own = authority.sign("an operator", |_| {});
    let client = TlsClient::with(&authority.pem(), Some(&own), DEFAULT_VERSIONS);
    std::fs::write(&files.authority, &own[0]).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    assert!(!runtime.block_on(tls.port().reload()), "the file was taken");
    assert!(node.log_text().contains("is no authority (CA:TRUE)"), "{}", node.log_text());
    assert_eq!(client.ask(node.admin, GET).unwrap().status, 200);
    node.stop();
}

type ParamChange = fn(&mut CertificateParams);

/// Certificates that clients refuse, and a part of the reason.
fn refused_by_clients() -> [(ParamChange, &'static str); 3] {
    [
        (|params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained), "CA:FALSE"),
        (|params| params.extended_key_usages = vec![ClientAuth], "`serverAuth`"),
        (|params| params.subject_alt_names.clear(), "`subjectAltName`"),
    ]
}

/// A node started with a certificate that each client refused. The doctor saw nothing.
#[test]
fn a_certificate_that_all_clients_refuse_is_refused() {
    let (authority, folder) = (TestAuthority::new(), tempfile::tempdir().unwrap());
    let files = authority.files(folder.path(), "node", NAME);
    for (change, why) in refused_by_clients() {
        files.write(authority.sign(NAME, change));
        for read in [files.server(), files.server_with_clients()] {
            let error = read.unwrap_err();
            assert_eq!(error.file, TlsFile::Certificate, "{error}");
            assert!(error.to_string().contains(why), "{error}");
        }
    }
    // A certificate that has expired is no error, nor is one without purposes or with an IP alone.
    let over = |params: &mut CertificateParams| {
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
    };
    let accepted: [(&str, ParamChange); 3] = [
        (NAME, over),
        (NAME, |params| params.extended_key_usages.clear()),
        ("10.0.0.1", |params| params.extended_key_usages = vec![ServerAuth]),
    ];
    for (name, change) in accepted {
        files.write(authority.sign(name, change));
        files.server().unwrap();
    }
}

/// A reload accepted a certificate that all clients refuse, and the port lost all its clients.
#[test]
fn a_port_keeps_its_certificate_if_all_clients_refuse_the_new_one() {
    let (authority, folder) = (TestAuthority::new(), tempfile::tempdir().unwrap());
    let files = authority.files(folder.path(), "node", NAME);
    let node = TestNode::with_admin(|api, _| api.tls = Some(files.server().unwrap()));
    let client = TlsClient::new(&authority.pem());
    let refused = "httpapi_certificate_exchanges_total{service=\"api\",outcome=\"refused\"}";
    for (done, (change, why)) in (1..).zip(refused_by_clients()) {
        files.write(authority.sign(NAME, change));
        let start = Instant::now();
        while !node.log_text().contains(why) {
            assert!(start.elapsed() < PATIENCE, "{}", node.log_text());
            sleep(Duration::from_millis(10));
        }
        assert!(node.metric(refused) >= f64::from(done));
        assert_eq!(client.ask(node.api, GET).unwrap().status, 404);
    }
    node.stop();
}

/// The plain client of the suite meets a port with TLS, and says what is wrong.
#[test]
fn the_answer_to_plain_http_is_whole() {
    let secured = SecuredNode::with(|_| {});
    let mut plain = connect(secured.node.api);
    plain.write_all(GET.as_bytes()).unwrap();
    let (status, body) = answer(&mut plain).unwrap();
    assert_eq!(status, 400, "{body}");
    secured.node.stop();
}
