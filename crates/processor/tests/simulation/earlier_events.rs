//! The events before a history: so many that the history passes from one partition of the storage
//! to the next.

use std::sync::Arc;

use eventlog::{
    DrawnNumber, Epoch, Event, EventPlace, LogSettings, LogWriter, Offset, PreparedEvent,
    SingleNodeFence, WsId, layout::NEIGHBOURS,
};
use isequencer::standard::WLOG_OFFSET;
use shop::{AnswerLedger, ShopDatabase, ShopNodeSettings, qname};

/// The workspace of these events.
const WS: WsId = WsId(11);

/// Writes events until a storage partition has room for only `left` more events. All these
/// events have the first epoch.
pub(crate) async fn write(
    shop_db: &ShopDatabase,
    partition: u16,
    settings: &ShopNodeSettings,
    left: u64,
    ledger: &mut AnswerLedger,
) {
    let epoch = Epoch(1);
    let event = |offset: u64| {
        let place = EventPlace { epoch, plog: Offset(offset), ws: WS, wlog: Offset(offset) };
        Event {
            request: format!("past {offset}"),
            drawn: vec![DrawnNumber { seq: WLOG_OFFSET.0, last: offset }],
            ..Event::new(place, shop_db.clock.wall(), qname("sys.CUD"))
        }
    };
    let events: Vec<Event> = (1..NEIGHBOURS - left).map(event).collect();
    events.iter().for_each(|event| ledger.open(&event.request));
    let group: Vec<PreparedEvent> =
        events.iter().map(|event| PreparedEvent::new(event, |_| None)).collect();
    let storage = Arc::clone(&shop_db.app.storage);
    let fence = Arc::new(SingleNodeFence(epoch));
    let partitions = shop_db.app.entry.partitions;
    let settings = LogSettings { level: settings.level, ..LogSettings::new(partitions) };
    let outcome = LogWriter::new(storage, shop_db.clock.clone(), fence, partition, settings)
        .write(&group)
        .await;
    assert!(outcome.commit_error.is_none() && outcome.applied.is_ok(), "{outcome:?}");
}
