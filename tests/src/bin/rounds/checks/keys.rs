//! One effect and one answer for each idempotency key.

use std::collections::BTreeMap;

use super::Found;
use crate::history::{History, Outcome, Request, Written};

pub(super) fn find(history: &History) -> Found {
    let mut answers: BTreeMap<(u64, &str), (&Written, u64)> = BTreeMap::new();
    let mut found = Found::new();
    for operation in &history.operations {
        let Request::Write { id, has_key: true, .. } = &operation.request else { continue };
        match &operation.outcome {
            Outcome::Written(written) => {
                let first =
                    *answers.entry((operation.ws, id)).or_insert((written, operation.number));
                if !is_same(first.0, written) {
                    let text = format!("key {id:?} has the answers {:?} and {written:?}", first.0);
                    found.push((text, vec![first.1, operation.number]));
                }
            }
            Outcome::Refused { code, .. } if code == "key_reused" => {
                let text = format!("key {id:?} was refused as that of another request");
                found.push((text, vec![operation.number]));
            }
            _ => {}
        }
    }
    found
}

/// Whether two answers are those of one effect.
fn is_same(one: &Written, other: &Written) -> bool {
    (one.wlog, one.version, &one.ids) == (other.wlog, other.version, &other.ids)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{Scene, texts};

    #[test]
    fn a_key_with_two_answers_is_found() {
        let mut scene = Scene::new();
        scene.create_with_key("a");
        let mut again = scene.history.operations[0].clone();
        scene.history.operations.push(again.clone());
        assert_eq!(find(&scene.history), []);
        let Outcome::Written(written) = &mut again.outcome else { unreachable!() };
        written.wlog += 1;
        scene.history.operations.push(again);
        assert!(texts(find(&scene.history))[0].contains("has the answers"));
    }

    #[test]
    fn a_key_that_is_taken_for_that_of_another_request_is_found() {
        let mut scene = Scene::new();
        scene.create_with_key("a");
        let code = "key_reused".to_owned();
        scene.history.operations[0].outcome = Outcome::Refused { status: 422, code };
        assert!(texts(find(&scene.history))[0].contains("another request"));
    }
}
