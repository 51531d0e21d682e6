use std::{cell::Cell, time::Duration};

use clock::ManualClock;
use futures::{StreamExt, stream};
use http_server::limits::LimitRules;
use serde_json::Value as Json;
use vvm::eventlog::{Epoch, Fields, Offset, Record, Schema, TableKind, Value, Version, WsId};

use super::*;

const FIRST: u64 = FIRST_CRECORD_ID;

/// The time that a page has.
const TIME: Duration = Duration::from_secs(5);

/// Records of a table with one field, and what a reader does with them.
struct Records {
    schema: Schema,
    ids: Vec<u64>,
    /// The only active record; `None` if all are active.
    listed: Option<u64>,
    clock: ManualClock,
    long_pages: Arc<Limit>,
    /// The time that each record, and each block, takes to read.
    takes: Duration,
    read: Cell<usize>,
    blocks: Cell<usize>,
}

impl Records {
    fn new(ids: impl IntoIterator<Item = u64>, takes: Duration) -> Records {
        let schema = "[tables.\"shop.Article\"]\nkind = \"CDoc\"\nfields = { name = \"string\" }";
        Records {
            schema: schema.parse().unwrap(),
            ids: ids.into_iter().collect(),
            listed: None,
            clock: ManualClock::new(1),
            long_pages: Limit::new(LimitRules::default(), &Clock::system()),
            takes,
            read: Cell::new(0),
            blocks: Cell::new(0),
        }
    }

    fn record(&self, id: u64) -> StoredRecord {
        self.read.set(self.read.get() + 1);
        self.clock.advance(self.takes);
        let fields =
            Fields::from_iter([("name".parse().unwrap(), Value::String("Tea".to_owned()))]);
        StoredRecord {
            ws: WsId(1),
            version: Version { epoch: Epoch(1), plog: Offset(1) },
            record: Record {
                table: "shop.Article".parse().unwrap(),
                kind: TableKind::CDoc,
                id: RecordId(id),
                parent: None,
                is_active: self.listed.is_none_or(|listed| listed == id),
                fields,
            },
        }
    }

    /// Reads a page, and returns its ids and the next place. The records have the name Tea.
    async fn page(&self, query: &str) -> (Vec<u64>, Option<u64>) {
        let table = self.schema.table(&"shop.Article".parse().unwrap()).unwrap();
        let query = ListQuery::of(table, Some(query)).unwrap();
        let clock = self.clock.clock();
        let until = clock.now() + TIME;
        let last = self.ids.last().copied().unwrap_or(FIRST);
        let read = |block: RecordBlock| {
            self.blocks.set(self.blocks.get() + 1);
            self.clock.advance(self.takes);
            let is_in = move |id: &&u64| (block.first().0..=block.last().0).contains(*id);
            stream::iter(self.ids.iter().filter(is_in)).map(|id| Ok(self.record(*id)))
        };
        let listed = list_docs(&query, last, &clock, until, &self.long_pages, read).await;
        let listed = listed.unwrap();
        let listed: Json = serde_json::from_slice(&listed.json).unwrap();
        let docs = listed["docs"].as_array().unwrap();
        (docs.iter().map(|doc| doc["id"].as_u64().unwrap()).collect(), listed["next"].as_u64())
    }

    /// Reads a list to its end, and returns its ids and the number of pages.
    async fn whole(&self, query: &str) -> (Vec<u64>, usize) {
        let (mut found, mut next) = self.page(query).await;
        let mut pages = 1;
        while let Some(after) = next {
            let (more, later) = self.page(&format!("{query}&after={after}")).await;
            assert_ne!(later, next, "{query}: the list does not go on");
            found.extend(more);
            (pages, next) = (pages + 1, later);
        }
        (found, pages)
    }
}

/// Reading the newest document read and rendered 16.
#[tokio::test]
async fn a_short_page_reads_few_records() {
    let records = Records::new(FIRST..FIRST + 100, Duration::ZERO);
    for (limit, most) in [(1, 1), (3, 3), (10, 4 + 8)] {
        records.read.set(0);
        let (found, next) = records.page(&format!("order=-id&limit={limit}")).await;
        assert_eq!(found.len(), limit);
        assert_eq!(next, found.last().copied());
        assert!(records.read.get() <= most, "{limit}: {}", records.read.get());
    }
}

/// A list of records that are slow to read, because they are large, ended by its time with a
/// problem. So no client could go on.
#[tokio::test]
async fn a_page_of_slow_records_ends_in_time_and_the_list_goes_on() {
    for (order, filter) in
        [("id", "Tea"), ("-id", "Tea"), ("id", "none"), ("-id", "none"), ("-id", "Tea&limit=1000")]
    {
        let records = Records::new(FIRST..FIRST + 300, Duration::from_millis(100));
        let (name, more) = filter.split_once('&').unwrap_or((filter, "limit=100"));
        let query = format!("order={order}&where=%7B%22name%22:%22{name}%22%7D&{more}");
        let start = records.clock.clock().now();
        records.page(&query).await;
        let took = records.clock.clock().now() - start;
        assert!(took < TIME + Duration::from_millis(300), "{query}: {took:?}");
        let (found, pages) = records.whole(&query).await;
        let mut expected: Vec<u64> = match name {
            "Tea" => (FIRST..FIRST + 300).collect(),
            _ => Vec::new(),
        };
        if order == "-id" {
            expected.reverse();
        }
        assert!(found == expected, "{query}: {} documents", found.len());
        assert!(pages <= 15, "{query}: {pages}");
    }
}

