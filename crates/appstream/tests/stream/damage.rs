//! Streams that the check refuses.

use std::io::{self, BufReader, Read};

use appstream::{
    CheckedStream, ImportError, StreamError, check_stream,
    eventlog::{Schema, Table, TrustLevel},
    sysvvm::{Error, ownership::OwnerEpoch},
};
use processor::PartitionEnd;
use shop::create_workspace;

use crate::scene::{FAR, Scene, dump, empty, import_into, name, system};

async fn stream() -> Vec<u8> {
    Scene::full(TrustLevel::Zero, false).await.export().await
}

#[tokio::test]
async fn a_cut_stream_is_refused() {
    let stream = stream().await;
    let ends: Vec<usize> = (1..=stream.len()).filter(|end| stream[end - 1] == b'\n').collect();
    let (whole, ends) = ends.split_last().unwrap();
    assert_eq!(*whole, stream.len());
    for end in ends {
        let cut = check_stream(&stream[..*end]);
        assert!(matches!(cut, Err(StreamError::Cut(_))), "{end}: {cut:?}");
        let cut = check_stream(&stream[..*end + 5]);
        assert!(matches!(cut, Err(StreamError::Cut(_))), "{end}: {cut:?}");
    }
    assert!(check_stream(&stream[..0]).is_err());
    let longer = [&stream[..], b"\n"].concat();
    assert!(matches!(check_stream(&longer[..]), Err(StreamError::Damaged { .. })));
    assert!(check_stream(&stream[..]).is_ok());
}

#[tokio::test]
async fn a_flipped_bit_is_refused() {
    let stream = stream().await;
    for at in (0..stream.len()).step_by(37) {
        let mut other = stream.clone();
        other[at] ^= 1 << (at % 8);
        assert!(check_stream(&other[..]).is_err(), "a bit of byte {at} was flipped");
    }
}

/// The checksum of the whole does not replace the check of each line: these streams lack a line, or
/// have it in another place, and their checksums are right.
#[tokio::test]
async fn lines_that_do_not_follow_each_other_are_refused() {
    let stream = String::from_utf8(stream().await).unwrap();
    let lines: Vec<&str> = stream.lines().collect();
    let lines = &lines[..lines.len() - 1];
    let find = |start: &str| lines.iter().position(|line| line.starts_with(start)).unwrap();
    let (event, record, series) = (find("{\"event\""), find("{\"record\""), find("{\"series\""));
    let without = |at: usize| [&lines[..at], &lines[at + 1..]].concat();
    let mut swapped = lines.to_vec();
    swapped.swap(event, event + 1);
    let mut late = without(event);
    late.push(lines[event]);
    let mut early = without(record);
    early.insert(event, lines[record]);
    let mut twice = lines.to_vec();
    twice.insert(1, lines[0]);
    for wrong in [without(event), swapped, late, early, twice] {
        let refused = check_stream(ended(&wrong).as_bytes());
        assert!(matches!(refused, Err(StreamError::Damaged { .. })), "{refused:?}");
    }
    assert!(check_stream(ended(lines).as_bytes()).is_ok());
    assert!(check_stream(ended(&lines[..series]).as_bytes()).is_ok());
}

