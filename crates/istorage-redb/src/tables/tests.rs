use std::collections::BTreeMap;

use super::*;

fn name() -> KeyspaceName {
    KeyspaceName::new("tests").unwrap()
}

fn table(rows: &[(&'static str, Option<&'static str>)]) -> MemTable {
    let mut table = MemTable::default();
    for (key, row) in rows {
        table.set(&name(), Bytes::from(*key), row.map(Bytes::from));
    }
    table
}

/// A read looked into the tables, and began its snapshot later. Meanwhile a write changed two rows,
/// its table was frozen and filed, and the read got one of the rows from the snapshot as the write
/// had left it, and the other one from the tables as it was before.
#[test]
fn tables_fit_only_snapshots_that_begin_where_they_begin_or_in_the_active_table() {
    let tables = Tables::new(7);
    let fits = |snapshot| tables.hold().fits(snapshot);
    assert_eq!([6, 7, 8].map(fits), [false, true, false]);
    tables.freeze();
    assert_eq!([6, 7, 8, 9].map(fits), [false, true, true, false]);
    tables.unlink();
    assert_eq!([7, 8, 9].map(fits), [false, true, false]);
}

#[test]
fn the_active_table_hides_the_frozen_one_and_both_hide_the_file() {
    let tables = Tables::new(1);
    tables.publish(table(&[("a", Some("1")), ("b", Some("1")), ("c", None)]));
    tables.freeze();
    tables.publish(table(&[("b", None), ("d", Some("2"))]));
    let get = |key: &str| tables.hold().get(&name(), key.as_bytes()).cloned();
    assert_eq!(get("a"), Some(Some(Bytes::from("1"))));
    assert_eq!((get("b"), get("c")), (Some(None), Some(None)));
    assert_eq!(get("e"), None, "only the file knows");
    assert_eq!(
        tables.hold().first_from(&name(), b"b"),
        Some(Bytes::from("b")),
        "a removed row may count"
    );
    tables.unlink();
    assert_eq!((get("a"), get("b")), (None, Some(None)));
}

#[test]
fn the_weight_counts_each_row_once() {
    let mut table = MemTable::default();
    for len in [1_000, 10, 0, 5_000] {
        table.set(&name(), Bytes::from("key"), Some(vec![1; len].into()));
    }
    assert_eq!(table.weight(), 5_000 + 3 + 128);
    table.set(&name(), Bytes::from("key"), None);
    assert_eq!(table.weight(), 256, "a removed row takes memory, too");
}

/// Random rows in both tables, beside one map.
#[test]
fn pages_have_the_rows_of_both_tables_in_order() {
    for seed in 0..200_u64 {
        let mut state = seed;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        let (tables, mut model) = (Tables::new(1), BTreeMap::new());
        for half in 0..2 {
            for _ in 0..next(20) {
                let key = Bytes::from(format!("{:02}", next(30)));
                let row = (next(4) > 0).then(|| Bytes::from(format!("{half}{key:?}")));
                let mut rows = MemTable::default();
                rows.set(&name(), key.clone(), row.clone());
                tables.publish(rows);
                model.insert(key, row);
            }
            if half == 0 {
                tables.freeze();
            }
        }
        let (from, end) = (format!("{:02}", next(30)), format!("{:02}", next(31)));
        let most = (1 + next(8) as usize, 1 + next(60) as usize);
        let bound = Bound::Excluded(end.as_bytes());
        let page = tables.hold().page(&name(), from.as_bytes(), bound, most);
        let mut bytes = 0;
        let expected: Vec<_> = model
            .iter()
            .filter(|(key, _)| key[..] >= *from.as_bytes() && key[..] < *end.as_bytes())
            .take_while(|(key, row)| {
                let takes = bytes < most.1;
                bytes += key.len() + row.as_ref().map_or(0, Bytes::len);
                takes
            })
            .take(most.0)
            .map(|(key, row)| (key.clone(), row.clone()))
            .collect();
        assert_eq!(page, expected, "seed {seed}");
    }
}
