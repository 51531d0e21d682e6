//! Routing: finds the endpoint that a path and a method name. Nothing is read from the storage
//! here.

mod operation;
mod table;

use http_server::{
    problem::{ProblemDetails, UNKNOWN_PATH_PORT},
    spans::RequestSpan,
};
use hyper::Method;
use vvm::eventlog::WsId;

pub(crate) use self::{
    operation::ApiOperation,
    table::{
        AnswerKind, BodyKind, CONSISTENCY, ENDPOINTS, Endpoint, MOST_COMMANDS, Parameter,
        RequestHeader, Segment, Values,
    },
};

/// The beginning of the paths of all applications.
pub(crate) const APPS: &str = "/api/v2/apps/";

/// The path of the page that lists the operations of the API.
pub(crate) const PAGE: &str = "/api/v2/";

/// The largest number of parts of a path after [`APPS`].
const MOST_PARTS: usize = 7;

/// A request for an endpoint of an application.
#[derive(Debug)]
pub(crate) struct Route<'p> {
    pub(crate) owner: &'p str,
    pub(crate) app: &'p str,
    pub(crate) ws: WsId,
    pub(crate) endpoint: &'static Endpoint,
    pub(crate) operation: ApiOperation,
}

impl Route<'_> {
    /// The workspace that the request is for; `None` stands for all workspaces of the application.
    pub(crate) fn workspace(&self) -> Option<u64> {
        match self.operation {
            // The log of a partition has the events of all its workspaces.
            ApiOperation::PartitionLog => None,
            _ => Some(self.ws.0),
        }
    }

    /// Names the request in its span.
    pub(crate) fn name_in(&self, span: &mut RequestSpan, method: &Method, request: &str) {
        let Route { owner, app, endpoint, .. } = self;
        span.set_request(method, request, endpoint.kind, owner, app, self.workspace());
    }
}

/// Finds the endpoint of a request. No path belongs to two endpoints of the same method.
pub(crate) fn route<'p>(method: &Method, path: &'p str) -> Result<Route<'p>, ProblemDetails> {
    let unknown = || {
        ProblemDetails::not_found(format!(
            "the path {path} does not exist; the page {PAGE} lists the paths of the API"
        ))
        .with(UNKNOWN_PATH_PORT, "api")
    };
    let rest = path.strip_prefix(APPS).ok_or_else(unknown)?;
    let mut parts = [""; MOST_PARTS];
    let mut count = 0;
    for part in rest.split('/') {
        *parts.get_mut(count).ok_or_else(unknown)? = part;
        count += 1;
    }
    let [owner, app, resource @ ..] = &parts[..count] else { return Err(unknown()) };
    // hyper sends the head of the same answer, and leaves out the body.
    let wanted = if method == Method::HEAD { &Method::GET } else { method };
    let of_path = || ENDPOINTS.iter().filter(|endpoint| endpoint.has_path(resource));
    let Some(endpoint) = of_path().find(|endpoint| endpoint.method == wanted) else {
        let methods: Vec<&str> = of_path().map(Endpoint::allowed).collect();
        return Err(if methods.is_empty() {
            unknown()
        } else {
            let allow = methods.join(", ");
            let reason = format!("{path} does not support {method}, but {allow}");
            ProblemDetails::method_not_allowed(&allow, reason)
        });
    };
    let [place, names @ ..] = endpoint.values_of(resource);
    let ws = endpoint.place(place)?;
    Ok(Route { owner, app, ws, endpoint, operation: (endpoint.operation)(names)? })
}

#[cfg(test)]
mod tests {
    use access::Right;
    use vvm::eventlog::RecordId;

    use super::*;

    fn operation(method: Method, rest: &str) -> Result<ApiOperation, ProblemDetails> {
        let path = format!("/api/v2/apps/acme/shop/workspaces/7{rest}");
        let route = route(&method, &path)?;
        assert_eq!(route.workspace(), Some(7));
        assert_eq!((route.owner, route.app, route.ws), ("acme", "shop", WsId(7)));
        Ok(route.operation)
    }