/// Other programs may write streams. A number that no sequence can have, or a range without
/// counters, would keep the application from working.
#[tokio::test]
async fn impossible_numbers_are_refused() {
    let stream = String::from_utf8(stream().await).unwrap();
    let lines: Vec<&str> = stream.lines().collect();
    let lines = &lines[..lines.len() - 1];
    let changed = |kind: &str, field: &str, value: &str| {
        let start = format!("{{\"{kind}\"");
        let at = lines.iter().position(|line| line.starts_with(&start)).unwrap();
        let (before, rest) = lines[at].split_once(&format!("\"{field}\":")).unwrap();
        let end = rest.find(|it: char| !it.is_ascii_digit()).unwrap();
        let line = format!("{before}\"{field}\":{value}{}", &rest[end..]);
        let mut lines = lines.to_vec();
        lines[at] = &line;
        check_stream(ended(&lines).as_bytes()).map(drop)
    };
    let (zero, most) = ("0", u64::MAX.to_string());
    for (kind, field, value) in [
        ("number", "sequence", zero),
        ("number", "last", zero),
        ("number", "last", &most),
        ("range", "until", zero),
        ("range", "until", &most),
        ("range", "first", &most),
        ("counter", "next", &most),
    ] {
        let refused = changed(kind, field, value);
        let what = format!("{kind} {field} {value}");
        assert!(matches!(refused, Err(StreamError::Damaged { .. })), "{what}: {refused:?}");
    }
    assert!(changed("number", "last", "7").is_ok());
}

/// No owner can follow one of the last epoch, so an application with such events could never work.
#[tokio::test]
async fn an_event_of_the_last_epoch_is_refused() {
    for (epoch, is_last) in [(OwnerEpoch(OwnerEpoch::MAX.0 - 1), false), (OwnerEpoch::MAX, true)] {
        let scene = Scene::deployed(TrustLevel::Zero, false).await;
        let node = scene.node(1, epoch.0.into()).await;
        scene.run(&node, create_workspace(1, FAR)).await;
        assert_eq!(node.stop().await, PartitionEnd::Stopped);
        let checked = check_stream(&scene.export().await[..]);
        match checked {
            Err(StreamError::Damaged { why, .. }) if is_last => {
                assert!(why.contains("no epoch is above"), "{why}");
            }
            checked => assert!(checked.is_ok() && !is_last, "{checked:?}"),
        }
    }
}

/// Checks the lines of the whole stream after a change of them.
async fn checked(change: impl FnOnce(&mut Vec<String>)) -> Result<CheckedStream, StreamError> {
    let stream = String::from_utf8(stream().await).unwrap();
    let mut lines: Vec<String> = stream.lines().map(str::to_owned).collect();
    lines.pop();
    change(&mut lines);
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    check_stream(ended(&lines).as_bytes())
}

/// The place of the last line of a kind.
fn last(lines: &[String], kind: &str) -> usize {
    let start = format!("{{\"{kind}\":");
    lines.iter().rposition(|line| line.starts_with(&start)).unwrap()
}

/// The table alone: it does not need the tables of its containers.
fn without_containers(table: &Table) -> Table {
    let name = table.name().clone();
    let bare = match table.singleton_id() {
        Some(id) => Table::singleton(name, id),
        None => Table::new(name, table.kind()),
    };
    let fields = table.fields().iter();
    let bare = fields.fold(bare, |bare, (field, holds)| bare.with_field(field.clone(), *holds));
    let numbers = table.numbers().iter();
    let bare = numbers.fold(bare, |bare, (field, of)| bare.with_number(field.clone(), of));
    let sequences = table.sequences().iter();
    sequences.fold(bare, |bare, (field, of)| bare.with_sequence(field.clone(), of.clone()))
}