/// Even if one record takes longer than a page may, each page has a record.
#[tokio::test]
async fn each_page_comes_farther_than_the_page_before() {
    let records = Records::new(FIRST..FIRST + 20, TIME * 2);
    for order in ["id", "-id"] {
        let (found, pages) = records.whole(&format!("order={order}")).await;
        assert_eq!(found.len(), 20);
        assert!(pages <= 21, "{order}: {pages}");
    }
}

/// A list read each storage partition between two records, and its time ended before the second
/// one: with 2^40 ids between them, 268 million reads.
#[tokio::test]
async fn a_page_crosses_only_so_large_a_gap() {
    const GAP: u64 = 1 << 40;
    const CROSSED: u64 = 30_000_000;
    for takes in [Duration::ZERO, Duration::from_millis(1)] {
        let records = Records::new([FIRST, FIRST + GAP], takes);
        let (found, next) = records.page("order=id").await;
        assert_eq!(found, [FIRST]);
        let up = next.unwrap();
        assert_eq!(records.page("order=id&after=0").await.1, next);
        let (found, next) = records.page("order=-id").await;
        assert_eq!(found, [FIRST + GAP]);
        let down = next.unwrap();
        let most = if takes.is_zero() { MOST_EXAMINED } else { 5_000 };
        assert!(records.blocks.get() as u64 <= 3 * (most + 1), "{}", records.blocks.get());
        let least = if takes.is_zero() { CROSSED } else { CROSSED / 3 };
        assert!(up > FIRST + least && down < FIRST + GAP - least, "{up} {down}");
    }
    // A few pages cross a smaller gap.
    let ids = vec![FIRST + 7, FIRST + 85_000_000];
    let records = Records::new(ids.clone(), Duration::ZERO);
    assert_eq!(records.whole("order=id").await, (ids.clone(), 3));
    let (found, pages) = records.whole("order=-id").await;
    assert_eq!((found, pages), (ids.into_iter().rev().collect(), 2));
}

/// The filter that accepts no record.
const NONE: &str = "where=%7B%22name%22:%22none%22%7D";

/// A page ended after 10,000 records without a document. A client that took an empty page for the
/// end never saw the document after them.
#[tokio::test]
async fn a_page_goes_on_until_it_has_a_document() {
    for order in ["id", "-id"] {
        // The record at the far end belongs to the list, and the others do not.
        let ids = FIRST..FIRST + 35_000;
        let listed = if order == "id" { ids.end - 1 } else { ids.start };
        let records = Records { listed: Some(listed), ..Records::new(ids, Duration::ZERO) };
        let (found, next) = records.page(&format!("order={order}")).await;
        assert_eq!(found, [listed], "{order}: {next:?}");
        assert_eq!(records.whole(&format!("order={order}")).await.0, [listed]);
        // Two records, with a gap of 100,000,000 ids between them.
        let ids = [FIRST, FIRST + 100_000_000];
        let listed = if order == "id" { ids[1] } else { ids[0] };
        let records = Records { listed: Some(listed), ..Records::new(ids, Duration::ZERO) };
        assert_eq!(records.page(&format!("order={order}")).await.0, [listed], "{order}");
    }
}

/// A page without documents ends when its time is over, even in a gap without records, and the list
/// goes on at its next page.
#[tokio::test]
async fn a_page_without_documents_ends_in_time() {
    let takes = Duration::from_millis(1);
    let all = (FIRST..FIRST + 20_000).collect();
    for ids in [all, vec![FIRST, FIRST + (1 << 40)]] {
        for order in ["id", "-id"] {
            let records = Records::new(ids.clone(), takes);
            let (query, start) = (format!("order={order}&{NONE}"), records.clock.clock().now());
            let (found, next) = records.page(&query).await;
            let took = records.clock.clock().now() - start;
            assert!(found.is_empty() && next.is_some(), "{order}: {found:?} {next:?}");
            assert!(took >= TIME && took < TIME + takes * 4_100, "{order}: {took:?}");
            let later = records.page(&format!("{query}&after={}", next.unwrap())).await.1;
            let goes_on = if order == "id" { later > next } else { later < next };
            assert!(goes_on, "{order}: {next:?} {later:?}");
        }
    }
}

/// For half of the time of its request, a page in a gap never gave its thread to another task.
#[tokio::test]
async fn a_page_in_a_gap_lets_the_other_tasks_of_its_thread_run() {
    for order in ["id", "-id"] {
        let records = Records::new([FIRST, FIRST + (1 << 40)], Duration::from_millis(1));
        let query = format!("order={order}&{NONE}");
        let mut turns = 0;
        let others = async {
            loop {
                turns += 1;
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            () = others => {}
            (found, _) = records.page(&query) => {
                assert!(found.is_empty());
            }
        }
        assert!(turns >= 40, "{order}: {turns} turns during 5,000 blocks");
    }
}

/// 48 lists that found nothing held all memory for answers for five seconds, and every other read
/// of the node waited.
#[tokio::test]
async fn only_some_pages_without_documents_go_on_at_the_same_time() {
    for order in ["id", "-id"] {
        let ids = FIRST..FIRST + 35_000;
        let listed = if order == "id" { ids.end - 1 } else { ids.start };
        let records = Records { listed: Some(listed), ..Records::new(ids, Duration::ZERO) };
        let page = records.long_pages.try_take(None, 1).unwrap();
        let (found, next) = records.page(&format!("order={order}")).await;
        assert!(found.is_empty() && next.is_some(), "{order}: {found:?} {next:?}");
        assert!(records.whole(&format!("order={order}")).await.1 >= 3, "{order}");
        drop(page);
        assert_eq!(records.page(&format!("order={order}")).await.0, [listed], "{order}");
    }
}
