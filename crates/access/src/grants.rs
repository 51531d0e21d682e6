//! What a principal may do: the claim `vvm` of a token.

use std::{collections::BTreeSet, fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::strict_json;

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Right {
    /// Reads documents, lists, logs and numbers.
    Read,
    /// Sends commands, changes documents and draws numbers. It does not include `read`.
    Write,
    /// Acts as an operator. It includes neither `read` nor `write`.
    Admin,
}

/// The workspaces of a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Workspaces {
    /// All workspaces of the applications, written as `"*"`.
    All,
    /// These workspaces.
    These(BTreeSet<u64>),
}

/// One entry of the grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    app: Option<String>,
    workspaces: Workspaces,
    rights: BTreeSet<Right>,
}

/// What a principal may do. The default is nothing.
///
/// The JSON is that of the claim `vvm`: a list of entries such as
/// `{"app": "acme/shop", "workspaces": [7, 8], "rights": ["read"]}`. An entry with a member that
/// this program does not know is refused, because a limit that is not understood must not be
/// ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants(Vec<Grant>);

/// Grants that make no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the grants make no sense: {0}")]
pub struct InvalidGrants(String);

/// An entry as JSON.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GrantJson {
    app: String,
    workspaces: Value,
    rights: Vec<Right>,
}

impl Right {
    /// The name in a grant.
    pub fn name(self) -> &'static str {
        match self {
            Right::Read => "read",
            Right::Write => "write",
            Right::Admin => "admin",
        }
    }
}

impl Grant {
    /// A grant of rights in workspaces of an application. `app` is the owner and the name of the
    /// application, such as `acme/shop`; `None` stands for all, written as `"*"`.
    pub fn new(
        app: Option<String>,
        workspaces: Workspaces,
        rights: impl IntoIterator<Item = Right>,
    ) -> Grant {
        Grant { app, workspaces, rights: rights.into_iter().collect() }
    }

    fn is_of_app(&self, app: &str) -> bool {
        self.app.as_deref().is_none_or(|of| of == app)
    }
}

impl Grants {
    /// Grants with these entries.
    pub fn new(entries: impl IntoIterator<Item = Grant>) -> Grants {
        Grants(entries.into_iter().collect())
    }

    /// All rights everywhere, for a caller that nobody checks.
    pub fn everything() -> Grants {
        let rights = [Right::Read, Right::Write, Right::Admin];
        Grants(vec![Grant::new(None, Workspaces::All, rights)])
    }

    /// The entries.
    pub fn entries(&self) -> &[Grant] {
        &self.0
    }

    /// Whether the principal may do an operation in a workspace of an application; `None` stands
    /// for all workspaces together.
    pub fn may(&self, app: &str, workspace: Option<u64>, right: Right) -> bool {
        self.0.iter().any(|grant| {
            let is_here = match (&grant.workspaces, workspace) {
                (Workspaces::All, _) => true,
                (Workspaces::These(some), Some(workspace)) => some.contains(&workspace),
                (Workspaces::These(_), None) => false,
            };
            is_here && grant.is_of_app(app) && grant.rights.contains(&right)
        })
    }

    /// Whether the principal may do anything in an application.
    pub fn any_in(&self, app: &str) -> bool {
        self.0.iter().any(|grant| grant.is_of_app(app) && !grant.rights.is_empty())
    }

    /// Whether the principal may act as an operator of the node: it has the right `admin` for all
    /// workspaces of all applications.
    pub fn may_administer(&self) -> bool {
        self.0.iter().any(|grant| {
            grant.app.is_none()
                && grant.workspaces == Workspaces::All
                && grant.rights.contains(&Right::Admin)
        })
    }

    /// Reads the claim `vvm`. `None` stands for a token without the claim, which grants nothing.
    pub(crate) fn from_claim(claim: Option<Value>) -> Result<Grants, InvalidGrants> {
        claim.map_or(Ok(Grants::default()), |claim| read(Ok(claim)))
    }

    /// The JSON of the claim.
    pub(crate) fn to_claim(&self) -> Value {
        let entry = |grant: &Grant| {
            let workspaces = match &grant.workspaces {
                Workspaces::All => Value::from("*"),
                Workspaces::These(some) => some.iter().copied().collect(),
            };
            let rights: Value = grant.rights.iter().map(|right| right.name()).collect();
            let app = grant.app.as_deref().unwrap_or("*");
            serde_json::json!({"app": app, "workspaces": workspaces, "rights": rights})
        };
        self.0.iter().map(entry).collect()
    }
}

impl fmt::Display for Grants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_claim().fmt(f)
    }
}

impl FromStr for Grants {
    type Err = InvalidGrants;

    fn from_str(json: &str) -> Result<Grants, InvalidGrants> {
        read(strict_json::value(json.as_bytes()))
    }
}

/// Reads the entries. No object of them has a name twice.
fn read(entries: serde_json::Result<Value>) -> Result<Grants, InvalidGrants> {
    let invalid = |error: serde_json::Error| InvalidGrants(error.to_string());
    let entries: Vec<Value> = entries.and_then(serde_json::from_value).map_err(invalid)?;
    let entry = |entry| Grant::try_from(strict_json::object::<GrantJson>(entry).map_err(invalid)?);
    entries.into_iter().map(entry).collect::<Result<_, _>>().map(Grants)
}

impl TryFrom<GrantJson> for Grant {
    type Error = InvalidGrants;