/// The header of the stream lacked a table of its events. The import took the stream, and the next
/// node deployed an application that had no table for these records.
#[tokio::test]
async fn a_header_without_a_table_of_an_event_is_refused() {
    // In the second shop the article and its prices are records of a marked event alone.
    let marked = Scene::with_marked_record(10).await.export().await;
    for (stream, needed) in [
        (stream().await, ["shop.Bill", "shop.Price", "sys.WorkspaceDescriptor"]),
        (marked, ["shop.Bill", "shop.Price", "shop.Article"]),
    ] {
        let text = String::from_utf8(stream).unwrap();
        let (first, rest) = text.split_once('\n').unwrap();
        let mut lines: Vec<&str> = rest.lines().collect();
        lines.pop();
        let mut header: serde_json::Value = serde_json::from_str(first).unwrap();
        let whole: Schema = header["header"]["schema"].as_str().unwrap().parse().unwrap();
        let mut lacking = Vec::new();
        for gone in whole.tables() {
            let tables = whole.tables().filter(|table| table.name() != gone.name());
            let mut schema = Schema::new(tables.map(without_containers)).unwrap();
            for (kind, sequences) in whole.sequences() {
                for (name, id) in sequences {
                    schema = schema.with_sequence(kind, name.clone(), *id);
                }
            }
            header["header"]["schema"] = schema.to_string().into();
            let first = header.to_string();
            let changed = ended(&[&[first.as_str()], &lines[..]].concat());
            let Err(refused) = check_stream(changed.as_bytes()) else { continue };
            let (name, refused) = (gone.name().to_string(), refused.to_string());
            assert!(refused.contains(&name) && refused.contains("lacks"), "{name}: {refused}");
            lacking.push(name);
        }
        for name in needed {
            assert!(lacking.iter().any(|there| there == name), "{name}: {lacking:?}");
        }
        assert!(lacking.len() < whole.tables().count(), "a table without records is not needed");
    }
}

/// Another node made a field wider while the application was exported. The import took the stream,
/// and a node read its numbers as those of the narrower field.
#[tokio::test]
async fn a_header_with_other_types_than_an_event_is_refused() {
    let text = String::from_utf8(stream().await).unwrap();
    let (first, rest) = text.split_once('\n').unwrap();
    let mut lines: Vec<&str> = rest.lines().collect();
    lines.pop();
    let checked = |from: &str, to: &str| {
        let mut header: serde_json::Value = serde_json::from_str(first).unwrap();
        let schema = header["header"]["schema"].as_str().unwrap();
        assert!(schema.contains(from), "{schema}");
        header["header"]["schema"] = schema.replace(from, to).into();
        let header = header.to_string();
        check_stream(ended(&[&[header.as_str()], &lines[..]].concat()).as_bytes()).map(drop)
    };
    checked("cents = \"int64\"", "cents = \"int64\"").unwrap();
    for (from, to) in [
        ("cents = \"int64\"", "cents = \"int32\""),
        ("cents = \"int64\"", "euros = \"int64\""),
        ("weight = \"float64\"", "weight = \"int64\""),
    ] {
        let refused = checked(from, to).unwrap_err().to_string();
        assert!(refused.contains("does not fit the header"), "{to}: {refused}");
        assert!(refused.contains("export the application again"), "{to}: {refused}");
    }
}

/// A fencing entry takes an offset in the log of its partition, as an event does.
#[tokio::test]
async fn a_fencing_entry_in_another_place_is_refused() {
    let changed = async |change: fn(&mut Vec<String>, usize)| {
        checked(|lines| {
            let at = last(lines, "fencing");
            change(lines, at);
        })
        .await
    };
    for refused in [
        changed(|lines, at| drop(lines.remove(at))).await,
        changed(|lines, at| lines.insert(at, lines[at].clone())).await,
        changed(|lines, at| {
            lines[at] = lines[at].replacen("\"partition\":1", "\"partition\":0", 1);
        })
        .await,
        changed(|lines, at| {
            let event = "{\"event\":{\"ws\":1,\"wlog\":1,";
            lines[at] = lines[at].replacen("{\"fencing\":{", event, 1);
        })
        .await,
    ] {
        assert!(matches!(refused, Err(StreamError::Damaged { .. })), "{refused:?}");
    }
}

