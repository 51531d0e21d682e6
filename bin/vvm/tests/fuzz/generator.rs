//! Makes requests from a seed.

use std::sync::Arc;

use fastrand::Rng;

use crate::{
    bodies,
    heads::{self, Framing, Headers},
    known::{Known, WORKSPACES},
    paths,
    routes::{FuzzRoute, Port, ROUTES, Sender},
    tokens::Tokens,
};

/// A request, as it is sent.
#[derive(Clone, Debug)]
pub(crate) struct FuzzRequest {
    pub(crate) number: u64,
    pub(crate) route: &'static FuzzRoute,
    pub(crate) ws: u64,
    pub(crate) head: Vec<u8>,
    pub(crate) body: Vec<u8>,
    pub(crate) framing: Framing,
    /// Whether nothing was changed.
    pub(crate) is_valid: bool,
    pub(crate) is_head_method: bool,
    /// Whether the answer may have no end.
    pub(crate) may_stream: bool,
    /// Whether the node knows the request by its own id.
    pub(crate) has_own_id: bool,
    /// Whether the request is sent with an idempotency key that is its own.
    pub(crate) is_keyed: bool,
    /// Whether the request has no valid token, and asks for something that needs one.
    pub(crate) is_stranger: bool,
}

/// The parts of a request.
struct Parts {
    method: Vec<u8>,
    target: Vec<u8>,
    version: &'static str,
    headers: Headers,
    body: Vec<u8>,
    framing: Framing,
}

/// Makes requests.
pub(crate) struct Generator {
    seed: u64,
    tokens: Tokens,
    pub(crate) known: Arc<Known>,
    weights: u32,
}

impl Generator {
    pub(crate) fn new(seed: u64, tokens: Tokens, known: Arc<Known>) -> Generator {
        let weights = usual().map(|route| route.weight).sum();
        Generator { seed, tokens, known, weights }
    }

    pub(crate) fn rng(&self, number: u64) -> Rng {
        Rng::with_seed(self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(number))
    }

    /// The id of a request. A changed id is not taken for the id of another request.
    pub(crate) fn id(&self, number: u64) -> String {
        format!("f{number}-{:016x}", self.rng(number).u64(..))
    }

    /// The request of a number.
    pub(crate) fn request(&self, number: u64) -> FuzzRequest {
        let mut rng = self.rng(number);
        let mut at = rng.u32(..self.weights);
        let mut routes = usual();
        let route = loop {
            let route = routes.next().unwrap();
            match at.checked_sub(route.weight) {
                Some(rest) => at = rest,
                None => break route,
            }
        };
        let changes = match rng.u8(..10) {
            0..5 => 0,
            5..8 => 1,
            _ => rng.u8(2..5),
        };
        self.with_changes(number, route, changes, &mut rng)
    }

    /// A valid request for a route.
    pub(crate) fn valid(&self, number: u64, route: &'static FuzzRoute) -> FuzzRequest {
        self.with_changes(number, route, 0, &mut self.rng(number))
    }

    fn with_changes(
        &self,
        number: u64,
        route: &'static FuzzRoute,
        changes: u8,
        rng: &mut Rng,
    ) -> FuzzRequest {
        let ws = *rng.choice(&WORKSPACES).unwrap();
        let (mut parts, is_keyed) = self.parts(number, route, ws, rng);
        for _ in 0..changes {
            self.change(&mut parts, rng);
        }
        if route.port == Port::Admin && !route.is_last {
            harmless(&mut parts);
        }
        let own = self.id(number);
        let first =
            parts.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(b"x-request-id"));
        let has_own_id = first.is_some_and(|(_, id)| id == own.as_bytes());
        let text = String::from_utf8_lossy(&parts.target);
        let may_stream =
            ["follow", "/events", "/backup"].iter().any(|stream| text.contains(stream));
        let is_head_method = parts.method == b"HEAD";
        let is_open = parts.method == b"OPTIONS" || is_open(&text);
        let (mut head, mut body, mut framing) = assembled(parts, rng);
        if changes > 0 && rng.u8(..12) == 0 {
            raw(&mut head, &mut body, rng);
            framing = Framing::Head;
        }
        let is_valid = changes == 0 && framing == Framing::Clean;
        let is_stranger = !is_open && !self.tokens.has_valid(&head);
        FuzzRequest {
            number,
            route,
            ws,
            head,
            body,
            framing,
            is_valid,
            is_head_method,
            may_stream,
            has_own_id,
            is_keyed,
            is_stranger,
        }
    }

    /// The parts of a valid request.
    fn parts(
        &self,
        number: u64,
        route: &'static FuzzRoute,
        ws: u64,
        rng: &mut Rng,
    ) -> (Parts, bool) {
        let mut target = self.known.fill(route.path, ws, rng);
        let query = self.known.fill(rng.choice(route.queries).unwrap(), ws, rng);
        if !query.is_empty() {
            target = format!("{target}?{query}");
        }
        let body = bodies::valid(route.body, ws, &self.known, rng);
        let mut headers = Headers::new();
        let mut add = |name: &str, value: String| headers.push((name.into(), value.into()));
        add("Host", "127.0.0.1".to_owned());
        add("X-Request-Id", self.id(number));
        if let Some(token) = self.tokens.valid(route.sender, rng) {
            add("Authorization", token.to_owned());
        }
        for (name, value) in route.headers {
            add(name, self.known.fill(value, ws, rng));
        }
        if route.method == "POST" && route.port == Port::Admin && rng.bool() {
            // As the live page sends it.
            add("Origin", "http://127.0.0.1".to_owned());
            add("Sec-Fetch-Site", "same-origin".to_owned());
            add("X-Vvm-Admin", "1".to_owned());
        }
        let is_write = route.sender == Sender::Writer && route.name != "draw numbers";
        let is_keyed = is_write && rng.u8(..4) == 0;
        if is_keyed {
            add("Idempotency-Key", format!("key {number}"));
        }
        if matches!(route.method, "PATCH" | "DELETE")
            && rng.u8(..3) == 0
            && let Some(etag) = target.rsplit('/').next().and_then(|id| self.known.etag(ws, id))
        {
            add("If-Match", etag);
        }
        if rng.u8(..6) == 0 {
            add("traceparent", format!("00-{:032x}-{:016x}-01", rng.u128(1..), rng.u64(1..)));
        }
        let (method, target) = (route.method.into(), target.into());
        let framing = Framing::Clean;
        (Parts { method, target, version: "HTTP/1.1", headers, body, framing }, is_keyed)
    }

    fn change(&self, parts: &mut Parts, rng: &mut Rng) {
        match rng.u8(..20) {
            0..5 => {
                if paths::change(&mut parts.target, rng) {
                    parts.framing = Framing::Head;
                }
            }
            5 => parts.method = paths::method(rng).into(),
            6..10 => parts.framing = parts.framing.max(heads::change(&mut parts.headers, rng)),
            10..15 => bodies::change(&mut parts.body, rng),
            15..18 => {
                parts.headers.retain(|(name, _)| name != b"Authorization");
                if let Some(token) = self.tokens.other(rng) {
                    parts.headers.push((b"Authorization".to_vec(), token));
                }
            }
            18 => {
                let second = self.tokens.other(rng).unwrap_or_default();
                parts.headers.push((b"authorization".to_vec(), second));
            }
            _ => {
                const VERSIONS: [&str; 6] =
                    ["HTTP/1.0", "HTTP/0.9", "HTTP/1.2", "HTTP/2.0", "http/1.1", ""];
                parts.version = rng.choice(VERSIONS).unwrap();
                parts.framing = Framing::Head;
            }
        }
    }
}

