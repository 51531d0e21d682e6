//! The building blocks of a description.

use serde_json::{Value as Json, json};
use vvm::{processor::Application, sysvvm::AppName};

/// An application in the description.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DescribedApp<'a> {
    pub(crate) name: &'a AppName,
    pub(crate) application: &'a Application,
}

impl DescribedApp<'_> {
    /// The name of a schema of this application. No other schema has it: the first two parts name
    /// the application, and the number of the other parts tells tables, fields and rows apart.
    pub(super) fn schema_name(&self, of: &str) -> String {
        format!("{}.{}.{of}", self.name.owner(), self.name.name())
    }
}

/// A reference to a component.
pub(super) fn reference(kind: &str, name: &str) -> Json {
    json!({ "$ref": format!("#/components/{kind}/{name}") })
}

pub(super) fn schema(name: &str) -> Json {
    reference("schemas", name)
}

/// An object that has no other properties.
pub(super) fn object(properties: Json, required: &[&str]) -> Json {
    json!({
        "type": "object", "properties": properties, "required": required,
        "additionalProperties": false,
    })
}

/// A whole number that is not negative, such as an id or an offset.
pub(super) fn natural(description: &str) -> Json {
    json!({ "type": "integer", "format": "int64", "minimum": 0, "description": description })
}

pub(super) fn text(description: &str) -> Json {
    json!({ "type": "string", "description": description })
}

pub(super) fn flag(description: &str) -> Json {
    json!({ "type": "boolean", "description": description })
}

pub(super) fn list(items: Json) -> Json {
    json!({ "type": "array", "items": items })
}
