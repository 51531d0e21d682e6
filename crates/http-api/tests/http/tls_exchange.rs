//! The exchange of certificates while a node works.

use std::{
    fs,
    io::{self, Write},
    net::SocketAddr,
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread::{scope, sleep},
    time::{Duration, Instant, SystemTime},
};

use clock::Clock;
use http_server::{ServerTls, TlsFiles};
use rcgen::{CertificateParams, date_time_ymd};
use shop::http_client::{answer, command_path, workspace_path};
use tokio_rustls::rustls::{
    AlertDescription, Error,
    pki_types::{CertificateDer, pem::PemObject},
};

use crate::support::{
    Answer, PATIENCE, ROW, TestAuthority, TestFiles, TestNode, TlsClient, TlsConnection, WS,
};

/// The name in the certificates of nodes.
const NAME: &str = "localhost";

const GET: &str = "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// The metric of an API whose files are refused.
const REFUSED: &str = "httpapi_certificate_refused{service=\"api\"}";

fn exchanges(outcome: &str, service: &str) -> String {
    let of = "httpapi_certificate_exchanges_total";
    format!("{of}{{service=\"{service}\",outcome=\"{outcome}\"}}")
}

fn wait_for(node: &TestNode, metric: &str, value: u32) {
    let start = Instant::now();
    while node.metric(metric) < f64::from(value) {
        assert!(start.elapsed() < PATIENCE, "{metric} is not {value}: {}", node.log_text());
        sleep(Duration::from_millis(2));
    }
    assert_eq!(node.metric(metric), f64::from(value), "{metric}");
}

fn wait_until(is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE);
        sleep(Duration::from_millis(2));
    }
}

/// Replaces a file, which is whole at each moment.
fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(&new, path).unwrap();
}

/// The certificate that a node shows in a new handshake.
fn shown(client: &TlsClient, address: SocketAddr) -> CertificateDer<'static> {
    let connection = client.connect(address).unwrap();
    connection.conn.peer_certificates().unwrap()[0].clone().into_owned()
}

fn der(pem: &[String; 2]) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem[0].as_bytes()).unwrap()
}

/// Sends commands, `batch` of them on each connection, and returns how many it sent.
fn send_commands(
    client: &TlsClient,
    api: SocketAddr,
    batch: u32,
    stop: &AtomicBool,
) -> io::Result<u32> {
    let (mut done, mut connection): (u32, Option<TlsConnection>) = (0, None);
    let head = format!("POST {} HTTP/1.1\r\nHost: localhost", command_path(WS, "sys.CUD"));
    while !stop.load(Ordering::Relaxed) {
        if done % batch == 0 {
            connection = None;
        }
        if connection.is_none() {
            connection = Some(client.connect(api)?);
        }
        let Some(stream) = &mut connection else { continue };
        write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{ROW}", ROW.len())?;
        let answer = Answer::read(stream)?;
        assert_eq!(answer.status, 200, "{answer:?}");
        done += 1;
    }
    Ok(done)
}

/// A port read a pipe instead of its key, and ignored all later files.
#[test]
fn a_pipe_in_place_of_a_key_does_not_end_the_looks() {
    let (authority, folder) = (TestAuthority::new(), tempfile::tempdir().unwrap());
    let files = authority.files(folder.path(), "node", NAME);
    let node = TestNode::with_admin(|api, _| api.tls = Some(files.server().unwrap()));
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    fs::rename(pipe, &files.key).unwrap();
    wait_for(&node, &exchanges("refused", "api"), 1);
    let pair = authority.sign(NAME, |_| {});
    replace(&files.key, &pair[1]);
    replace(&files.certificate, &pair[0]);
    wait_for(&node, &exchanges("taken", "api"), 1);
    assert_eq!(shown(&TlsClient::new(&authority.pem()), node.api), der(&pair));
    node.stop();
}