/// The routes of the whole run.
fn usual() -> impl Iterator<Item = &'static FuzzRoute> {
    ROUTES.iter().filter(|route| !route.is_last)
}

/// Whether a target may need no token. The description shows a valid token without grants nothing.
fn is_open(target: &str) -> bool {
    let path = target.split('?').next().unwrap_or_default();
    path.ends_with("/api/v2/")
        || path == "/"
        || ["/livez", "/readyz", "/metrics", "openapi.json", "/api/check"]
            .iter()
            .any(|open| path.contains(open))
}

/// Makes sure that no changed request ends the work of the node.
fn harmless(parts: &mut Parts) {
    let target = String::from_utf8_lossy(&parts.target).into_owned();
    let ends = target.contains("step-down")
        || (target.contains("drain") && !target.ends_with("cancel=true"));
    if ends {
        parts.headers.retain(|(name, _)| !name.eq_ignore_ascii_case(b"authorization"));
    }
}

/// The node may refuse a longer head.
const LONG_HEAD: usize = 15_000;

/// The head and the body of a request.
fn assembled(mut parts: Parts, rng: &mut Rng) -> (Vec<u8>, Vec<u8>, Framing) {
    let has = |name: &[u8], parts: &Parts| {
        parts.headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name))
    };
    let has_framing = has(b"content-length", &parts) || has(b"transfer-encoding", &parts);
    if has_framing {
        parts.framing = parts.framing.max(Framing::Body);
    } else if !parts.body.is_empty() && rng.u8(..8) == 0 {
        let (body, framing) = heads::chunked(&parts.body, rng);
        (parts.body, parts.framing) = (body, parts.framing.max(framing));
        parts.headers.push((b"Transfer-Encoding".to_vec(), b"chunked".to_vec()));
    } else if !parts.body.is_empty() || rng.bool() {
        let length = parts.body.len().to_string();
        parts.headers.push((b"Content-Length".to_vec(), length.into()));
    }
    let is_control = |byte: &u8| byte.is_ascii_control() && *byte != b'\t';
    if parts.headers.iter().any(|(_, value)| value.iter().any(is_control)) {
        parts.framing = Framing::Head;
    }
    let mut head = parts.method;
    head.push(b' ');
    head.extend(parts.target);
    head.push(b' ');
    head.extend(parts.version.bytes());
    head.extend(b"\r\n");
    for (name, value) in parts.headers {
        head.extend(name);
        head.extend(b": ");
        head.extend(value);
        head.extend(b"\r\n");
    }
    head.extend(b"\r\n");
    let is_long = head.len() > LONG_HEAD || head.iter().filter(|byte| **byte == b'\n').count() > 90;
    let framing = if is_long { Framing::Head } else { parts.framing };
    (head, parts.body, framing)
}

/// Changes the bytes of a request wherever they are.
fn raw(head: &mut Vec<u8>, body: &mut Vec<u8>, rng: &mut Rng) {
    match rng.u8(..4) {
        0 => {
            head.truncate(rng.usize(..head.len()));
            body.clear();
        }
        1 => *head = (0..rng.usize(1..300)).map(|_| rng.u8(..)).collect(),
        _ => {
            for _ in 0..=rng.u8(..3) {
                let at = rng.usize(..head.len());
                head[at] = rng.u8(..);
            }
        }
    }
}
