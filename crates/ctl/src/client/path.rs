//! The paths of requests.

use std::fmt::Display;

use sysvvm::AppName;

/// The path of an application in the API.
pub(crate) fn path_of_app(app: &AppName) -> String {
    format!("/api/v2/apps/{}/{}", app.owner(), app.name())
}

/// The part of a query for a parameter that may be given.
pub(crate) fn query_part(name: &str, value: Option<impl Display>) -> String {
    value.map_or_else(String::new, |value| format!("&{name}={value}"))
}
