//! Programs that misuse the API, and do not compile.
//!
//! A misuse is one line. Two documentation tests are made of the same text: the program without
//! that line compiles, and the program with it does not. So the line is the only reason of the
//! failure. rustdoc compares the code of the error only on a nightly compiler.
//!
//! Each program would compile if the API allowed the misuse. So it does not use a value that the
//! line would consume.

macro_rules! misuses {
    ($($name:ident: $before:literal, $code:literal, $misuse:literal, $after:literal;)+) => {$(
        #[doc = concat!("```no_run\n", $before, "\n", $after, "\n```\n")]
        #[doc = concat!("```compile_fail,", $code, "\n", $before, "\n", $misuse, "\n", $after)]
        #[doc = "```"]
        struct $name;
    )+};
}

misuses! {
    LaunchingTwice:
        "fn host(node: vvm::Vvm) {
            let first = node.launch();",
        "E0382", "let second = node.launch();",
        "}";

    ShuttingDownWhatWasNotLaunched:
        "fn host(node: vvm::Vvm, is_wanted: bool) {
            if is_wanted {
                let _ = node.launch().shutdown();
            } else {",
        "E0599", "let _ = node.shutdown();",
        "   }
        }";

    TwoTransactionsAtOnce:
        "use isequencer::{Sequencer, SequencerBusy};
        fn run(sequencer: &mut Sequencer) -> Result<(), SequencerBusy> {
            let first = sequencer.start()?;",
        "E0499", "let second = sequencer.start()?;",
        "   first.flush();
            Ok(())
        }";

    TwoCommandsAtOnce:
        "use isequencer::{JoinError, Transaction, WsId, WsKind};
        async fn run(transaction: &mut Transaction<'_>, ws: WsId) -> Result<(), JoinError> {
            let first = transaction.join(WsKind(1), ws).await?;",
        "E0499", "let second = transaction.join(WsKind(1), ws).await?;",
        "   let offset = first.keep();
            Ok(())
        }";

    NextWithoutStart:
        "use isequencer::{Sequencer, WsId, WsKind, standard::RECORD_ID};
        async fn run(sequencer: &mut Sequencer) -> Result<(), Box<dyn std::error::Error>> {",
        "E0599", "let _ = sequencer.next(RECORD_ID);",
        "   let mut transaction = sequencer.start()?;
            let mut command = transaction.join(WsKind(1), WsId(1)).await?;
            let number = command.next(RECORD_ID)?;
            Ok(())
        }";

    FlushingTwice:
        "use isequencer::{Sequencer, SequencerBusy};
        fn run(sequencer: &mut Sequencer) -> Result<(), SequencerBusy> {
            let transaction = sequencer.start()?;
            transaction.flush();",
        "E0382", "transaction.flush();",
        "   Ok(())
        }";

    FlushingWithoutStart:
        "use isequencer::{Sequencer, SequencerBusy};
        fn run(sequencer: &mut Sequencer) -> Result<(), SequencerBusy> {",
        "E0599", "sequencer.flush();",
        "   sequencer.start()?.flush();
            Ok(())
        }";

    ActualizingTwice:
        "use isequencer::{Sequencer, SequencerBusy};
        fn run(sequencer: &mut Sequencer) -> Result<(), SequencerBusy> {
            let transaction = sequencer.start()?;
            transaction.actualize();",
        "E0382", "transaction.actualize();",
        "   Ok(())
        }";

    ActualizingWithoutStart:
        "use isequencer::{Sequencer, SequencerBusy};
        fn run(sequencer: &mut Sequencer) -> Result<(), SequencerBusy> {",
        "E0624", "sequencer.actualize();",
        "   sequencer.start()?.actualize();
            Ok(())
        }";

    TwoEventsAtOnce:
        "use isequencer::{EventSequencer, StartError, WsId, WsKind};
        use std::time::Duration;
        async fn run(sequencer: &mut EventSequencer) -> Result<(), StartError> {
            let first = sequencer.start_event(Duration::ZERO, WsKind(1), WsId(1)).await?;",
        "E0499", "let second = sequencer.start_event(Duration::ZERO, WsKind(1), WsId(1)).await?;",
        "   first.finish();
            Ok(())
        }";

    FinishingTwice:
        "use isequencer::SequencedEvent;
        fn run(event: SequencedEvent<'_>) {
            event.finish();",
        "E0382", "event.finish();",
        "}";

    FinishingWhatWasCancelled:
        "use isequencer::SequencedEvent;
        fn run(event: SequencedEvent<'_>) {
            event.cancel();",
        "E0382", "event.finish();",
        "}";

    NextWithoutEvent:
        "use isequencer::{EventSequencer, StartError, WsId, WsKind};
        use std::time::Duration;
        async fn run(sequencer: &mut EventSequencer) -> Result<(), Box<dyn std::error::Error>> {",
        "E0599", "let _ = sequencer.next_record_id();",
        "   let mut event = sequencer.start_event(Duration::ZERO, WsKind(1), WsId(1)).await?;
            let number = event.next_record_id()?;
            Ok(())
        }";

    ReleasingBeforeStopping:
        "use ielections::Leadership;
        async fn end(lead: Leadership, deadline: clock::Instant, is_early: bool) {
            if is_early {",
        "E0599", "let _ = lead.release();",
        "   } else if let Ok(stopped) = lead.stopped(deadline).await {
                stopped.release().await;
            }
        }";
}