#[test]
fn certificates_that_change_under_load_lose_no_request() {
    const EXCHANGES: u32 = 20;
    let (authority, folder) = (TestAuthority::new(), tempfile::tempdir().unwrap());
    let files = authority.files(folder.path(), "node", NAME);
    let node = TestNode::with_admin(|api, _| api.tls = Some(files.server().unwrap()));
    let client = TlsClient::new(&authority.pem());
    let body = r#"{"args":{"kind":"Shop"}}"#;
    let path = command_path(WS, "sys.CreateWorkspace");
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    assert_eq!(client.ask(node.api, &request).unwrap().status, 200);
    let (stop, done) = (AtomicBool::new(false), AtomicU32::new(0));
    scope(|scope| {
        // New connections for each command, connections of a few commands, and kept ones.
        for batch in [1, 1, 7, u32::MAX] {
            let (stop, done, client, api) = (&stop, &done, &client, node.api);
            scope.spawn(move || {
                done.fetch_add(send_commands(client, api, batch, stop).unwrap(), Ordering::Relaxed);
            });
        }
        for exchange in 1..=EXCHANGES {
            let pair = authority.sign(NAME, |_| {});
            if exchange % 2 == 0 {
                files.write(pair.clone());
            } else {
                // As a manager of certificates does it: the key first, and both by renaming.
                for (path, text) in [(&files.key, &pair[1]), (&files.certificate, &pair[0])] {
                    replace(path, text);
                }
            }
            wait_for(&node, &exchanges("taken", "api"), exchange);
            assert_eq!(shown(&client, node.api), der(&pair), "exchange {exchange}");
        }
        stop.store(true, Ordering::Relaxed);
    });
    let done = done.into_inner();
    assert!(done > 100, "{done}");
    println!("{done} commands during {EXCHANGES} exchanges");
    // The log has the workspace and the commands.
    let path = format!("{}/wlog?limit=1000000", workspace_path(WS));
    let mut stream = client.connect(node.api).unwrap();
    let headers = "Host: localhost\r\nConnection: close";
    write!(stream, "GET {path} HTTP/1.1\r\n{headers}\r\n\r\n").unwrap();
    let (status, log) = answer(&mut stream).unwrap();
    assert_eq!((status, log.lines().count()), (200, done as usize + 1));
    node.stop();
}

