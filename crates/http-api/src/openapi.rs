//! The description of the API as OpenAPI 3.1: what each endpoint of the router's table does, for
//! each table, command and series of the applications.
//!
//! The description follows from the definitions of the applications alone, so it does not change
//! while a node runs.

mod answers;
mod codes;
mod headers;
mod json;
mod operations;
mod problems;
mod tables;

use std::sync::LazyLock;

use serde_json::{Map, Value as Json, json};

#[cfg(test)]
pub(crate) use self::codes::PROBLEM_CODES;
pub(crate) use self::{codes::is_listed, json::DescribedApp, tables::is_changeable};
use self::{
    operations::paths,
    problems::{problem_responses, problem_schemas, problems_of_description},
    tables::schemas,
};

/// The path of the description.
pub(crate) const DESCRIPTION: &str = "/api/v2/openapi.json";

/// The path for the check that the port answers.
pub(crate) const CHECK: &str = "/api/check";

/// The name of the scheme of tokens.
const BEARER: &str = "bearer";

/// The fixed part of every description. The node may be behind a proxy, so the paths are relative
/// to the origin of the document.
static FIXED: LazyLock<Json> = LazyLock::new(|| {
    serde_json::from_str(include_str!("openapi/fixed.json")).expect("the file is JSON")
});

/// Describes the API with these applications.
pub(crate) fn describe(apps: &[DescribedApp<'_>], needs_token: bool) -> Json {
    let mut described = FIXED.clone();
    described["info"]["version"] = env!("CARGO_PKG_VERSION").into();
    // 1. The problems.
    let components = &mut described["components"];
    components["responses"] = problem_responses().into();
    add(&mut components["schemas"], problem_schemas());
    for (path, method) in [(DESCRIPTION, "get"), (CHECK, "get"), (CHECK, "post")] {
        let mut problems = problems_of_description();
        if path == CHECK {
            // The check needs no token.
            problems.remove("401");
        }
        add(&mut described["paths"][path][method]["responses"], problems);
    }
    // 2. The applications.
    for app in apps {
        add(&mut described["paths"], paths(app, needs_token));
        add(&mut described["components"]["schemas"], schemas(app));
    }
    if let Json::Array(tags) = &mut described["tags"] {
        tags.extend(apps.iter().map(tag));
    }
    // 3. The tokens.
    if needs_token {
        described["components"]["securitySchemes"] = json!({
            BEARER: { "type": "http", "scheme": "bearer", "bearerFormat": "JWT" },
        });
        described["security"] = json!([{ BEARER: [] }]);
    }
    described
}

/// Adds members to an object of the description.
fn add(object: &mut Json, members: Map<String, Json>) {
    if let Json::Object(object) = object {
        object.extend(members);
    }
}

fn tag(app: &DescribedApp<'_>) -> Json {
    json!({ "name": app.name.to_string(), "description": "The operations of this application." })
}

#[cfg(test)]
mod tests;