/// A stream of another program ended an import with "a row exists already", after the application
/// was registered.
#[tokio::test]
async fn a_row_that_comes_twice_is_refused() {
    for (kind, why) in [
        ("series", "the stream has the series twice"),
        ("counter", "the stream has the counter twice"),
        ("range", "the stream has the range twice, or not in the order of ranges"),
    ] {
        let refused = checked(|lines| {
            let at = last(lines, kind);
            lines.insert(at, lines[at].clone());
        });
        let refused = refused.await.unwrap_err().to_string();
        assert!(refused.ends_with(why), "{kind}: {refused}");
    }
    let definition = checked(|lines| {
        let at = last(lines, "series");
        let (before, rest) = lines[at].split_once('[').unwrap();
        let (definition, after) = rest.split_once(']').unwrap();
        lines[at] = format!("{before}[{definition},{definition}]{after}");
    });
    let refused = definition.await.unwrap_err().to_string();
    assert!(refused.ends_with("the series has a definition twice"), "{refused}");
}

/// A counter, with all its ranges, after other counters. The check remembers more than the line
/// before.
#[tokio::test]
async fn a_counter_that_comes_again_later_is_refused() {
    let refused = checked(|lines| {
        let at = last(lines, "range");
        let first = lines.iter().position(|line| line.starts_with("{\"counter\":")).unwrap();
        assert!(first < at);
        lines.push(lines[first].clone());
    });
    let refused = refused.await.unwrap_err().to_string();
    assert!(refused.ends_with("the stream has the counter twice"), "{refused}");
    let refused = checked(|lines| lines.push(lines[last(lines, "range")].clone())).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.ends_with("the counter of the range is before it"), "{refused}");
}

/// Without a counter, or with a lower one, a node would reserve the ranges again.
#[tokio::test]
async fn ranges_need_a_counter_that_is_not_lower() {
    let missing = "the ranges before it have no counter after them";
    let end = checked(|lines| drop(lines.remove(last(lines, "counter")))).await;
    let end = end.unwrap_err().to_string();
    assert!(end.ends_with(missing), "{end}");
    let middle = checked(|lines| {
        let first = lines.iter().position(|line| line.starts_with("{\"counter\":")).unwrap();
        lines.remove(first);
    });
    let middle = middle.await.unwrap_err().to_string();
    assert!(middle.ends_with(missing), "{middle}");
    let lower = checked(|lines| {
        let at = last(lines, "counter");
        let (before, _) = lines[at].split_once("\"next\":").unwrap();
        lines[at] = format!("{before}\"next\":1}}}}");
    });
    let lower = lower.await.unwrap_err().to_string();
    assert!(lower.ends_with("the counter is lower than the end of its ranges"), "{lower}");
}

#[tokio::test]
async fn definitions_belong_to_their_series() {
    let series = |change: fn(&str) -> String| {
        checked(move |lines| {
            let at = last(lines, "series");
            lines[at] = change(&lines[at]);
        })
    };
    let other = |line: &str| line.replacen("\"id\":\"ticket\"", "\"id\":\"zebra\"", 1);
    let refused = series(other).await.unwrap_err().to_string();
    assert!(refused.ends_with("no definitions, or those of another one"), "{refused}");
    let none = |line: &str| format!("{}[]}}}}}}", line.split_once('[').unwrap().0);
    let refused = series(none).await.unwrap_err().to_string();
    assert!(refused.ends_with("no definitions, or those of another one"), "{refused}");
    let earlier = |line: &str| line.replace("ticket", "a");
    let refused = series(earlier).await.unwrap_err().to_string();
    assert!(refused.ends_with("the series is not in its place"), "{refused}");
}

/// No node would read the number, and a later sequence of the application would begin with it.
#[tokio::test]
async fn a_number_of_an_unknown_sequence_is_refused() {
    for (id, is_known) in [(0, false), (1, false), (2, true), (255, false), (999, false)] {
        let checked = checked(|lines| {
            let at = last(lines, "number");
            let (before, rest) = lines[at].split_once("\"sequence\":").unwrap();
            let (_, after) = rest.split_once(',').unwrap();
            lines[at] = format!("{before}\"sequence\":{id},{after}");
        });
        let checked = checked.await;
        assert_eq!(checked.is_ok(), is_known, "{id}: {checked:?}");
    }
}

/// A line without an end: it gives bytes for as long as somebody reads.
struct Endless {
    start: &'static [u8],
    read: usize,
}

