//! The application that a request of an operator names.

use http_server::problem::ProblemDetails;
use vvm::{App, Node, sysvvm::AppName};

/// Finds an application of the node.
pub(crate) fn found_app<'a>(node: &'a Node, app: &AppName) -> Result<&'a App, ProblemDetails> {
    let found = node.app(app.owner(), app.name());
    found.ok_or_else(|| {
        let known = node.apps().iter().map(|app| app.name().to_string()).collect();
        ProblemDetails::no_such_app(app, known)
    })
}
