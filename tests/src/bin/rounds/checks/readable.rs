//! The final state can be read.

use super::{Facts, Found};

pub(super) fn find(facts: &Facts<'_>) -> Found {
    let unreadable = facts.end.unreadable.iter();
    unreadable.map(|(part, why)| (format!("{part:?} cannot be read: {why}"), Vec::new())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        checks::{
            run_all,
            testing::{PARTITION, Scene, WS, texts},
        },
        history::Part,
    };

    #[test]
    fn a_part_that_cannot_be_read_is_found() {
        let mut scene = Scene::new();
        assert_eq!(find(&Facts::of(&scene.history)), []);
        scene.history.end.unreadable.insert(Part::Log(WS), "damaged".into());
        assert!(texts(find(&Facts::of(&scene.history)))[0].contains("damaged"));
    }

    /// What was read of a part stays, and everything else is lost.
    #[test]
    fn other_checks_do_not_count_what_could_not_be_read() {
        for part in [Part::Log(WS), Part::Partition(PARTITION), Part::Records(WS), Part::All] {
            let mut scene = Scene::new();
            let id = scene.create_with_key("a");
            scene.bill("b");
            scene.update("c", id, None);
            scene.read(id);
            scene.list();
            scene.read_log(1);
            assert_eq!(run_all(&scene.history), []);
            let end = &mut scene.history.end;
            if part == Part::All {
                end.whole.clear();
            }
            if matches!(part, Part::Log(_) | Part::All) {
                end.logs.get_mut(&WS).unwrap().truncate(1);
            }
            if matches!(part, Part::Partition(_) | Part::All) {
                end.partitions.clear();
            }
            if matches!(part, Part::Records(_) | Part::All) {
                end.records.clear();
                end.listed.clear();
                end.unreadable.insert(Part::List(WS), "no answer".into());
            }
            end.unreadable.insert(part, "no answer".into());
            let violations = run_all(&scene.history);
            assert!(violations.iter().all(|of| of.check == "readable"), "{violations:?}");
            assert!(!violations.is_empty());
        }
    }
}
