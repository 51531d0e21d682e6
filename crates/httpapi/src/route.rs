//! Routing: finds the resource that a path names. Nothing is read from the storage here.

use std::str::FromStr;

use hyper::Method;
use vvm::eventlog::{QName, RecordId, WsId};

use crate::reply::Trouble;

/// A resource of a workspace.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Route<'p> {
    pub(crate) owner: &'p str,
    pub(crate) app: &'p str,
    pub(crate) ws: WsId,
    pub(crate) what: What,
}

/// The request for a resource of a workspace.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum What {
    Command(QName),
    CreateDoc(QName),
    ReadDoc(QName, RecordId),
    ChangeDoc(QName, RecordId),
    DeactivateDoc(QName, RecordId),
    ListDocs(QName),
    Log,
}

impl What {
    /// The name of such requests in metrics.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            What::Command(_) => "command",
            What::CreateDoc(_) => "create_doc",
            What::ReadDoc(..) => "read_doc",
            What::ChangeDoc(..) => "change_doc",
            What::DeactivateDoc(..) => "deactivate_doc",
            What::ListDocs(_) => "list_docs",
            What::Log => "wlog",
        }
    }

    /// Refuses parameters that have no meaning for this resource, or that are there twice.
    /// Otherwise the client would believe that such a parameter has an effect.
    pub(crate) fn check_query(&self, query: Option<&str>) -> Result<(), Trouble> {
        let known: &[&str] = match self {
            What::ListDocs(_) => &["after", "limit"],
            What::Log => &["from", "limit"],
            _ => &[],
        };
        let mut seen = Vec::new();
        for (name, _) in parameters(query) {
            if !known.contains(&name) {
                let reason = match known {
                    [] => format!("there is no parameter `{name}` here, nor any other"),
                    _ => format!("there is no parameter `{name}` here, but {}", known.join(", ")),
                };
                return Err(Trouble::bad_request(reason));
            }
            if seen.contains(&name) {
                return Err(Trouble::bad_request(format!("the parameter `{name}` is there twice")));
            }
            seen.push(name);
        }
        Ok(())
    }
}

/// The default limit of a list.
const USUAL: usize = 100;

pub(crate) fn route<'p>(method: &Method, path: &'p str) -> Result<Route<'p>, Trouble> {
    let unknown = || Trouble::not_found(format!("there is no {path}"));
    let rest = path.strip_prefix("/api/v2/apps/").ok_or_else(unknown)?;
    let mut parts = [""; 7];
    let mut count = 0;
    for part in rest.split('/') {
        *parts.get_mut(count).ok_or_else(unknown)? = part;
        count += 1;
    }
    let [owner, app, "workspaces", ws, what @ ..] = &parts[..count] else {
        return Err(unknown());
    };
    let ws =
        WsId(ws.parse().map_err(|_| {
            Trouble::bad_request(format!("`{ws}` is no workspace: it is a number"))
        })?);
    let id = |id: &str| {
        let id = id.parse().map(RecordId);
        id.map_err(|_| Trouble::bad_request("the id of a record is a number"))
    };
    // hyper sends the head of the same answer, and leaves out the body.
    let method = if method == Method::HEAD { &Method::GET } else { method };
    let what = match (method, what) {
        (&Method::POST, ["commands", command]) => What::Command(name(command)?),
        (&Method::POST, ["docs", table]) => What::CreateDoc(name(table)?),
        (&Method::GET, ["docs", table, record]) => What::ReadDoc(name(table)?, id(record)?),
        (&Method::PATCH, ["docs", table, record]) => What::ChangeDoc(name(table)?, id(record)?),
        (&Method::DELETE, ["docs", table, record]) => {
            What::DeactivateDoc(name(table)?, id(record)?)
        }
        (&Method::GET, ["cdocs", table]) => What::ListDocs(name(table)?),
        (&Method::GET, ["wlog"]) => What::Log,
        (_, ["commands" | "docs", _]) => return Err(other_method("POST", method, path)),
        (_, ["docs", _, _]) => return Err(other_method("GET, HEAD, PATCH, DELETE", method, path)),
        (_, ["cdocs", _] | ["wlog"]) => return Err(other_method("GET, HEAD", method, path)),
        _ => return Err(unknown()),
    };
    Ok(Route { owner, app, ws, what })
}

fn other_method(allow: &'static str, method: &Method, path: &str) -> Trouble {
    Trouble::method_not_allowed(allow, format!("{method} is not for {path}, but {allow}"))
}