#[test]
fn files_that_do_not_fit_are_reported_once_and_the_former_ones_stay() {
    let (authority, folder) = (TestAuthority::new(), tempfile::tempdir().unwrap());
    let files = authority.files(folder.path(), "node", NAME);
    let node = TestNode::with_admin(|api, _| api.tls = Some(files.server().unwrap()));
    let client = TlsClient::new(&authority.pem());
    let first = shown(&client, node.api);
    let pair = authority.sign(NAME, |_| {});
    let half = &pair[0][..pair[0].len() / 2];
    type Step<'s> = &'s dyn Fn(&TestFiles);
    let steps: [(Step<'_>, &str); 4] = [
        (&|files| replace(&files.key, &pair[1]), "does not belong to the first"),
        (&|files| replace(&files.certificate, half), "not whole"),
        (&|files| fs::remove_file(&files.certificate).unwrap(), "cannot be read"),
        (&|files| replace(&files.certificate, ""), "no certificate in PEM"),
    ];
    for (refused, (step, why)) in (1..).zip(steps) {
        step(&files);
        wait_for(&node, &exchanges("refused", "api"), refused);
        sleep(Duration::from_millis(300));
        assert_eq!(node.metric(REFUSED), 1.0, "the port has looked at the files again");
        let log = node.log_text();
        let lines: Vec<_> = log.lines().filter(|line| line.contains(why)).collect();
        assert_eq!(lines.len(), 1, "{why}: {log}");
        assert!(lines[0].contains("the port keeps the former ones"), "{lines:?}");
        assert_eq!(shown(&client, node.api), first);
        assert_eq!(client.ask(node.api, GET).unwrap().status, 404);
    }
    replace(&files.certificate, &pair[0]);
    wait_for(&node, &exchanges("taken", "api"), 1);
    wait_until(|| node.metric(REFUSED) == 0.0);
    assert_eq!(shown(&client, node.api), der(&pair));
    node.stop();
}

/// The alert for refused files ended although the port still had its former files.
#[test]
fn former_files_that_come_back_are_not_refused() {
    let (authority, folder) = (TestAuthority::new(), tempfile::tempdir().unwrap());
    let files = authority.files(folder.path(), "node", NAME);
    let node = TestNode::with_admin(|api, _| api.tls = Some(files.server().unwrap()));
    let former = fs::read_to_string(&files.certificate).unwrap();
    wait_until(|| node.metrics().contains(REFUSED));
    assert_eq!(node.metric(REFUSED), 0.0);
    replace(&files.certificate, "");
    wait_until(|| node.metric(REFUSED) == 1.0);
    replace(&files.certificate, &former);
    wait_until(|| node.metric(REFUSED) == 0.0);
    node.stop();
}

/// The former files were back for one look only, so the refused ones were not judged again. The
/// metric stayed 0.
#[test]
fn refused_files_are_shown_again_after_the_former_ones_were_back() {
    let (authority, folder) = (TestAuthority::new(), tempfile::tempdir().unwrap());
    let files = authority.files(folder.path(), "node", NAME);
    // Between two looks the test sees the metric fall, and replaces the file.
    let look_every = Duration::from_millis(500);
    let own = TlsFiles { look_every, ..TlsFiles::new(&files.certificate, &files.key) };
    let tls = ServerTls::read(own).unwrap();
    let node = TestNode::with_admin(|api, _| api.tls = Some(tls));
    let former = fs::read_to_string(&files.certificate).unwrap();
    replace(&files.certificate, "");
    wait_until(|| node.metrics().contains(REFUSED) && node.metric(REFUSED) == 1.0);
    replace(&files.certificate, &former);
    wait_until(|| node.metric(REFUSED) == 0.0);
    replace(&files.certificate, "");
    wait_until(|| node.metric(REFUSED) == 1.0);
    sleep(3 * look_every);
    assert_eq!(node.metric(REFUSED), 1.0);
    assert_eq!(node.metric(&exchanges("taken", "api")), 0.0);
    node.stop();
}

#[test]
fn the_end_of_a_certificate_is_shown_and_announced() {
    let (authority, folder) = (TestAuthority::new(), tempfile::tempdir().unwrap());
    let files = authority.files(folder.path(), "node", NAME);
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let ends_in = |days: i64| {
        let seconds = now.saturating_add_signed(days * 86_400 + 3_600);
        let change = move |params: &mut CertificateParams| {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds);
        };
        (authority.sign(NAME, change), seconds as f64)
    };
    let (soon, at) = ends_in(13);
    files.write(soon);
    let node = TestNode::with_admin(|api, _| api.tls = Some(files.server().unwrap()));
    let shown = "httpapi_certificate_ends_timestamp_seconds{service=\"api\"}";
    let log_has = |text: &str| {
        let start = Instant::now();
        while !node.log_text().contains(text) {
            assert!(start.elapsed() < PATIENCE, "{text}: {}", node.log_text());
            sleep(Duration::from_millis(5));
        }
    };
    log_has("certificate ends soon: replace the file");
    log_has("days_left=13");
    assert_eq!(node.metric(shown), at);
    // An expired certificate is used as well: the clock of the node may be wrong. Clients refuse
    // it.
    let (over, at) = ends_in(-2);
    files.write(over);
    wait_for(&node, &exchanges("taken", "api"), 1);
    log_has("certificate has expired, clients refuse it");
    assert_eq!(node.metric(shown), at);
    let client = TlsClient::new(&authority.pem());
    let error = client.connect(node.api).unwrap_err();
    assert!(error.to_string().contains("expired"), "{error}");
    let (late, at) = ends_in(15);
    files.write(late);
    wait_for(&node, &exchanges("taken", "api"), 2);
    assert_eq!(client.ask(node.api, GET).unwrap().status, 404);
    assert_eq!(node.metric(shown), at);
    let warnings = node.log_text().matches("replace the file").count();
    assert_eq!(warnings, 2, "{}", node.log_text());
    node.stop();
}

