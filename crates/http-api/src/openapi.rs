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

use serde_json::{Map, Value as Json, json};

#[cfg(test)]
pub(crate) use self::codes::PROBLEM_CODES;
use self::{
    answers::common_schemas,
    headers::{headers, parameters},
    operations::{check_path, description_path, paths},
    problems::{problem_responses, problem_schemas},
    tables::schemas,
};
pub(crate) use self::{codes::is_listed, json::DescribedApp, tables::is_changeable};

/// The path of the description.
pub(crate) const DESCRIPTION: &str = "/api/v2/openapi.json";

/// The path that says that the port answers.
pub(crate) const CHECK: &str = "/api/check";

/// The name of the scheme of tokens.
const BEARER: &str = "bearer";

/// Describes the API with these applications.
pub(crate) fn describe(apps: &[DescribedApp<'_>], needs_token: bool) -> Json {
    let mut all_paths = Map::new();
    all_paths.insert(DESCRIPTION.to_owned(), description_path());
    all_paths.insert(CHECK.to_owned(), check_path());
    let mut all_schemas = common_schemas();
    all_schemas.extend(problem_schemas());
    for app in apps {
        all_paths.extend(paths(app, needs_token));
        all_schemas.extend(schemas(app));
    }
    let mut described = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "VVM node",
            "version": env!("CARGO_PKG_VERSION"),
            "description": INFO,
        },
        // The node may stand behind a proxy, so the paths count from the origin of this document.
        "servers": [{ "url": "/" }],
        "tags": tags(apps),
        "paths": all_paths,
        "components": {
            "schemas": all_schemas,
            "parameters": parameters(),
            "headers": headers(),
            "responses": problem_responses(),
        },
    });
    if needs_token {
        described["components"]["securitySchemes"] = json!({
            BEARER: { "type": "http", "scheme": "bearer", "bearerFormat": "JWT" },
        });
        described["security"] = json!([{ BEARER: [] }]);
    }
    described
}

fn tags(apps: &[DescribedApp<'_>]) -> Json {
    let of_app = |app: &DescribedApp<'_>| json!({ "name": app.name.to_string(), "description": "The operations of this application." });
    let description =
        json!({ "name": "description", "description": "The description of the API itself." });
    std::iter::once(description).chain(apps.iter().map(of_app)).collect()
}

const INFO: &str = "The API of this node: commands, documents, logs and document numbers of its \
    applications. Bodies are JSON. HEAD is answered like GET, without the body. An answer without \
    success is a problem, and the `code` of a problem is for programs. Send an `Idempotency-Key` with \
    each request that must not be done twice.";

#[cfg(test)]
mod tests;
