//! The applications that a client learns of if it names an unknown one.

use serde_json::{Value, json};

use super::{ALL, Issuer, ask};
use crate::support::TestNode;

/// A client that named a wrong application did not learn which ones exist. A client with a token
/// learns only of those where its token grants something.
#[test]
fn an_unknown_application_names_those_that_the_client_may_know_of() {
    let issuer = Issuer::new();
    let (secured, open) = (issuer.node(), TestNode::start());
    let tokens = [
        ("of_all", ALL, true),
        ("of_some", r#"[{"app":"a/b","workspaces":[1],"rights":["read"]}]"#, false),
        (
            "of_both",
            r#"[{"app":"a/b","workspaces":"*","rights":["read"]},
                {"app":"demo/shop","workspaces":[9],"rights":["write"]}]"#,
            true,
        ),
    ];
    for path in ["/api/v2/apps/a/b/workspaces/1/wlog", "/api/v2/openapi.json?app=a/b"] {
        let checked = |(status, code, answer): (u16, String, Value), is_told: bool| {
            assert_eq!((status, &*code), (404, "not_deployed"), "{path}: {answer}");
            let (reason, apps) = match is_told {
                true => {
                    ("this node has no application a/b; it has demo/shop", json!(["demo/shop"]))
                }
                false => ("this node has no application a/b", json!([])),
            };
            assert_eq!((&answer["reason"], &answer["apps"]), (&json!(reason), &apps), "{path}");
        };
        checked(ask(&open, "GET", path, None, ""), true);
        for (subject, grants, is_told) in tokens {
            let token = issuer.token(subject, grants);
            checked(ask(&secured, "GET", path, Some(&token), ""), is_told);
        }
        // A client without rights in the application that it names learns nothing.
        let token = issuer.token("other", r#"[{"app":"c/d","workspaces":"*","rights":["read"]}]"#);
        for (token, expected) in [(None, 401), (Some(&*token), 403)] {
            let (status, _, answer) = ask(&secured, "GET", path, token, "");
            assert_eq!((status, answer.get("apps")), (expected, None), "{path}");
            assert!(!answer.to_string().contains("demo/shop"), "{answer}");
        }
    }
    let operator = issuer.token("operator", ALL);
    let (status, _, answer) = ask(&secured, "GET", "/sequences?app=a/b&ws=1", Some(&operator), "");
    assert_eq!((status, &answer["apps"]), (404, &json!(["demo/shop"])), "{answer}");
    secured.stop();
    open.stop();
}