impl Read for Endless {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let start = self.start.get(self.read..).unwrap_or_default();
        let copied = start.len().min(to.len());
        to[..copied].copy_from_slice(&start[..copied]);
        to[copied..].fill(b'1');
        self.read += to.len();
        Ok(to.len())
    }
}

#[tokio::test]
async fn a_line_of_any_size_takes_bounded_memory() {
    let header = stream().await;
    let header = &header[..=header.iter().position(|byte| *byte == b'\n').unwrap()];
    for (start, most) in [
        (&b"{\"event\":{"[..], 32 << 20),
        (b"{\"record\":{", 32 << 20),
        (b"{\"series\":{", 4 << 20),
        (b"{ \"event\":{", 4 << 20),
        (b"no line", 4 << 20),
    ] {
        let mut endless = Endless { start, read: 0 };
        let refused = check_stream(BufReader::new(header.chain(&mut endless))).unwrap_err();
        let expected = format!("line 2 of the export is damaged: it is longer than {most} bytes");
        assert_eq!(refused.to_string(), expected);
        assert!(endless.read < most + (64 << 10), "{} bytes were read", endless.read);
    }
    for start in [&b"{\"header\":{\"schema\":\""[..], b"vvm redb backup"] {
        let mut endless = Endless { start, read: 0 };
        let refused = check_stream(BufReader::new(&mut endless)).unwrap_err();
        let expected = "line 1 of the export is damaged: it is longer than 4194304 bytes";
        assert_eq!(refused.to_string(), expected);
        assert!(endless.read < (4 << 20) + (64 << 10), "{} bytes were read", endless.read);
    }
}

/// A stream of these lines, with the right end.
fn ended(lines: &[&str]) -> String {
    use sha2::{Digest, Sha256};
    let text: String = lines.iter().flat_map(|line| [*line, "\n"]).collect();
    let events = lines.iter().filter(|line| line.starts_with("{\"event\"")).count();
    let digest = Sha256::digest(text.as_bytes());
    let sha256: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let count = lines.len();
    format!("{text}{{\"end\":{{\"lines\":{count},\"events\":{events},\"sha256\":\"{sha256}\"}}}}\n")
}

#[tokio::test]
async fn streams_of_other_programs_are_refused() {
    let stream = String::from_utf8(stream().await).unwrap();
    let checked = |text: String| check_stream(text.as_bytes()).unwrap_err();
    let other = checked(stream.replacen("\"format\":2", "\"format\":3", 1));
    assert!(matches!(other, StreamError::OtherFormat { found: 3, known: 2 }), "{other}");
    let formats = stream.split("\"rowFormats\":[").nth(1).unwrap().split(']').next().unwrap();
    let other = checked(stream.replacen(formats, "200", 1));
    assert!(matches!(other, StreamError::OtherRows), "{other}");
    for foreign in ["", "vvm redb backup\n", "{}\n", "[1]\n"] {
        let refused = check_stream(foreign.as_bytes()).unwrap_err();
        assert!(matches!(refused, StreamError::Foreign), "{foreign}: {refused}");
    }
}

#[tokio::test]
async fn an_application_that_exists_is_left_alone() {
    let (source, other) = (Scene::full(TrustLevel::Zero, false).await, empty());
    let other = Scene::open(other, TrustLevel::One, false).await;
    let stream = source.export().await;
    for scene in [&source, &other] {
        let system = system(&scene.driver).await;
        let before = (dump(system.storage()).await, dump(&scene.db.app.storage).await);
        let refused = import_into(&scene.driver, &stream).await;
        let exists = Error::AlreadyExists { app: name() };
        assert_eq!(refused.unwrap_err().to_string(), ImportError::from(exists).to_string());
        let after = (dump(system.storage()).await, dump(&scene.db.app.storage).await);
        assert!(before == after, "something was changed");
    }
}
