//! Routing: finds the resource that a path names. Nothing is read from the storage here.

use std::str::FromStr;

use access::Right;
use hyper::Method;
use vvm::{
    docnumbers::{DefinitionError, SeriesId},
    eventlog::{QName, RecordId, WsId},
};

use crate::problem::ProblemDetails;

/// The parameter of a read that says from where the answer may come.
pub(crate) const CONSISTENCY: &str = "consistency";

/// A resource of a workspace.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Route<'p> {
    pub(crate) owner: &'p str,
    pub(crate) app: &'p str,
    pub(crate) ws: WsId,
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
}

/// The request for a resource of a workspace.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ApiOperation {
    Command(QName),
    CreateDoc(QName),
    ReadDoc(QName, RecordId),
    ChangeDoc(QName, RecordId),
    DeactivateDoc(QName, RecordId),
    ListDocs(QName),
    Log,
    /// The log of a partition. The workspace of the route stands for its partition.
    PartitionLog,
    ListSeries,
    ReadSeries(SeriesId),
    DrawNumbers(SeriesId),
    PeekNumber(SeriesId),
    ListGaps(SeriesId),
}

impl ApiOperation {
    /// The name of such requests in metrics.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            ApiOperation::Command(_) => "command",
            ApiOperation::CreateDoc(_) => "create_doc",
            ApiOperation::ReadDoc(..) => "read_doc",
            ApiOperation::ChangeDoc(..) => "change_doc",
            ApiOperation::DeactivateDoc(..) => "deactivate_doc",
            ApiOperation::ListDocs(_) => "list_docs",
            ApiOperation::Log => "wlog",
            ApiOperation::PartitionLog => "plog",
            ApiOperation::ListSeries => "list_series",
            ApiOperation::ReadSeries(_) => "read_series",
            ApiOperation::DrawNumbers(_) => "draw_numbers",
            ApiOperation::PeekNumber(_) => "peek_number",
            ApiOperation::ListGaps(_) => "list_gaps",
        }
    }

    /// Whether the request has a body that counts.
    pub(crate) fn has_body(&self) -> bool {
        use ApiOperation::{ChangeDoc, Command, CreateDoc, DrawNumbers};
        matches!(self, Command(_) | CreateDoc(_) | ChangeDoc(..) | DrawNumbers(_))
    }

    /// The right that a caller needs.
    pub(crate) fn right(&self) -> Right {
        match self {
            // It has the events of all workspaces, in the order of the storage.
            ApiOperation::PartitionLog => Right::Admin,
            read if read.is_read() => Right::Read,
            _ => Right::Write,
        }
    }

    /// Whether the request reads a log.
    pub(crate) fn is_log(&self) -> bool {
        matches!(self, ApiOperation::Log | ApiOperation::PartitionLog)
    }

    /// Whether the request only reads.
    pub(crate) fn is_read(&self) -> bool {
        !self.has_body() && !matches!(self, ApiOperation::DeactivateDoc(..))
    }

    /// The names of the parameters of the query.
    pub(crate) fn parameters(&self) -> &'static [&'static str] {
        match self {
            ApiOperation::ReadDoc(..) => &[CONSISTENCY],
            ApiOperation::ListDocs(_) => &["after", "limit"],
            ApiOperation::Log | ApiOperation::PartitionLog => &["from", "limit", "follow"],
            ApiOperation::ListGaps(_) => &["period", "from", "limit"],
            _ => &[],
        }
    }
}

