//! The application of the tests: a shop.

mod numbers;
mod rows;

use std::{panic::resume_unwind, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use eventlog::{RecordId, Schema};
use isequencer::{SeqId, Sequence, WsKind, standard};
use processor::{Application, CommandContext, Declarations, Handler, HandlerError, RowChange};

use self::rows::name;
pub use self::rows::{
    Batch, article, bill, child, create_workspace, cud, new_row, qname, text, update,
};

/// The sequence that the shop itself declares.
const INVOICES: SeqId = SeqId(256);

const SCHEMA: &str = r#"
[tables."shop.Article"]
kind = "CDoc"
fields = { name = "string", weight = "float64", like = "ref", left = "int64" }
containers = { prices = "shop.Price", parts = "shop.Part" }

[tables."shop.Part"]
kind = "CRecord"
containers = { parts = "shop.Part" }

[tables."shop.Price"]
kind = "CRecord"
fields = { cents = "int64" }

[tables."shop.Bill"]
kind = "WDoc"
fields = { name = "string", article = "ref" }
containers = { lines = "shop.Line" }

[tables."shop.Line"]
kind = "WRecord"
fields = { name = "string", article = "ref" }

[tables."shop.Invoice"]
kind = "WDoc"
fields = { name = "string" }
numbers = { number = "invoice" }

[tables."shop.Receipt"]
kind = "WDoc"
fields = { name = "string" }
sequences = { serial = "Note" }

[tables."shop.Order"]
kind = "ODoc"
fields = { name = "string" }
containers = { items = "shop.Item" }

[tables."shop.Item"]
kind = "ORecord"
fields = { name = "string" }

[tables."shop.Settings"]
kind = "Singleton"
id = 65600
fields = { name = "string" }
"#;

/// Writes no rows: reads the workspace, and draws a number from the sequence of the application.
#[derive(Debug)]
struct InvoiceHandler;

#[async_trait]
impl Handler for InvoiceHandler {
    async fn run(
        &self,
        _params: &Bytes,
        _rows: Vec<RowChange>,
        context: &mut CommandContext<'_>,
    ) -> Result<Bytes, HandlerError> {
        let descriptor = RecordId(65_536);
        assert!(context.get(descriptor).await?.is_some(), "the workspace has no descriptor");
        for seq in [standard::WLOG_OFFSET, standard::RECORD_ID, standard::CRECORD_ID] {
            assert!(context.next(seq).is_err(), "only the system draws from {seq}");
        }
        let number = context.next(INVOICES)?;
        Ok(number.to_string().into())
    }
}

/// Panics after it has drawn numbers and written rows.
#[derive(Debug)]
struct PanickingHandler;

#[async_trait]
impl Handler for PanickingHandler {
    async fn run(
        &self,
        _params: &Bytes,
        rows: Vec<RowChange>,
        context: &mut CommandContext<'_>,
    ) -> Result<Bytes, HandlerError> {
        context.write(rows).await?;
        // Unlike `panic!`, this prints nothing.
        resume_unwind(Box::new("this handler is to panic"))
    }
}

/// Ignores the error if rows cannot be written.
#[derive(Debug)]
struct ErrorIgnoringHandler;

#[async_trait]
impl Handler for ErrorIgnoringHandler {
    async fn run(
        &self,
        _params: &Bytes,
        rows: Vec<RowChange>,
        context: &mut CommandContext<'_>,
    ) -> Result<Bytes, HandlerError> {
        let written = context.write(rows).await.map(<[_]>::len);
        Ok(format!("{written:?}").into())
    }
}

/// Never ends.
#[derive(Debug)]
struct EndlessHandler;

#[async_trait]
impl Handler for EndlessHandler {
    async fn run(
        &self,
        _params: &Bytes,
        _rows: Vec<RowChange>,
        _context: &mut CommandContext<'_>,
    ) -> Result<Bytes, HandlerError> {
        std::future::pending().await
    }
}

/// Writes the last row in a second call.
#[derive(Debug)]
struct TwoWritesHandler;

#[async_trait]
impl Handler for TwoWritesHandler {
    async fn run(
        &self,
        _params: &Bytes,
        mut rows: Vec<RowChange>,
        context: &mut CommandContext<'_>,
    ) -> Result<Bytes, HandlerError> {
        let last = rows.split_off(rows.len().saturating_sub(1));
        for rows in [rows, last] {
            let is_new = |row: &&RowChange| matches!(row, RowChange::Create { .. });
            let new = rows.iter().filter(is_new).count();
            assert_eq!(context.write(rows).await?.len(), new, "`write` returns the new rows");
        }
        Ok(Bytes::new())
    }
}

/// The shop. Its workspaces have a sequence of their own, number 256. Besides the commands of every
/// application the shop has:
///
/// - `shop.Note`, which writes no rows and draws from that sequence,
/// - `shop.Fail`, which panics,
/// - `shop.Swallow`, which ignores errors,
/// - `shop.Never`, which does not end,
/// - `shop.Twice`, which writes rows in two calls,
/// - `shop.Draw`, which draws document numbers of the series in its params, and writes a bill for
///   each.
///
/// A new `shop.Receipt` draws from the same sequence as `shop.Note`.
/// A new `shop.Invoice` gets a number of the gapless series `invoice`, such as `INV2026-0001`. The
/// series `order` is fast.
///
/// # Panics
/// If the application is refused.
#[must_use]
pub fn shop() -> Arc<Application> {
    let schema: Schema = SCHEMA.parse().expect("the schema is right");
    let invoices = Sequence::counting_from(INVOICES, 1).expect("it counts from 1");
    let shop = Declarations::new(schema).expect("no table is the system's");
    let sequences = [(name("Note"), invoices)];
    let shop = shop.with_workspaces("Shop", WsKind(1), sequences).expect("the kind is new");
    let shop = Application::new(numbers::declare(shop));
    let shop = shop.with_command(qname("shop.Note"), InvoiceHandler).expect("it is new");
    let shop = shop.with_command(qname("shop.Swallow"), ErrorIgnoringHandler).expect("it is new");
    let shop = shop.with_command(qname("shop.Never"), EndlessHandler).expect("it is new");
    let shop = shop.with_command(qname("shop.Twice"), TwoWritesHandler).expect("it is new");
    let shop = shop.with_command(qname("shop.Fail"), PanickingHandler).expect("it is new");
    Arc::new(shop.with_command(qname("shop.Draw"), numbers::DrawHandler).expect("it is new"))
}
