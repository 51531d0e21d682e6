//! A site that serves the page, and made-up values of the status.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};

/// How the site answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Works,
    /// No stream of events is free.
    Full,
    /// Actions are refused.
    Refuses,
    /// All connections break.
    Down,
}

/// An action that the page sent: its target and some of its headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) target: String,
    pub(crate) origin: String,
    pub(crate) admin: String,
}

struct Shared {
    html: Arc<[u8]>,
    status: watch::Sender<Value>,
    mode: watch::Sender<Mode>,
    sent: Mutex<Vec<Sent>>,
}

/// The site. It ends when it is dropped.
pub(crate) struct Site {
    pub(crate) url: String,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.shared.mode.send_replace(Mode::Down);
        self.task.abort();
    }
}

impl Site {
    /// Starts a site. The page is a whole answer, with its head.
    pub(crate) async fn start(html: Arc<[u8]>) -> Site {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let (status, mode) = (watch::channel(Value::Null).0, watch::channel(Mode::Works).0);
        let shared = Arc::new(Shared { html, status, mode, sent: Mutex::default() });
        let theirs = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&theirs);
                tokio::spawn(async move {
                    let mut mode = shared.mode.subscribe();
                    tokio::select! {
                        biased;
                        _ = mode.wait_for(|mode| *mode == Mode::Down) => {}
                        // The trial does not care about a connection that breaks.
                        _ = serve(stream, &shared) => {}
                    }
                });
            }
        });
        Site { url, shared, task }
    }

    /// Sends a status to all pages.
    pub(crate) fn show(&self, status: &Value) {
        self.shared.status.send_replace(status.clone());
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.shared.mode.send_replace(mode);
    }

    /// The actions that pages sent.
    pub(crate) fn sent(&self) -> Vec<Sent> {
        self.shared.sent.lock().unwrap().clone()
    }

    /// The targets of these actions.
    pub(crate) fn targets(&self) -> Vec<String> {
        self.sent().into_iter().map(|sent| sent.target).collect()
    }
}

async fn serve(stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let (mut lines, mut line) = (Vec::new(), String::new());
    while stream.read_line(&mut line).await? > 2 {
        lines.push(line.trim_end().to_owned());
        line.clear();
    }
    let mut words = lines.first().map_or("", String::as_str).split(' ');
    let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let header = |name: &str| {
        let mut values = lines.iter().filter_map(|line| line.split_once(": "));
        values.find(|(key, _)| key.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
    };
    let mode = *shared.mode.borrow();
    match (method, target) {
        ("GET", "/") => stream.write_all(&shared.html).await?,
        ("GET", "/cluster") => {
            let status = shared.status.borrow().to_string();
            answer(&mut stream, "200 OK", "application/json", &status).await?;
        }
        ("GET", "/cluster/events") if mode == Mode::Full => {
            let body = r#"{"reason":"all streams are taken"}"#;
            answer(&mut stream, "503 Busy", "application/problem+json", body).await?;
        }
        ("GET", "/cluster/events") => events(&mut stream, shared).await?,
        ("POST", _) => {
            let (origin, admin) = (header("origin").to_owned(), header("x-vvm-admin").to_owned());
            shared.sent.lock().unwrap().push(Sent { target: target.to_owned(), origin, admin });
            let (status, body) = match mode {
                Mode::Refuses => ("409 Conflict", r#"{"reason":"the member is <b>unknown</b>"}"#),
                _ => ("202 Accepted", "{}"),
            };
            answer(&mut stream, status, "application/json", body).await?;
        }
        _ => answer(&mut stream, "404 Not Found", "text/plain", "").await?,
    }
    stream.shutdown().await
}

async fn answer(
    stream: &mut BufReader<TcpStream>,
    status: &str,
    content_type: &str,
    body: &str,
) -> io::Result<()> {
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n");
    let rest = format!("Content-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
    stream.write_all((head + &rest).as_bytes()).await
}

async fn events(stream: &mut BufReader<TcpStream>, shared: &Shared) -> io::Result<()> {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    let mut status = shared.status.subscribe();
    loop {
        let event = status.borrow_and_update().clone();
        if !event.is_null() {
            // In two pieces, as a network may deliver it.
            let text = format!("data: {event}\n\n");
            let (first, second) = text.split_at(text.len() / 2);
            stream.write_all(first.as_bytes()).await?;
            stream.flush().await?;
            stream.write_all(second.as_bytes()).await?;
        }
        if status.changed().await.is_err() {
            return Ok(());
        }
    }
}

/// The address of a URL such as `http://127.0.0.1:1234/`.
pub(crate) fn url_of(address: SocketAddr) -> String {
    format!("http://{address}/")
}