    #[test]
    fn each_path_and_method_name_one_operation() {
        let bill = || "shop.Bill".parse().unwrap();
        let order = || "order".parse().unwrap();
        let id = RecordId(322);
        for (method, rest, expected) in [
            (Method::POST, "/commands/shop.Bill", ApiOperation::Command(bill())),
            (Method::POST, "/commands", ApiOperation::CommandBatch),
            (Method::POST, "/docs/shop.Bill", ApiOperation::CreateDoc(bill())),
            (Method::GET, "/docs", ApiOperation::ReadDocs),
            (Method::GET, "/docs/shop.Bill/322", ApiOperation::ReadDoc(bill(), id)),
            (Method::PATCH, "/docs/shop.Bill/322", ApiOperation::ChangeDoc(bill(), id)),
            (Method::DELETE, "/docs/shop.Bill/322", ApiOperation::DeactivateDoc(bill(), id)),
            (Method::GET, "/cdocs/shop.Bill", ApiOperation::ListDocs(bill())),
            (Method::GET, "/wlog", ApiOperation::Log),
            (Method::GET, "/numbers", ApiOperation::ListSeries),
            (Method::GET, "/numbers/order", ApiOperation::ReadSeries(order())),
            (Method::GET, "/numbers/next", ApiOperation::ReadSeries("next".parse().unwrap())),
            (Method::POST, "/numbers/Order/next", ApiOperation::DrawNumbers(order())),
            (Method::GET, "/numbers/order/peek", ApiOperation::PeekNumber(order())),
            (Method::GET, "/numbers/order/gaps", ApiOperation::ListGaps(order())),
            (Method::HEAD, "/docs/shop.Bill/322", ApiOperation::ReadDoc(bill(), id)),
            (Method::HEAD, "/wlog", ApiOperation::Log),
        ] {
            assert_eq!(operation(method, rest).unwrap(), expected);
        }
    }

    #[test]
    fn a_path_or_method_without_a_meaning_is_refused() {
        for (method, rest, status) in [
            (Method::GET, "", 404),
            (Method::GET, "/", 404),
            (Method::GET, "/nothing", 404),
            (Method::GET, "/commands/shop.Bill", 405),
            (Method::PUT, "/docs/shop.Bill/1", 405),
            (Method::POST, "/commands/shop.Bill/1", 404),
            (Method::POST, "/commands/Bill", 400),
            (Method::GET, "/docs/shop.Bill/x", 400),
            (Method::GET, "/wlog/1/2/3/4/5", 404),
            (Method::GET, "/numbers/", 400),
            (Method::GET, "/numbers/a%20b", 400),
            (Method::POST, "/numbers/a%2Fb/next", 400),
            (Method::GET, "/numbers/order/", 404),
            (Method::GET, "/numbers/order/none", 404),
            (Method::GET, "/numbers/order/gaps/1", 404),
            (Method::GET, "/numbers/order/next", 405),
            (Method::POST, "/numbers/order", 405),
        ] {
            let problem = operation(method, rest).unwrap_err();
            assert_eq!(problem.into_response().status(), status, "{rest}");
        }
        for path in
            ["", "/", "/api/v2/apps", "/api/v2/apps/a/b", "/api/v2/apps/a/b/workspaces/x/wlog"]
        {
            assert!(route(&Method::GET, path).is_err(), "{path}");
        }
    }

    #[test]
    fn the_log_of_a_partition_is_for_all_its_workspaces() {
        let path = |partition: &str| format!("/api/v2/apps/a/b/partitions/{partition}/plog");
        let log = path("3");
        let found = route(&Method::GET, &log).unwrap();
        assert_eq!((found.ws, found.workspace()), (WsId(3), None));
        assert_eq!(found.endpoint.right, Right::Admin);
        assert_eq!(found.operation, ApiOperation::PartitionLog);
        for (method, partition, status) in
            [(Method::GET, "65536", 400), (Method::GET, "x", 400), (Method::POST, "x", 405)]
        {
            let problem = route(&method, &path(partition)).unwrap_err();
            assert_eq!(problem.into_response().status(), status, "{partition}");
        }
    }

    /// Metrics use the kinds, and clients that are generated from the description use the names.
    #[test]
    fn each_endpoint_is_the_only_one_of_its_kind_and_of_its_path_and_method() {
        for (at, one) in ENDPOINTS.iter().enumerate() {
            for other in &ENDPOINTS[at + 1..] {
                assert_ne!(one.kind, other.kind);
                let is_same = one.path == other.path && one.method == other.method;
                assert!(!is_same, "{} and {}", one.kind, other.kind);
            }
            assert!(one.path.len() + 2 <= MOST_PARTS, "{}", one.kind);
            assert!(one.right == Right::Write || one.body.is_none(), "{}", one.kind);
        }
    }

    #[test]
    fn a_refused_method_is_answered_with_the_allowed_methods() {
        for (rest, allow) in [
            ("/commands/shop.Bill", "POST"),
            ("/commands", "POST"),
            ("/docs", "GET, HEAD"),
            ("/docs/shop.Bill", "POST"),
            ("/docs/shop.Bill/1", "GET, HEAD, PATCH, DELETE"),
            ("/cdocs/shop.Bill", "GET, HEAD"),
            ("/wlog", "GET, HEAD"),
            ("/numbers", "GET, HEAD"),
            ("/numbers/order", "GET, HEAD"),
            ("/numbers/order/next", "POST"),
            ("/numbers/order/peek", "GET, HEAD"),
            ("/numbers/order/gaps", "GET, HEAD"),
        ] {
            let response = operation(Method::PUT, rest).unwrap_err().into_response();
            assert_eq!(response.headers()[hyper::header::ALLOW], allow, "{rest}");
        }
    }
}
