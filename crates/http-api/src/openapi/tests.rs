//! The description of the shop and of a second application.

use std::collections::BTreeSet;

use processor::{Application, Declarations};
use serde_json::Value as Json;
use shop::shop;
use vvm::eventlog::Schema;

use super::{codes::PROBLEM_CODES, *};
use crate::route::ENDPOINTS;

const WORKSPACE: &str = "/api/v2/apps/acme/shop/workspaces/{workspace}";

fn described(needs_token: bool) -> Json {
    let (first, second) = (shop(), Application::new(Declarations::new(Schema::default()).unwrap()));
    let (acme, empty) = ("acme/shop".parse().unwrap(), "acme/empty".parse().unwrap());
    let apps = [
        DescribedApp { name: &acme, application: &first },
        DescribedApp { name: &empty, application: &second },
    ];
    describe(&apps, needs_token)
}

/// All operations, with their paths.
fn operations(described: &Json) -> Vec<(&str, &Json)> {
    let paths = described["paths"].as_object().unwrap().iter();
    let methods = paths
        .flat_map(|(path, of)| of.as_object().unwrap().values().map(move |one| (&**path, one)));
    methods.collect()
}

fn schema_of<'d>(described: &'d Json, name: &str) -> &'d Json {
    &described["components"]["schemas"][name]
}

