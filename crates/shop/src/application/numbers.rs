//! The document numbers of the shop.

use async_trait::async_trait;
use bytes::Bytes;
use eventlog::RecordId;
use processor::{
    CommandContext, Declarations, Handler, HandlerError, Rejection, RowChange, SeriesPolicy,
    docnumbers::{Definition, FastSettings, Reset, Series},
};

use super::rows::{new_row, text};

/// Draws document numbers, and writes a bill with each. The params are the ids of series, with
/// spaces between them. The result has the numbers, with spaces between them.
#[derive(Debug)]
pub(super) struct DrawHandler;

#[async_trait]
impl Handler for DrawHandler {
    async fn run(
        &self,
        params: &Bytes,
        rows: Vec<RowChange>,
        context: &mut CommandContext<'_>,
    ) -> Result<Bytes, HandlerError> {
        let mut numbers = Vec::new();
        for (raw, series) in (1..).zip(String::from_utf8_lossy(params).split(' ')) {
            let series = series.parse().map_err(|error| Rejection::invalid(format!("{error}")))?;
            let number = context.next_number(&series).await?.text;
            context.write(vec![new_row(raw, "shop.Bill", [("name", text(&number))])]).await?;
            numbers.push(number);
        }
        context.write(rows).await?;
        Ok(numbers.join(" ").into())
    }
}

/// Declares the series `invoice` and `order`.
pub(super) fn declare(shop: Declarations) -> Declarations {
    let invoice = Definition {
        reset: Reset::Year,
        start: 1,
        ..Definition::new("invoice", "INV{date:yyyy}-{counter:4}")
    };
    let invoice = Series::new(invoice).expect("the year is in the text");
    let order = Series::new(Definition::daily("order", "ORDER")).expect("the day is in the text");
    let counter = RecordId(65_601);
    let shop = shop.with_series(invoice, SeriesPolicy::Gapless { counter }).expect("it is new");
    let fast = SeriesPolicy::Fast(FastSettings::default());
    let shop = shop.with_series(order, fast).expect("it is new");
    shop.check_number_fields().expect("the series of invoices is gapless");
    shop
}
