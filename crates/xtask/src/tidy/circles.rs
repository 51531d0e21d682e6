//! No files of a crate import each other in a circle.
//!
//! A file imports what its `use` lines and its paths name, through all re-exports. A front door
//! that only re-exports what its folder has imports nothing.

use std::collections::{BTreeMap, BTreeSet};

use super::SourceFile;

/// The crates that have no circle.
const CRATES: &[&str] = &[
    "crates/appstream",
    "crates/ctl",
    "crates/eventlog",
    "crates/http-admin",
    "crates/http-api",
    "crates/http-forward",
    "crates/http-server",
    "crates/ielections",
    "crates/isequencer",
    "crates/istorage",
    "crates/istorage-cassandra",
    "crates/istorage-dynamodb",
    "crates/istorage-redb",
    "crates/processor",
    "crates/seqstorage",
    "crates/shop",
    "crates/sysvvm",
    "crates/tck",
];

/// Returns the circles.
pub(super) fn check(files: &[SourceFile]) -> Vec<String> {
    CRATES.iter().filter_map(|folder| circle_in(files, folder)).collect()
}

fn circle_in(files: &[SourceFile], folder: &str) -> Option<String> {
    let sources = files.iter().filter_map(|SourceFile { path, text }| {
        let path = path.strip_prefix(folder)?.strip_prefix("/src/")?.strip_suffix(".rs")?;
        let path = if ["lib", "main"].contains(&path) { "" } else { path };
        let path = path.strip_suffix("/mod").unwrap_or(path);
        Some((path.replace('/', "::"), Module::read(text)))
    });
    let modules: Modules = sources.filter(|(name, _)| !name.ends_with("tests")).collect();
    let imports = modules.keys().map(|name| (name.as_str(), imports(&modules, name))).collect();
    let mut done = BTreeSet::new();
    modules.keys().find_map(|name| find_circle(&imports, name, &mut Vec::new(), &mut done)).map(
        |circle| format!("files of {folder} import each other in a circle: {}", circle.join(", ")),
    )
}

/// The modules of a crate by their paths. The path of the root is empty.
type Modules = BTreeMap<String, Module>;

struct Module {
    uses: Vec<Use>,
    /// The paths and names outside of `use` lines.
    words: BTreeSet<String>,
}

struct Use {
    is_public: bool,
    path: String,
    name: String,
}