/// All references below a value.
fn references(value: &Json, found: &mut BTreeSet<String>) {
    match value {
        Json::Object(of) => {
            if let Some(Json::String(to)) = of.get("$ref") {
                found.insert(to.clone());
            }
            of.values().for_each(|value| references(value, found));
        }
        Json::Array(of) => of.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[test]
fn each_endpoint_is_described_for_each_table_that_fits() {
    let described = described(false);
    let ids: Vec<&str> = operations(&described)
        .into_iter()
        .map(|(_, operation)| operation["operationId"].as_str().unwrap())
        .collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
    for endpoint in ENDPOINTS {
        let id = format!("acme.shop.{}", endpoint.kind);
        let is_it = |one: &&str| {
            one.strip_prefix(&*id).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        assert!(ids.iter().any(is_it), "{id}");
    }
    let has = |id: &str| {
        ids.contains(&&*format!("acme.shop.{id}")) || ids.contains(&&*format!("acme.{id}"))
    };
    assert!(has("empty.command.sys.CreateWorkspace"));
    for id in [
        "command.sys.CUD",
        "command.shop.Note",
        "create_doc.shop.Bill",
        "create_doc.shop.Order",
        "read_doc.shop.Line",
        "read_doc.sys.WorkspaceDescriptor",
        "change_doc.shop.Line",
        "list_docs.shop.Article",
        "draw_numbers.order",
        "peek_number.invoice",
    ] {
        assert!(has(id), "{id}");
    }
    for id in [
        // Only a document is created alone, and only the system writes its tables.
        "create_doc.shop.Line",
        "create_doc.sys.WorkspaceDescriptor",
        "change_doc.sys.WorkspaceDescriptor",
        // The documents of operations do not change.
        "change_doc.shop.Order",
        "deactivate_doc.shop.Item",
        "list_docs.shop.Bill",
        // This application has no table for rows.
        "empty.command.sys.CUD",
        // Commands alone draw the numbers of a gapless series.
        "draw_numbers.invoice",
    ] {
        assert!(!has(id), "{id}");
    }
}

#[test]
fn all_references_lead_to_a_component_and_all_components_are_referred_to() {
    let described = described(true);
    let mut found = BTreeSet::new();
    references(&described, &mut found);
    for reference in &found {
        let at = reference.strip_prefix('#').unwrap();
        assert!(described.pointer(at).is_some(), "{reference}");
    }
    for (kind, components) in described["components"].as_object().unwrap() {
        for name in components.as_object().unwrap().keys() {
            let is_used = found.contains(&format!("#/components/{kind}/{name}"));
            // Requests that are no operation get these problems.
            let is_of_none = ["405", "417", "501"].iter().any(|of| name.ends_with(of))
                || name == "Allow" && kind == "headers";
            let is_scheme = kind == "securitySchemes";
            assert!(is_used || is_of_none || is_scheme, "{kind} {name}");
        }
    }
}

#[test]
fn a_table_gives_the_fields_of_its_records() {
    let described = described(false);
    let fields = schema_of(&described, "acme.shop.shop.Article.Fields");
    assert_eq!(fields["properties"]["name"]["type"], "string");
    assert_eq!(fields["properties"]["weight"]["format"], "double");
    assert_eq!(fields["properties"]["left"]["format"], "int64");
    assert_eq!(fields["additionalProperties"], false);
    let changes = schema_of(&described, "acme.shop.shop.Article.Changes");
    assert_eq!(changes["properties"]["name"]["type"], json!(["string", "null"]));
    for (table, drawn) in [("Invoice", "number"), ("Receipt", "serial")] {
        let fields = schema_of(&described, &format!("acme.shop.shop.{table}.Fields"));
        assert_eq!(fields["properties"][drawn]["readOnly"], true, "{table}");
        let changes = schema_of(&described, &format!("acme.shop.shop.{table}.Changes"));
        assert!(changes["properties"].get(drawn).is_none(), "{table}");
    }
    let line = schema_of(&described, "acme.shop.shop.Line");
    assert_eq!(line["properties"]["parent"]["properties"]["container"]["enum"], json!(["lines"]));
    assert!(line["required"].as_array().unwrap().contains(&"parent".into()));
    let settings = schema_of(&described, "acme.shop.shop.Settings");
    assert_eq!(settings["properties"]["id"]["const"], 65_600);
}

#[test]
fn an_operation_has_the_headers_and_problems_that_can_be() {
    let described = described(false);
    let operation =
        |path: &str, method: &str| &described["paths"][format!("{WORKSPACE}{path}")][method];
    let statuses = |operation: &Json| {
        operation["responses"].as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>()
    };
    let refers = |operation: &Json, to: &str| {
        let mut found = BTreeSet::new();
        references(operation, &mut found);
        found.contains(&format!("#/components/{to}"))
    };
    let create = operation("/docs/shop.Bill", "post");
    assert!(
        statuses(create)
            .is_superset(&["201", "409", "413", "422", "504"].map(str::to_owned).into())
    );
    assert!(refers(create, "parameters/IdempotencyKey") && !refers(create, "parameters/IfMatch"));
    assert_eq!(create["requestBody"]["required"], true);
    let read = operation("/docs/shop.Bill/{id}", "get");
    for other in ["201", "408", "409", "413", "422", "504", "505"] {
        assert!(!statuses(read).contains(other), "{other}");
    }
    // The memory of answers has a share for one principal.
    assert!(statuses(read).contains("429"));
    assert!(refers(read, "headers/Version"));
    assert!(refers(operation("/docs/shop.Bill/{id}", "patch"), "parameters/IfMatch"));
    assert!(statuses(operation("/wlog", "get")).contains("505"));
    let draw = operation("/numbers/order/next", "post");
    assert!(statuses(draw).is_superset(&["409", "429", "504"].map(str::to_owned).into()));
    assert!(!refers(draw, "parameters/IdempotencyKey"));
    for listed in PROBLEM_CODES {
        let schema = schema_of(&described, &format!("Problem{}", listed.status));
        let codes = schema["properties"]["code"]["enum"].as_array().unwrap();
        assert!(codes.contains(&listed.code.into()), "{}", listed.code);
    }
}

#[test]
fn only_a_node_that_wants_tokens_asks_for_one() {
    let (open, closed) = (described(false), described(true));
    assert!(open.get("security").is_none());
    assert!(open["components"].get("securitySchemes").is_none());
    assert_eq!(closed["security"], json!([{ "bearer": [] }]));
    let log = &closed["paths"]["/api/v2/apps/acme/shop/partitions/{partition}/plog"]["get"];
    assert!(log["description"].as_str().unwrap().contains("`admin`"));
}
