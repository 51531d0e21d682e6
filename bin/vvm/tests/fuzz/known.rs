//! The names that a generator can fill into a template: workspaces, and documents that exist.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard},
};

use fastrand::Rng;

/// The workspaces that exist from the beginning.
pub(crate) const WORKSPACES: [u64; 4] = [7, 8, 9, 65_536];

/// The most documents of a table and a workspace that are remembered.
const DOCS: usize = 300;

/// A document that a node has made.
#[derive(Clone, Debug)]
pub(crate) struct KnownDoc {
    pub(crate) id: u64,
    /// The version that an answer named last.
    pub(crate) etag: String,
}

/// The documents that exist, by workspace and table, and the member id of the node.
#[derive(Debug, Default)]
pub(crate) struct Known {
    docs: Mutex<HashMap<(u64, &'static str), Vec<KnownDoc>>>,
    pub(crate) member: String,
}

impl Known {
    pub(crate) fn new(member: String) -> Known {
        Known { docs: Mutex::default(), member }
    }

    fn docs(&self) -> MutexGuard<'_, HashMap<(u64, &'static str), Vec<KnownDoc>>> {
        self.docs.lock().unwrap()
    }

    pub(crate) fn add(&self, ws: u64, table: &'static str, doc: KnownDoc, rng: &mut Rng) {
        let mut docs = self.docs();
        let docs = docs.entry((ws, table)).or_default();
        match docs.len() < DOCS {
            true => docs.push(doc),
            false => docs[rng.usize(..DOCS)] = doc,
        }
    }

    /// A document of a table in a workspace, or a made-up one if there is none yet.
    pub(crate) fn doc(&self, ws: u64, table: &'static str, rng: &mut Rng) -> KnownDoc {
        let docs = self.docs();
        let found = docs.get(&(ws, table)).and_then(|docs| rng.choice(docs.iter()));
        found.cloned().unwrap_or(KnownDoc { id: 322_685_000_131_072, etag: "\"1.1\"".to_owned() })
    }

    /// The version of a document that an answer named.
    pub(crate) fn etag(&self, ws: u64, id: &str) -> Option<String> {
        let id: u64 = id.parse().ok()?;
        let docs = self.docs();
        let here = docs.iter().filter(|((of, _), _)| *of == ws).flat_map(|(_, docs)| docs);
        here.filter(|doc| doc.id == id).map(|doc| doc.etag.clone()).next()
    }

    /// Fills in the names of a template.
    pub(crate) fn fill(&self, template: &str, ws: u64, rng: &mut Rng) -> String {
        let mut text = String::new();
        let mut rest = template;
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').unwrap();
            text += before;
            text += &self.value(name, ws, rng);
            rest = after;
        }
        text + rest
    }

    fn value(&self, name: &str, ws: u64, rng: &mut Rng) -> String {
        let doc = |table, rng: &mut Rng| format!("{table}/{}", self.doc(ws, table, rng).id);
        match name {
            "ws" => format!("/api/v2/apps/demo/shop/workspaces/{ws}"),
            "new_ws" => {
                let ws = if rng.u8(..4) == 0 { rng.u64(100..300) } else { ws };
                format!("/api/v2/apps/demo/shop/workspaces/{ws}")
            }
            "ws_number" => ws.to_string(),
            "doc" => doc(rng.choice(["shop.Article", "shop.Bill", "shop.Order"]).unwrap(), rng),
            "article" => doc("shop.Article", rng),
            "id" => self.doc(ws, "shop.Article", rng).id.to_string(),
            "partition" => rng.u8(..10).to_string(),
            "series" => rng.choice(["order", "bill"]).unwrap().to_owned(),
            "small" => rng.u8(1..40).to_string(),
            "number" => rng.u16(1..500).to_string(),
            "huge" => (u64::MAX - u64::from(rng.u8(..3))).to_string(),
            "member" => self.member.clone(),
            _ => panic!("a template has the unknown name {name}"),
        }
    }
}
