//! Streams that are refused.

use appstream::{ImportError, StreamError, check_stream, eventlog::TrustLevel, sysvvm::Error};

use crate::scene::{Scene, dump, empty, import_into, name, system};

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

/// The checksum of the whole does not replace the check of each line: a line that was taken out, or
/// moved, with a right checksum.
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

/// Other programs may write streams. A number that no sequence can have, or a range without counters,
/// would keep the application from working.
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
    ] {
        let refused = changed(kind, field, value);
        let what = format!("{kind} {field} {value}");
        assert!(matches!(refused, Err(StreamError::Damaged { .. })), "{what}: {refused:?}");
    }
    assert!(changed("number", "last", "7").is_ok());
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
    let other = checked(stream.replacen("\"format\":1", "\"format\":2", 1));
    assert!(matches!(other, StreamError::OtherFormat { found: 2, known: 1 }), "{other}");
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