impl Module {
    fn read(text: &str) -> Module {
        let code = text.split("\n#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let (mut uses, mut words) = (Vec::new(), BTreeSet::new());
        let mut lines = code.lines().map(str::trim).filter(|line| !line.starts_with("//"));
        while let Some(line) = lines.next() {
            let is_public = line.starts_with("pub");
            let item =
                if is_public { line.split_once(' ').map_or("", |(_, item)| item) } else { line };
            if let Some(begin) = item.strip_prefix("use ") {
                let mut tree = begin.to_owned();
                while !tree.ends_with(';') {
                    tree.push_str(lines.next().unwrap_or(";"));
                }
                expand("", tree.trim_end_matches(';'), &mut |path, name| {
                    uses.push(Use { is_public, path, name });
                });
            } else if !item.starts_with("mod ") {
                // What stands between quotes is text.
                let code = line.split('"').step_by(2);
                let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
                words.extend(code.flat_map(|code| code.split(|c| !is_part(c))).map(str::to_owned));
            }
        }
        Module { uses, words }
    }
}

/// Gives each path of a tree of imports, and the name that it has here.
fn expand(before: &str, tree: &str, give: &mut impl FnMut(String, String)) {
    let Some((head, rest)) = tree.split_once('{') else {
        let (path, name) = tree.split_once(" as ").unwrap_or((tree, ""));
        let path = format!("{before}{path}");
        let path = path.strip_suffix("::self").unwrap_or(&path);
        let last = path.rsplit("::").next().unwrap_or_default();
        return give(path.to_owned(), if name.is_empty() { last } else { name }.to_owned());
    };
    let (mut depth, before) = (0, format!("{before}{head}"));
    let parts = rest.strip_suffix('}').unwrap_or(rest).split(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    parts
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .for_each(|part| expand(&before, part, give));
}

fn join(module: &str, name: &str) -> String {
    if module.is_empty() { name.to_owned() } else { format!("{module}::{name}") }
}

/// Returns the module that has what a path in the module `from` names; `None` if it is of another
/// crate or a module itself.
fn resolve(modules: &Modules, from: &str, path: &str) -> Option<String> {
    let (first, mut rest) = path.split_once("::").unwrap_or((path, ""));
    let mut at = from.to_owned();
    match first {
        "crate" => at.clear(),
        "self" => {}
        "super" => at = from.rsplit_once("::").map_or("", |(parent, _)| parent).to_owned(),
        _ if modules.contains_key(&join(from, first)) => rest = path,
        _ => {
            // A crate that gives a name equal to its own is no alias.
            let is_alias =
                |it: &&Use| it.name == first && it.path.split("::").next() != Some(first);
            let alias = modules[from].uses.iter().find(is_alias)?;
            return resolve(modules, from, &join(&alias.path, rest));
        }
    }
    loop {
        let (next, behind) = rest.split_once("::").unwrap_or((rest, ""));
        match next {
            "" => return None,
            "super" => at = at.rsplit_once("::").map_or("", |(parent, _)| parent).to_owned(),
            _ if modules.contains_key(&join(&at, next)) => at = join(&at, next),
            _ => {
                return match modules[&at].uses.iter().find(|it| it.name == next) {
                    Some(import) => resolve(modules, &at, &import.path),
                    None => Some(at),
                };
            }
        }
        rest = behind;
    }
}

/// Returns the modules of the crate that a module imports from.
fn imports(modules: &Modules, name: &str) -> BTreeSet<String> {
    let Module { uses, words } = &modules[name];
    let used = uses.iter().filter(|it| !it.is_public || words.contains(&it.name));
    let paths = words.iter().filter(|word| word.contains("::"));
    let paths = used.map(|it| &it.path).chain(paths);
    paths.filter_map(|path| resolve(modules, name, path)).filter(|other| other != name).collect()
}

fn find_circle<'a>(
    imports: &BTreeMap<&'a str, BTreeSet<String>>,
    at: &'a str,
    way: &mut Vec<&'a str>,
    done: &mut BTreeSet<&'a str>,
) -> Option<Vec<&'a str>> {
    if let Some(begin) = way.iter().position(|before| *before == at) {
        return Some(way[begin..].to_vec());
    }
    if done.contains(at) {
        return None;
    }
    way.push(at);
    let mut next = imports.keys().filter(|name| imports[at].contains(**name));
    let found = next.find_map(|next| find_circle(imports, next, way, done));
    way.pop();
    done.insert(at);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circle(files: &[(&str, &str)]) -> Option<String> {
        let file = |(path, text): &(&str, &str)| SourceFile {
            path: format!("crates/a/src/{path}.rs"),
            text: (*text).to_owned(),
        };
        circle_in(&files.iter().map(file).collect::<Vec<_>>(), "crates/a")
    }

    #[test]
    fn files_that_import_each_other_are_found_through_re_exports() {
        let root = ("lib", "mod one;\nmod two;\npub use one::One;\npub use two::{\n    Two,\n};");
        let one = |text| circle(&[root, ("one", text), ("two", "use crate::One;\nstruct Two;")]);
        let found = one("use std::fmt;\nstruct One(crate::Two);").unwrap();
        assert!(found.ends_with("in a circle: one, two"), "{found}");
        assert!(one("use crate::two::{self, Other as It};\nstruct One;").is_some());
        assert!(one("use super::two;\nstruct One(two::Two);").is_some());
        assert_eq!(one("/// [`Two`](crate::Two)\nstruct One(&str, \"crate::Two\");"), None);
        assert_eq!(one("struct One;\n\n#[cfg(test)]\nmod tests {\n    use crate::Two;\n}"), None);
    }

    #[test]
    fn a_front_door_may_re_export_and_may_not_use() {
        let child = ("door/child", "use super::Shared;\npub struct Child(Shared);");
        let door = |rest: &str| {
            let text =
                format!("mod child;\npub use self::child::Child;\npub struct Shared;\n{rest}");
            circle(&[("lib", "mod door;"), ("door", &text), child])
        };
        assert_eq!(door("fn child() {}"), None);
        assert!(door("fn make(child: Child) {}").is_some());
    }
}
