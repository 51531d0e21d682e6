//! The views of the API itself: its [description](crate::openapi), a page to try it, and the check
//! that the port answers.

use access::Grants;
use bytes::Bytes;
use http_server::{
    authentication::forbidden,
    html_page::HtmlPage,
    problem::{Answer, ProblemDetails},
    query::{check_query, parameter},
    request_head::RequestHead,
    response::{Body, JSON, bytes_response, full_body},
};
use hyper::{
    Method, Response, StatusCode,
    header::{CACHE_CONTROL, ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH, InvalidHeaderValue},
};
use lru::LruCache;
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;
use vvm::Node;

use crate::{
    context::ApiContext,
    openapi::{CHECK, DESCRIPTION, DescribedApp, describe},
    route::PAGE,
};

/// A view of the API itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApiView {
    Description,
    Page,
    /// Only says that the port answers requests.
    Check,
}

impl ApiView {
    /// The view that a path names.
    pub(crate) fn of(path: &str) -> Option<ApiView> {
        match path {
            DESCRIPTION => Some(ApiView::Description),
            PAGE => Some(ApiView::Page),
            CHECK => Some(ApiView::Check),
            _ => None,
        }
    }

    /// The name of such requests in metrics.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            ApiView::Description => "description",
            ApiView::Page => "page",
            ApiView::Check => "check",
        }
    }

    /// The methods of the view, and whether a method is one of them.
    fn allows(self, method: &Method) -> (&'static str, bool) {
        match self {
            ApiView::Check => {
                ("GET, HEAD, POST", matches!(*method, Method::GET | Method::HEAD | Method::POST))
            }
            _ => ("GET, HEAD", matches!(*method, Method::GET | Method::HEAD)),
        }
    }
}

/// The most memory of the descriptions that are kept. The last one is kept in any case.
const KEPT_BYTES: usize = 8 << 20;

/// A description, and its version.
#[derive(Clone)]
struct Description {
    json: Bytes,
    tag: HeaderValue,
}

/// The descriptions that were used last. Each describes some applications of the node, which it
/// names by their indexes: a caller sees the applications where its token grants something.
struct KeptDescriptions {
    all: LruCache<Vec<usize>, Description>,
    bytes: usize,
}

impl KeptDescriptions {
    fn new() -> KeptDescriptions {
        KeptDescriptions { all: LruCache::unbounded(), bytes: 0 }
    }

    /// Keeps a description that is not kept yet.
    fn keep(&mut self, places: Vec<usize>, made: Description) {
        self.bytes += made.json.len();
        self.all.push(places, made);
        while self.bytes > KEPT_BYTES
            && self.all.len() > 1
            && let Some((_, oldest)) = self.all.pop_lru()
        {
            self.bytes -= oldest.json.len();
        }
    }
}

/// Shows the views of the API.
pub(crate) struct Views {
    descriptions: Mutex<KeptDescriptions>,
    /// The page to try the API.
    page: HtmlPage,
}

impl Views {
    pub(crate) fn new() -> Views {
        let descriptions = Mutex::new(KeptDescriptions::new());
        Views { descriptions, page: HtmlPage::new(include_str!("try_page.html")) }
    }

    pub(crate) async fn show(
        &self,
        api: &ApiContext,
        view: ApiView,
        head: &mut RequestHead,
    ) -> Answer {
        let (allow, is_allowed) = view.allows(&head.method);
        if !is_allowed {
            let reason = format!("{} does not support {}, but {allow}", head.path(), head.method);
            return Err(ProblemDetails::method_not_allowed(allow, reason));
        }
        match view {
            // The page has no data of its own, so it needs no token.
            ApiView::Page => {
                check_query(&[], head.query())?;
                Ok(self.page.response())
            }
            // A load balancer without a token may ask. The answer says nothing about the storage.
            ApiView::Check => {
                check_query(&[], head.query())?;
                Ok(bytes_response(StatusCode::OK, "text/plain", "ok"))
            }
            ApiView::Description => {
                head.identify(&api.access, api.node.clock()).await?;
                check_query(&["app"], head.query())?;
                let description = self.description(api, described(&api.node, head)?).await?;
                Ok(description.response(&head.headers))
            }
        }
    }

    /// The description of some applications. It is made at the first request for it, and never
    /// twice at the same time.
    async fn description(
        &self,
        api: &ApiContext,
        places: Vec<usize>,
    ) -> Result<Description, ProblemDetails> {
        let mut kept = self.descriptions.lock().await;
        if let Some(description) = kept.all.get(&places) {
            return Ok(description.clone());
        }
        let made = api.limits.turns.run(async { make_description(api, &places) }).await;
        let made = made.map_err(|error| {
            let reason = format!("the description cannot be made: {error}");
            ProblemDetails::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", reason)
        })?;
        kept.keep(places, made.clone());
        Ok(made)
    }
}

