//! A leader does not answer after its successor.

use std::collections::BTreeMap;

use super::{Facts, Found};
use crate::real_time_order::{Ranked, contradiction};

pub(super) fn find(facts: &Facts<'_>) -> Found {
    let mut partitions: BTreeMap<u64, u16> = BTreeMap::new();
    for (partition, events) in &facts.end.partitions {
        partitions.extend(events.iter().map(|event| (event.ws, *partition)));
    }
    let mut answers: BTreeMap<u16, Vec<Ranked>> = BTreeMap::new();
    for operation in &facts.operations {
        let Some((_, Some(written))) = operation.write() else { continue };
        let Some(partition) = partitions.get(&operation.ws) else { continue };
        // A repeated answer has the epoch of the first one.
        if !written.repeated {
            answers.entry(*partition).or_default().push(Ranked {
                begin: operation.begin,
                end: operation.end,
                rank: written.version.epoch,
                operation: operation.number,
            });
        }
    }
    let mut found = Found::new();
    for (partition, answers) in &answers {
        if let Some((successor, former)) = contradiction(answers) {
            let text = format!(
                "partition {partition}: the leader of epoch {} answered a command that was sent after an answer of epoch {}",
                former.rank, successor.rank
            );
            found.push((text, vec![successor.operation, former.operation]));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{Scene, texts};

    #[test]
    fn an_answer_of_a_former_leader_is_found() {
        let mut scene = Scene::new();
        scene.create("a");
        scene.epoch = 2;
        scene.create("b");
        assert_eq!(find(&Facts::of(&scene.history)), []);
        scene.epoch = 1;
        scene.create("c");
        assert!(
            texts(find(&Facts::of(&scene.history)))[0].contains("the leader of epoch 1 answered")
        );
    }
}
