//! The routes of both ports, as the generator sends them. A new route needs one entry here.
//!
//! A path or a query is a template. [`Known`](crate::known::Known) fills in its names in braces.

/// The port of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    Api,
    Admin,
}

/// The sender that a route needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    Reader,
    Writer,
    /// The right `admin` everywhere.
    Operator,
    /// No token at all.
    Anybody,
}

/// The valid body of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyKind {
    None,
    CreateWorkspace,
    Rows,
    /// Several commands.
    Batch,
    /// A new document of a table.
    NewDoc(&'static str),
    /// A change of a document of a table.
    Change(&'static str),
    Draw,
}

/// A route, and a valid request for it.
#[derive(Debug)]
pub(crate) struct FuzzRoute {
    pub(crate) name: &'static str,
    pub(crate) port: Port,
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    /// Valid queries, one of which is sent.
    pub(crate) queries: &'static [&'static str],
    /// The headers that the route needs beside the usual ones: names, and templates of values.
    pub(crate) headers: &'static [(&'static str, &'static str)],
    pub(crate) body: BodyKind,
    pub(crate) sender: Sender,
    /// The share of the route among all requests.
    pub(crate) weight: u32,
    /// The statuses of a request that the route did, or refused after it had done its work.
    pub(crate) done: &'static [u16],
    /// Whether the route ends the work of the node. Then it is sent once, after all others.
    pub(crate) is_last: bool,
}

const API: FuzzRoute = FuzzRoute {
    name: "",
    port: Port::Api,
    method: "GET",
    path: "",
    queries: &[""],
    headers: &[],
    body: BodyKind::None,
    sender: Sender::Reader,
    weight: 10,
    done: &[200],
    is_last: false,
};

const WRITE: FuzzRoute = FuzzRoute { method: "POST", sender: Sender::Writer, ..API };

const ADMIN: FuzzRoute =
    FuzzRoute { port: Port::Admin, sender: Sender::Operator, weight: 4, ..API };

const ACTION: FuzzRoute = FuzzRoute { method: "POST", weight: 2, done: &[202], ..ADMIN };

const FOLLOW_WORKSPACE: FuzzRoute = FuzzRoute {
    path: "{ws}/wlog",
    queries: &["follow=true&limit={small}", "follow=true&from=end", "follow=true&from={small}"],
    weight: 3,
    ..API
};

const FOLLOW_PARTITION: FuzzRoute = FuzzRoute {
    path: "/api/v2/apps/demo/shop/partitions/{partition}/plog",
    sender: Sender::Operator,
    weight: 2,
    ..FOLLOW_WORKSPACE
};

const SERVER_SENT_EVENTS: (&str, &str) = ("Accept", "text/event-stream");