pub(crate) fn route<'p>(method: &Method, path: &'p str) -> Result<Route<'p>, ProblemDetails> {
    let unknown = || ProblemDetails::not_found(format!("the path {path} does not exist"));
    let rest = path.strip_prefix("/api/v2/apps/").ok_or_else(unknown)?;
    let mut parts = [""; 7];
    let mut count = 0;
    for part in rest.split('/') {
        *parts.get_mut(count).ok_or_else(unknown)? = part;
        count += 1;
    }
    let (owner, app, ws, resource) = match &parts[..count] {
        [owner, app, "workspaces", ws, resource @ ..] => (owner, app, ws, resource),
        [owner, app, "partitions", partition, "plog"] => {
            if !matches!(*method, Method::GET | Method::HEAD) {
                return Err(other_method("GET, HEAD", method, path));
            }
            let number: u16 = partition.parse().map_err(|_| {
                let reason = format!("`{partition}` is not the number of a partition");
                ProblemDetails::bad_request(reason)
            })?;
            let (ws, operation) = (WsId(number.into()), ApiOperation::PartitionLog);
            return Ok(Route { owner, app, ws, operation });
        }
        _ => return Err(unknown()),
    };
    let ws = WsId(ws.parse().map_err(|_| {
        ProblemDetails::bad_request(format!("`{ws}` is not the number of a workspace"))
    })?);
    let id = |text: &str| {
        text.parse().map(RecordId).map_err(|_| {
            let reason = format!("`{text}` is not the id of a record, which is a number");
            ProblemDetails::bad_request(reason)
        })
    };
    // hyper sends the head of the same answer, and leaves out the body.
    let method = if method == Method::HEAD { &Method::GET } else { method };
    let operation = match (method, resource) {
        (&Method::POST, ["commands", command]) => ApiOperation::Command(name(command)?),
        (&Method::POST, ["docs", table]) => ApiOperation::CreateDoc(name(table)?),
        (&Method::GET, ["docs", table, record]) => ApiOperation::ReadDoc(name(table)?, id(record)?),
        (&Method::PATCH, ["docs", table, record]) => {
            ApiOperation::ChangeDoc(name(table)?, id(record)?)
        }
        (&Method::DELETE, ["docs", table, record]) => {
            ApiOperation::DeactivateDoc(name(table)?, id(record)?)
        }
        (&Method::GET, ["cdocs", table]) => ApiOperation::ListDocs(name(table)?),
        (&Method::GET, ["wlog"]) => ApiOperation::Log,
        (&Method::GET, ["numbers"]) => ApiOperation::ListSeries,
        (&Method::GET, ["numbers", id]) => ApiOperation::ReadSeries(series(id)?),
        (&Method::POST, ["numbers", id, "next"]) => ApiOperation::DrawNumbers(series(id)?),
        (&Method::GET, ["numbers", id, "peek"]) => ApiOperation::PeekNumber(series(id)?),
        (&Method::GET, ["numbers", id, "gaps"]) => ApiOperation::ListGaps(series(id)?),
        (_, ["commands" | "docs", _] | ["numbers", _, "next"]) => {
            return Err(other_method("POST", method, path));
        }
        (_, ["docs", _, _]) => return Err(other_method("GET, HEAD, PATCH, DELETE", method, path)),
        (_, ["cdocs" | "numbers", _] | ["wlog" | "numbers"] | ["numbers", _, "peek" | "gaps"]) => {
            return Err(other_method("GET, HEAD", method, path));
        }
        _ => return Err(unknown()),
    };
    Ok(Route { owner, app, ws, operation })
}

fn other_method(allow: &'static str, method: &Method, path: &str) -> ProblemDetails {
    ProblemDetails::method_not_allowed(
        allow,
        format!("{path} does not support {method}, but {allow}"),
    )
}

fn name(name: &str) -> Result<QName, ProblemDetails> {
    QName::from_str(name).map_err(|bad| ProblemDetails::bad_request(bad.to_string()))
}

fn series(id: &str) -> Result<SeriesId, ProblemDetails> {
    id.parse().map_err(|bad: DefinitionError| ProblemDetails::bad_request(bad.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(method: Method, rest: &str) -> Result<ApiOperation, ProblemDetails> {
        let path = format!("/api/v2/apps/acme/shop/workspaces/7{rest}");
        let route = route(&method, &path)?;
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
            (Method::POST, "/docs/shop.Bill", ApiOperation::CreateDoc(bill())),
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
        for path in ["", "/", "/api/v2/apps", "/api/v2/apps/a/b/workspaces/x/wlog"] {
            assert!(route(&Method::GET, path).is_err(), "{path}");
        }
    }

    #[test]
    fn a_refused_method_is_answered_with_the_allowed_methods() {
        for (rest, allow) in [
            ("/commands/shop.Bill", "POST"),
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