fn make_description(api: &ApiContext, places: &[usize]) -> Result<Description, InvalidHeaderValue> {
    let apps = places.iter().filter_map(|place| api.node.apps().get(*place));
    let apps = apps.map(|app| DescribedApp { name: app.name(), application: app.application() });
    let json = describe(&Vec::from_iter(apps), api.access.needs_token()).to_string();
    let digest = Sha256::digest(&json);
    let hex: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    Ok(Description { json: json.into(), tag: format!("\"{hex}\"").try_into()? })
}

/// The applications that a request asks for, by their indexes on the node.
fn described(node: &Node, head: &RequestHead) -> Result<Vec<usize>, ProblemDetails> {
    let grants = &head.caller.grants;
    let all = || granted(node, grants);
    let Some(app) = parameter::<String>(head.query(), "app")? else {
        return Ok(all().map(|(place, _)| place).collect());
    };
    if !grants.any_in(&app) {
        return Err(forbidden(format!("the token grants nothing in {app}")));
    }
    let place = all().find(|(_, name)| *name == app);
    let not_deployed = || ProblemDetails::not_deployed(&app, known_apps(node, grants));
    let (place, _) = place.ok_or_else(not_deployed)?;
    Ok(vec![place])
}

/// The applications of a node where a caller may do something, by their indexes.
fn granted<'n>(node: &'n Node, grants: &'n Grants) -> impl Iterator<Item = (usize, String)> + 'n {
    let names = node.apps().iter().map(|app| app.name().to_string());
    names.enumerate().filter(|(_, name)| grants.any_in(name))
}

/// The names of the applications that a caller may know of: those that the description of the API
/// shows.
pub(crate) fn known_apps(node: &Node, grants: &Grants) -> Vec<String> {
    granted(node, grants).map(|(_, name)| name).collect()
}

impl Description {
    /// The answer to a client, which may have this description already.
    fn response(self, request: &HeaderMap) -> Response<Body> {
        let Description { json, tag } = self;
        let mut response = if is_known(request, &tag) {
            let mut response = Response::new(full_body(Bytes::new()));
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response
        } else {
            bytes_response(StatusCode::OK, JSON, json)
        };
        let headers = response.headers_mut();
        headers.insert(ETAG, tag);
        // Another caller may see other applications.
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
        response
    }
}

/// Whether the client has this version of the description already (RFC 9110, section 13.1.2).
fn is_known(request: &HeaderMap, tag: &HeaderValue) -> bool {
    let values = request.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let mut tags = values.flat_map(|value| value.split(',')).map(str::trim);
    tags.any(|known| known == "*" || known.trim_start_matches("W/").as_bytes() == tag.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only the number of descriptions was limited. On a node with many applications, those for
    /// callers with different grants took any amount of memory.
    #[test]
    fn the_descriptions_that_are_kept_have_a_bound_in_bytes() {
        let mut kept = KeptDescriptions::new();
        let description = |bytes: usize| Description {
            json: vec![b'x'; bytes].into(),
            tag: HeaderValue::from_static("\"a1\""),
        };
        for place in 0..8 {
            kept.keep(vec![place], description(KEPT_BYTES / 4));
            assert!(kept.all.get(&vec![0]).is_some(), "it is used again and again");
        }
        let mut places: Vec<_> = kept.all.iter().map(|(places, _)| places[0]).collect();
        places.sort_unstable();
        assert_eq!((places, kept.bytes), (vec![0, 5, 6, 7], KEPT_BYTES));
        kept.keep(vec![9], description(KEPT_BYTES + 1));
        assert_eq!((kept.all.len(), kept.bytes), (1, KEPT_BYTES + 1), "the last one is kept");
        kept.keep(vec![1], description(7));
        assert_eq!((kept.all.len(), kept.bytes), (1, 7));
    }

    #[test]
    fn a_client_names_the_versions_that_it_has() {
        let tag = HeaderValue::from_static("\"a1\"");
        let is_known = |sent: &'static str| {
            is_known(&HeaderMap::from_iter([(IF_NONE_MATCH, HeaderValue::from_static(sent))]), &tag)
        };
        for known in ["\"a1\"", "*", "W/\"a1\"", "\"b\", \"a1\""] {
            assert!(is_known(known), "{known}");
        }
        for unknown in ["a1", "\"a\"", ""] {
            assert!(!is_known(unknown), "{unknown}");
        }
        assert!(!super::is_known(&HeaderMap::new(), &tag));
    }
}