#[test]
fn clients_of_a_former_authority_are_refused() {
    let (authority, folder) = (TestAuthority::new(), tempfile::tempdir().unwrap());
    let other = TestAuthority::new();
    let files = authority.files(folder.path(), "node", NAME);
    let node = TestNode::with_admin(|_, admin| {
        admin.tls = Some(files.server_with_clients().unwrap());
    });
    let client = |of: &TestAuthority| {
        let own = of.sign("a client", |_| {});
        TlsClient::with(&authority.pem(), Some(&own), tokio_rustls::rustls::DEFAULT_VERSIONS)
    };
    let (former, new) = (client(&authority), client(&other));
    let ask = |client: &TlsClient| client.ask(node.admin, GET).map(|answer| answer.status);
    let refused = |client: &TlsClient| {
        let error = ask(client).unwrap_err();
        let error = error.get_ref().and_then(|error| error.downcast_ref::<Error>()).cloned();
        assert_eq!(error, Some(Error::AlertReceived(AlertDescription::UnknownCA)));
    };
    assert_eq!(ask(&former).unwrap(), 200);
    refused(&new);
    fs::write(&files.authority, authority.pem() + &other.pem()).unwrap();
    wait_for(&node, &exchanges("taken", "admin"), 1);
    assert_eq!((ask(&former).unwrap(), ask(&new).unwrap()), (200, 200));
    fs::write(&files.authority, other.pem()).unwrap();
    wait_for(&node, &exchanges("taken", "admin"), 2);
    assert_eq!(ask(&new).unwrap(), 200);
    // The client remembers its earlier connections, and would resume one of them.
    refused(&former);
    node.stop();
}

/// The port looks at its files once an hour, so only the reload reads them.
#[test]
fn a_reload_reads_the_files_at_once_and_tells_whether_they_are_used() {
    let (authority, folder) = (TestAuthority::new(), tempfile::tempdir().unwrap());
    let files = authority.files(folder.path(), "node", NAME);
    let look_every = Duration::from_secs(3_600);
    let own = TlsFiles { look_every, ..TlsFiles::new(&files.certificate, &files.key) };
    let tls = ServerTls::read(own).unwrap();
    let node = TestNode::with_admin(|api, _| api.tls = Some(tls.clone()));
    let client = TlsClient::new(&authority.pem());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let clock = Clock::system();
    let reload = || {
        let reload = clock.timeout_at(clock.now() + PATIENCE, tls.port().reload());
        runtime.block_on(reload).expect("the reload did not end")
    };
    let counted = |taken, refused| {
        wait_for(&node, &exchanges("taken", "api"), taken);
        wait_for(&node, &exchanges("refused", "api"), refused);
    };
    assert!(reload(), "nothing has changed");
    counted(0, 0);
    let pair = authority.sign(NAME, |_| {});
    files.write(pair.clone());
    assert!(reload());
    assert_eq!(shown(&client, node.api), der(&pair));
    counted(1, 0);
    // A reload that is repeated says again that the files are refused.
    replace(&files.key, &authority.sign(NAME, |_| {})[1]);
    for refused in 1..=2 {
        assert!(!reload());
        assert_eq!(shown(&client, node.api), der(&pair));
        counted(1, refused);
    }
    replace(&files.key, &pair[1]);
    assert!(reload(), "the former files are back");
    counted(1, 2);
    node.stop();
}