fn name(name: &str) -> Result<QName, Trouble> {
    QName::from_str(name).map_err(|bad| Trouble::bad_request(bad.to_string()))
}

/// The limit of a list, as the query gives it.
pub(crate) fn limit(query: Option<&str>, most: usize) -> Result<usize, Trouble> {
    let limit = parameter(query, "limit")?.unwrap_or(USUAL);
    match (1..=most).contains(&limit) {
        true => Ok(limit),
        false => Err(Trouble::bad_request(format!("`limit` is 1 to {most}"))),
    }
}

/// The parameters of a query: names and values.
pub(crate) fn parameters(query: Option<&str>) -> impl Iterator<Item = (&str, &str)> {
    let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

/// The value of a parameter of a query.
pub(crate) fn parameter<T: FromStr>(query: Option<&str>, name: &str) -> Result<Option<T>, Trouble> {
    let Some((_, value)) = parameters(query).find(|(key, _)| *key == name) else { return Ok(None) };
    let bad = |_| Trouble::bad_request(format!("`{name}={value}` cannot be understood"));
    value.parse().map(Some).map_err(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn what(method: Method, rest: &str) -> Result<What, Trouble> {
        let path = format!("/api/v2/apps/acme/shop/workspaces/7{rest}");
        let route = route(&method, &path)?;
        assert_eq!((route.owner, route.app, route.ws), ("acme", "shop", WsId(7)));
        Ok(route.what)
    }

    #[test]
    fn each_path_has_one_meaning() {
        let bill = || "shop.Bill".parse().unwrap();
        let id = RecordId(322);
        for (method, rest, expected) in [
            (Method::POST, "/commands/shop.Bill", What::Command(bill())),
            (Method::POST, "/docs/shop.Bill", What::CreateDoc(bill())),
            (Method::GET, "/docs/shop.Bill/322", What::ReadDoc(bill(), id)),
            (Method::PATCH, "/docs/shop.Bill/322", What::ChangeDoc(bill(), id)),
            (Method::DELETE, "/docs/shop.Bill/322", What::DeactivateDoc(bill(), id)),
            (Method::GET, "/cdocs/shop.Bill", What::ListDocs(bill())),
            (Method::GET, "/wlog", What::Log),
            (Method::HEAD, "/docs/shop.Bill/322", What::ReadDoc(bill(), id)),
            (Method::HEAD, "/wlog", What::Log),
        ] {
            assert_eq!(what(method, rest).unwrap(), expected);
        }
    }

    #[test]
    fn what_has_no_meaning_is_refused() {
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
        ] {
            let trouble = what(method, rest).unwrap_err();
            assert_eq!(trouble.into_response("").status(), status, "{rest}");
        }
        for path in ["", "/", "/api/v2/apps", "/api/v2/apps/a/b/workspaces/x/wlog"] {
            assert!(route(&Method::GET, path).is_err(), "{path}");
        }
    }

    #[test]
    fn who_uses_another_method_is_told_which_there_are() {
        for (rest, allow) in [
            ("/commands/shop.Bill", "POST"),
            ("/docs/shop.Bill", "POST"),
            ("/docs/shop.Bill/1", "GET, HEAD, PATCH, DELETE"),
            ("/cdocs/shop.Bill", "GET, HEAD"),
            ("/wlog", "GET, HEAD"),
        ] {
            let response = what(Method::PUT, rest).unwrap_err().into_response("");
            assert_eq!(response.headers()[hyper::header::ALLOW], allow, "{rest}");
        }
    }

    #[test]
    fn parameters_of_queries() {
        assert_eq!(parameter(Some("from=7&limit=9"), "limit").unwrap(), Some(9));
        assert_eq!(parameter::<u64>(Some("from=7"), "limit").unwrap(), None);
        assert!(parameter::<u64>(Some("from=x"), "from").is_err());
        assert!(parameter::<u64>(Some("from"), "from").is_err());
    }

    #[test]
    fn parameters_that_mean_nothing_are_refused() {
        let bill = || "shop.Bill".parse().unwrap();
        let (list, read) = (What::ListDocs(bill()), What::ReadDoc(bill(), RecordId(322)));
        for query in [None, Some(""), Some("limit=1"), Some("after=1&limit=1"), Some("limit=1&")] {
            assert!(list.check_query(query).is_ok(), "{query:?}");
        }
        for (what, query) in [
            (&list, "limt=1"),
            (&list, "limit=1&limit=2"),
            (&list, "from=1"),
            (&read, "limit=1"),
            (&What::Log, "follow"),
        ] {
            assert!(what.check_query(Some(query)).is_err(), "{query}");
        }
    }
}