    fn try_from(json: GrantJson) -> Result<Grant, InvalidGrants> {
        let invalid = |why: &str| Err(InvalidGrants(why.to_owned()));
        let app = match json.app.as_str() {
            "*" => None,
            app if is_app_name(app) => Some(json.app),
            app => {
                // The text of a token may have any characters.
                let app = app.escape_debug();
                return invalid(&format!(
                    "`app` is `{app}`, which is neither `*` nor the owner and the name of an \
                     application, such as `acme/shop`"
                ));
            }
        };
        let workspaces = match json.workspaces {
            Value::String(all) if all == "*" => Workspaces::All,
            Value::Array(some) => {
                let some: Option<BTreeSet<u64>> = some.iter().map(Value::as_u64).collect();
                match some {
                    Some(some) if !some.is_empty() => Workspaces::These(some),
                    _ => return invalid("`workspaces` is not a list with numbers of workspaces"),
                }
            }
            _ => return invalid("`workspaces` is neither `*` nor a list"),
        };
        if json.rights.is_empty() {
            return invalid("`rights` is empty");
        }
        Ok(Grant::new(app, workspaces, json.rights))
    }
}

fn is_app_name(app: &str) -> bool {
    let mut parts = app.split('/');
    let is_name = |part: Option<&str>| part.is_some_and(|part| !part.is_empty() && part != "*");
    is_name(parts.next()) && is_name(parts.next()) && parts.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: &str = r#"[
        {"app": "acme/shop", "workspaces": [7, 8], "rights": ["read", "write"]},
        {"app": "*", "workspaces": "*", "rights": ["read"]}
    ]"#;

    #[test]
    fn an_operation_needs_a_grant_for_its_application_workspace_and_right() {
        let all: Grants = BOTH.parse().unwrap();
        let shop = Grants::new(all.entries()[..1].to_vec());
        assert!(shop.may("acme/shop", Some(7), Right::Write));
        for (app, workspace, right) in [
            ("acme/shop", Some(9), Right::Write),
            ("acme/shop", None, Right::Write),
            ("acme/bank", Some(7), Right::Write),
            ("shop", Some(7), Right::Write),
            ("acme/shop", Some(7), Right::Admin),
        ] {
            assert!(!shop.may(app, workspace, right), "{app} {workspace:?} {right:?}");
        }
        assert!(all.may("acme/bank", None, Right::Read) && !all.may("b/c", None, Right::Write));
        assert!(!Grants::default().may("acme/shop", Some(7), Right::Read));
    }

    /// A grant of two entries must not add up to a right that no entry has.
    #[test]
    fn no_right_includes_another_one_and_entries_do_not_add_up() {
        for right in [Right::Read, Right::Write, Right::Admin] {
            let text = format!(r#"[{{"app":"*","workspaces":"*","rights":["{}"]}}]"#, right.name());
            let grants: Grants = text.parse().unwrap();
            for other in [Right::Read, Right::Write, Right::Admin] {
                assert_eq!(grants.may("a/b", Some(1), other), right == other);
            }
            assert_eq!(grants.may_administer(), right == Right::Admin);
        }
        let parts = r#"[{"app":"acme/shop","workspaces":"*","rights":["admin"]},
            {"app":"*","workspaces":"*","rights":["read"]},
            {"app":"*","workspaces":[1],"rights":["admin"]}]"#;
        let parts: Grants = parts.parse().unwrap();
        assert!(!parts.may_administer());
        assert!(!parts.may("acme/bank", None, Right::Admin));
        assert!(Grants::everything().may_administer());
    }

    #[test]
    fn grants_that_are_not_understood_are_refused() {
        for json in [
            "",
            "{}",
            "null",
            r#""*""#,
            r#"[{}]"#,
            r#"[{"app":"*","workspaces":"*","rights":[]}]"#,
            r#"[{"app":"*","workspaces":"*","rights":["reads"]}]"#,
            r#"[{"app":"*","workspaces":"*","rights":"read"}]"#,
            r#"[{"app":"*","workspaces":[],"rights":["read"]}]"#,
            r#"[{"app":"*","workspaces":[-1],"rights":["read"]}]"#,
            r#"[{"app":"*","workspaces":[1.5],"rights":["read"]}]"#,
            r#"[{"app":"*","workspaces":["*"],"rights":["read"]}]"#,
            r#"[{"app":"*","workspaces":"all","rights":["read"]}]"#,
            r#"[{"app":"*","workspaces":null,"rights":["read"]}]"#,
            r#"[{"app":"*","rights":["read"]}]"#,
            r#"[{"app":"shop","workspaces":"*","rights":["read"]}]"#,
            r#"[{"app":"acme/*","workspaces":"*","rights":["read"]}]"#,
            r#"[{"app":"acme/","workspaces":"*","rights":["read"]}]"#,
            r#"[{"app":"a/b/c","workspaces":"*","rights":["read"]}]"#,
            r#"[{"app":"","workspaces":"*","rights":["read"]}]"#,
            r#"[{"app":"*","workspaces":"*","rights":["read"],"tables":["shop.Bill"]}]"#,
        ] {
            assert!(json.parse::<Grants>().is_err(), "{json}");
        }
        assert_eq!("[]".parse::<Grants>().unwrap(), Grants::default());
    }

    /// The error did not say which of several entries is wrong.
    #[test]
    fn the_error_of_an_application_quotes_its_name() {
        let wrong = BOTH.replace("acme/shop", "acme\\nshop").parse::<Grants>().unwrap_err();
        assert!(wrong.to_string().contains(r"`app` is `acme\nshop`, which is neither"), "{wrong}");
    }

    #[test]
    fn the_claim_is_read_as_it_was_written() {
        let grants: Grants = BOTH.parse().unwrap();
        assert_eq!(grants.to_claim().to_string().parse::<Grants>().unwrap(), grants);
    }
}