/// All routes.
pub(crate) const ROUTES: &[FuzzRoute] = &[
    FuzzRoute {
        name: "command sys.CUD",
        path: "{ws}/commands/sys.CUD",
        body: BodyKind::Rows,
        weight: 30,
        ..WRITE
    },
    FuzzRoute {
        name: "command sys.CreateWorkspace",
        path: "{new_ws}/commands/sys.CreateWorkspace",
        body: BodyKind::CreateWorkspace,
        weight: 3,
        ..WRITE
    },
    FuzzRoute { name: "command batch", path: "{ws}/commands", body: BodyKind::Batch, ..WRITE },
    FuzzRoute { path: "{ws}/docs/shop.Article", ..create("create Article", "shop.Article") },
    FuzzRoute { path: "{ws}/docs/shop.Bill", ..create("create Bill", "shop.Bill") },
    FuzzRoute { path: "{ws}/docs/shop.Order", ..create("create Order", "shop.Order") },
    FuzzRoute { path: "{ws}/docs/shop.Delivery", ..create("create Delivery", "shop.Delivery") },
    FuzzRoute {
        name: "read document",
        path: "{ws}/docs/{doc}",
        queries: &["", "", "consistency=eventual"],
        weight: 30,
        ..API
    },
    FuzzRoute { name: "head of document", method: "HEAD", path: "{ws}/docs/{doc}", ..API },
    FuzzRoute {
        name: "change document",
        method: "PATCH",
        path: "{ws}/docs/{article}",
        body: BodyKind::Change("shop.Article"),
        weight: 15,
        ..WRITE
    },
    FuzzRoute {
        name: "deactivate document",
        method: "DELETE",
        path: "{ws}/docs/{doc}",
        weight: 5,
        ..WRITE
    },
    FuzzRoute {
        name: "list documents",
        path: "{ws}/cdocs/shop.Article",
        queries: &[
            "",
            "limit={small}",
            "after={number}&limit={small}",
            "after={id}",
            "order=-id&limit={small}",
            "order=-id&after={id}&keys=name",
            "where=%7B%22cents%22%3A%7B%22%24in%22%3A%5B{number}%2Cnull%5D%7D%7D&limit={small}",
            "where=%7B%22sys.IsActive%22%3Afalse%7D&keys=name,cents",
        ],
        ..API
    },
    FuzzRoute {
        name: "read documents",
        path: "{ws}/docs",
        queries: &[
            "ids={id}",
            "ids={id},{number}&keys=name",
            "ids={number},{huge},{id}&consistency=eventual",
        ],
        ..API
    },
    FuzzRoute {
        name: "log of workspace",
        path: "{ws}/wlog",
        queries: &["limit={small}", "from={number}&limit={small}", "from={huge}"],
        ..API
    },
    FuzzRoute { name: "follow workspace", ..FOLLOW_WORKSPACE },
    FuzzRoute {
        name: "follow workspace as server-sent events",
        headers: &[SERVER_SENT_EVENTS],
        ..FOLLOW_WORKSPACE
    },
    FuzzRoute {
        name: "follow workspace again",
        headers: &[SERVER_SENT_EVENTS, ("Last-Event-ID", "{small}")],
        ..FOLLOW_WORKSPACE
    },
    FuzzRoute {
        name: "log of partition",
        path: "/api/v2/apps/demo/shop/partitions/{partition}/plog",
        queries: &["limit={small}", "from={number}&limit={small}"],
        sender: Sender::Operator,
        weight: 3,
        ..API
    },
    FuzzRoute { name: "follow partition", ..FOLLOW_PARTITION },
    FuzzRoute {
        name: "follow partition as server-sent events",
        headers: &[SERVER_SENT_EVENTS],
        ..FOLLOW_PARTITION
    },
    FuzzRoute { name: "list series", path: "{ws}/numbers", ..API },
    FuzzRoute { name: "read series", path: "{ws}/numbers/{series}", ..API },
    FuzzRoute {
        name: "draw numbers",
        path: "{ws}/numbers/order/next",
        body: BodyKind::Draw,
        ..WRITE
    },
    FuzzRoute { name: "peek number", path: "{ws}/numbers/{series}/peek", ..API },
    FuzzRoute {
        name: "list gaps",
        path: "{ws}/numbers/{series}/gaps",
        queries: &["", "limit={small}", "from={number}"],
        ..API
    },
    FuzzRoute {
        name: "description",
        path: "/api/v2/openapi.json",
        queries: &["", "app=demo/shop"],
        weight: 1,
        ..API
    },
    FuzzRoute {
        name: "page of the API",
        path: "/api/v2/",
        sender: Sender::Anybody,
        weight: 1,
        ..API
    },
    FuzzRoute { name: "check", path: "/api/check", sender: Sender::Anybody, weight: 1, ..API },
    FuzzRoute { name: "live page", path: "/", sender: Sender::Anybody, ..ADMIN },
    FuzzRoute { name: "livez", path: "/livez", sender: Sender::Anybody, ..ADMIN },
    FuzzRoute { name: "readyz", path: "/readyz", sender: Sender::Anybody, ..ADMIN },
    FuzzRoute { name: "readyz verbose", path: "/readyz", queries: &["verbose"], ..ADMIN },
    FuzzRoute { name: "metrics", path: "/metrics", sender: Sender::Anybody, weight: 1, ..ADMIN },
    FuzzRoute { name: "status", path: "/status", ..ADMIN },
    FuzzRoute { name: "cluster", path: "/cluster", ..ADMIN },
    FuzzRoute { name: "cluster events", path: "/cluster/events", weight: 1, ..ADMIN },
    FuzzRoute {
        name: "sequences",
        path: "/sequences",
        queries: &["app=demo/shop&ws={ws_number}"],
        ..ADMIN
    },
    FuzzRoute { name: "repairs", path: "/repairs", ..ADMIN },
    inspect("inspect apps", "/inspect/apps", &[""]),
    inspect("inspect partitions", "/inspect/partitions", &[""]),
    inspect("inspect leases", "/inspect/leases", &[""]),
    inspect(
        "inspect plog",
        "/inspect/plog",
        &["app=demo/shop&partition={partition}&from={number}&limit={small}"],
    ),
    inspect(
        "inspect wlog",
        "/inspect/wlog",
        &["app=demo/shop&ws={ws_number}&limit={small}", "app=demo/shop&ws={ws_number}&from={huge}"],
    ),
    inspect(
        "inspect records",
        "/inspect/records",
        &["app=demo/shop&ws={ws_number}&limit={small}", "app=demo/shop&ws={ws_number}&from={id}"],
    ),
    inspect(
        "inspect numbers",
        "/inspect/numbers",
        &["app=demo/shop", "app=demo/shop&ws={ws_number}"],
    ),
    inspect(
        "inspect rows",
        "/inspect/rows",
        &["keyspace=sysvvm&key=00000005", "keyspace=sysvvm&key=0000000a&limit={small}"],
    ),
    // The client leaves in the middle of a backup that is large.
    FuzzRoute { name: "backup", path: "/backup", done: &[200], ..ACTION },
    FuzzRoute { name: "pause", path: "/cluster/pause", ..ACTION },
    FuzzRoute { name: "resume", path: "/cluster/resume", ..ACTION },
    // A lone node has no other node to move a partition to, and none to give orders to.
    FuzzRoute {
        name: "move",
        path: "/cluster/move",
        queries: &["app=demo/shop&partition={partition}&to={member}"],
        done: &[202, 409],
        ..ACTION
    },
    FuzzRoute {
        name: "cancel a drain by member",
        path: "/cluster/drain",
        queries: &["member={member}&cancel=true"],
        done: &[202, 409],
        ..ACTION
    },
    FuzzRoute { name: "cancel a drain", path: "/drain", queries: &["cancel=true"], ..ACTION },
    // Nothing is damaged, so there is nothing to repair.
    FuzzRoute {
        name: "mark an event",
        path: "/repairs/mark",
        queries: &[
            "app=demo/shop&partition={partition}&event=1&ws={ws_number}&offset=1&dryRun=true",
            "app=demo/shop&partition={partition}&event=1&fencing=true&dryRun=true",
        ],
        done: &[409, 422],
        ..ACTION
    },
    FuzzRoute {
        name: "remove a row",
        path: "/repairs/remove",
        queries: &["app=demo/shop&partition={partition}&dryRun=true"],
        done: &[409],
        ..ACTION
    },
    FuzzRoute {
        name: "repair a number",
        path: "/repairs/number",
        queries: &[
            "app=demo/shop&partition={partition}&ws={ws_number}&sequence=1&dryRun=true",
            "app=demo/shop&partition={partition}&dryRun=true",
        ],
        done: &[409, 422],
        ..ACTION
    },
    FuzzRoute { name: "drain", path: "/drain", is_last: true, ..ACTION },
    FuzzRoute { name: "step down", path: "/step-down", is_last: true, ..ACTION },
];

const fn inspect(
    name: &'static str,
    path: &'static str,
    queries: &'static [&'static str],
) -> FuzzRoute {
    FuzzRoute { name, path, queries, weight: 1, ..ADMIN }
}

const fn create(name: &'static str, table: &'static str) -> FuzzRoute {
    FuzzRoute { name, body: BodyKind::NewDoc(table), done: &[201], ..WRITE }
}
