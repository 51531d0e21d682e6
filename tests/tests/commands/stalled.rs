//! Numbers that the storage does not take: the partition says so, refuses commands, and goes on by
//! itself.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use async_trait::async_trait;
use clock::Instant;
use eventlog::{TrustLevel, WsId, layout};
use istorage::{AtomicBatch, Error, Key, OrderedPut, Outcome, Result, SharedStorage};
use processor::{Busy, Ended, Refused, Status};
use tokio::sync::watch;
use vvm_tests::{
    between::{Between, Through},
    commands::{NodeSettings, Terms, article, check_under, create_workspace, cud},
};

use crate::stage::{PARTITION, PARTITIONS, Stage, TrialFn, WS, named};

pub(crate) const TRIALS: &[(&str, TrialFn)] = &[
    ("stalled::a_partition_whose_numbers_cannot_be_stored_says_so_and_refuses", |stage| {
        Box::pin(not_stored(stage, Mood::Refuses, "there is no room for numbers"))
    }),
    ("stalled::a_partition_whose_numbers_are_stored_slowly_says_so_and_refuses", |stage| {
        Box::pin(not_stored(stage, Mood::Hangs, "the storage is slow"))
    }),
];

/// Longer than any trial.
const NEVER: Duration = Duration::from_secs(3_600);

/// How long a command waits that should be refused sooner.
const PATIENCE: Duration = Duration::from_secs(20);

/// How many numbers may wait to be stored.
const MOST: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Takes,
    Refuses,
    Hangs,
}

/// A storage that takes numbers as it is told to.
#[derive(Debug)]
struct Numbers {
    inner: SharedStorage,
    mood: watch::Sender<Mood>,
}

impl Numbers {
    async fn pass<'k>(&self, mut keys: impl Iterator<Item = &'k Key> + Send) -> Result<()> {
        // The keys of all numbers begin with the same two bytes.
        let prefix = layout::sequences_view(PARTITION, WsId(0)).slice(..2);
        if !keys.any(|key| key.pkey.starts_with(&prefix)) {
            return Ok(());
        }
        let mut mood = self.mood.subscribe();
        let mood = mood.wait_for(|mood| *mood != Mood::Hangs).await.map(|mood| *mood);
        match mood {
            Ok(Mood::Refuses) => Err(Error::unavailable("there is no room for numbers")),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl Between for Numbers {
    fn inner(&self) -> &SharedStorage {
        &self.inner
    }

    async fn put_ordered(&self, rows: Vec<OrderedPut>, deadline: Instant) -> Result<()> {
        self.pass(rows.iter().map(|put| &put.key)).await?;
        self.inner.put_ordered(rows, deadline).await
    }

    async fn write_atomic(&self, batch: AtomicBatch, deadline: Instant) -> Result<Outcome> {
        self.pass(batch.ordered.iter().map(|put| &put.key)).await?;
        self.inner.write_atomic(batch, deadline).await
    }
}

/// As many numbers waited to be stored as may wait, so no command could begin. The partition said
/// that it was ready, each command ran into its deadline, and nobody could see why.
async fn not_stored(stage: &Stage, mood: Mood, why: &str) {
    let site = &stage.site;
    let (inner, told) = (Arc::clone(&site.app.storage), watch::Sender::new(Mood::Takes));
    let storage = Through::new(Numbers { inner, mood: told });
    let shared = Some(Arc::clone(&storage) as SharedStorage);
    let mut settings =
        NodeSettings { in_view: true, storage: shared, ..NodeSettings::at(TrustLevel::Zero) };
    settings.timeout = NEVER;
    settings.partition.sequencer.max_unflushed = NonZeroUsize::MIN.saturating_add(MOST - 1);
    let (node, mut ledger) = stage.begin(PARTITION, WS, settings).await;
    storage.mood.send_replace(mood);
    let refused = loop {
        let number = ledger.done();
        let deadline = site.clock.now() + PATIENCE;
        let command = named(&format!("stalled {number}"), cud(WS, article("a"), deadline));
        if let Err(refused) = stage.run(&node, &mut ledger, command).await {
            break refused;
        }
        assert!(number <= MOST + 1, "commands go on though nothing of them can be stored");
    };
    let Refused::Busy(Busy::Storage(what)) = refused else { panic!("{refused:?}") };
    assert!(what.contains("numbers cannot be stored") && what.contains(why), "{what}");
    assert_eq!(node.commands.status(), Status::Stalled(what), "it is not ready");
    storage.mood.send_replace(Mood::Takes);
    node.ready().await;
    let after = named("after", cud(WS, article("b"), site.soon()));
    stage.run(&node, &mut ledger, after).await.unwrap();

    // Nobody sends a command, and the next one would have to wait. What was drawn before is stored.
    while node.commands.unflushed().numbers > 0 {
        site.clock.sleep(Duration::from_millis(1)).await;
    }
    storage.mood.send_replace(mood);
    for ws in (1..).map(|number| WS + u64::from(PARTITIONS) * number) {
        if node.commands.unflushed().numbers >= MOST {
            break;
        }
        let create = named(&format!("create {ws}"), create_workspace(ws, site.soon()));
        stage.run(&node, &mut ledger, create).await.unwrap();
    }
    node.until(|status| matches!(status, Status::Stalled(_))).await;
    storage.mood.send_replace(Mood::Takes);
    node.ready().await;
    assert_eq!(node.stop().await, Ended::Stopped);
    check_under(site, PARTITION, &ledger, Terms { in_view: true, since: None }).await;
}
