//! The series of document numbers of an application on a node, from the beginning of the leadership
//! to its end.

use std::{collections::BTreeMap, time::Duration};

use base::with_causes;
use clock::Instant;
use docnumbers::{DocNumberRows, FastSeries, FixError, Policy, RangeOwner, SeriesEnd, SeriesId};
use futures::future::join_all;
use ielections::Leadership;
use processor::{DeclaredSeries, SeriesPolicy};
use sysvvm::AppName;
use tracing::{info, warn};

use crate::{App, Node, NodeSettings, Problem, clients::Clients};

/// The longest time that a moving partition waits for its document numbers.
const GIVE_BACK_WITHIN: Duration = Duration::from_millis(150);

/// The open series of an application.
#[derive(Debug)]
pub(crate) struct OpenedSeries {
    pub(crate) rows: DocNumberRows,
    /// The name of this leadership in the ledgers. No other leadership has it.
    pub(crate) owner: String,
    pub(crate) fast: BTreeMap<SeriesId, FastSeries>,
}

/// The name of a leadership in the ledgers of gaps.
pub(crate) fn owner(settings: &NodeSettings, leadership: &Leadership) -> String {
    let (node, seat) = (settings.advertised, leadership.seat().get());
    let epoch = leadership.epoch();
    format!("{node} seat {seat} epoch {epoch}")
}

/// Checks whether all series of an application can be opened. Nothing is stored.
pub(crate) async fn check(
    app: &App,
    rows: &DocNumberRows,
    deadline: Instant,
) -> Result<(), Problem> {
    for DeclaredSeries { series, policy } in app.application().declarations().series() {
        let policy = match policy {
            SeriesPolicy::Gapless { .. } => Policy::Gapless,
            SeriesPolicy::Fast(settings) => {
                settings.check().map_err(|why| refused(app, why))?;
                Policy::Fast
            }
        };
        rows.check(series, policy, deadline).await.map_err(|why| refused(app, why))?;
    }
    Ok(())
}

impl OpenedSeries {
    /// Fixes the definitions of all series of an application, and opens the fast ones.
    pub(crate) async fn open(
        app: &App,
        rows: DocNumberRows,
        owner: String,
        deadline: Instant,
    ) -> Result<OpenedSeries, Problem> {
        let mut fast = BTreeMap::new();
        for DeclaredSeries { series, policy } in app.application().declarations().series() {
            let refused = |why| refused(app, why);
            match policy {
                SeriesPolicy::Gapless { .. } => {
                    rows.fix(series, Policy::Gapless, deadline).await.map_err(refused)?;
                }
                SeriesPolicy::Fast(settings) => {
                    let rows = rows.clone();
                    let owner = RangeOwner::new(&owner).with_app(app.name().to_string());
                    let opened = FastSeries::open(series.clone(), rows, owner, *settings, deadline);
                    fast.insert(series.id().clone(), opened.await.map_err(refused)?);
                }
            }
        }
        Ok(OpenedSeries { rows, owner, fast })
    }
}

/// The problem of a series that cannot be opened.
fn refused(app: &App, why: FixError) -> Problem {
    match why {
        FixError::Storage(error) => Problem::of_storage(&error),
        why => Problem::Refused(format!(
            "the application `{}` cannot be deployed: {}",
            app.name(),
            with_causes(&why)
        )),
    }
}

/// Gives back the numbers of the workspaces of a partition that goes to another node. Otherwise the
/// next owner reserves the numbers after them, and they are missing. Numbers that cannot be given
/// back in time become a gap, which the ledger shows.
pub(crate) async fn give_back(app: &App, partition: u16) {
    let Some(opened) = app.opened.get() else { return };
    let until = app.clock.now() + GIVE_BACK_WITHIN;
    let is_of = |ws: docnumbers::WsId| app.partition_of(ws) == partition;
    join_all(opened.series.fast.values().map(|series| series.give_back(is_of, until))).await;
}

/// Gives back the numbers that the fast series of a node reserved and did not issue. Numbers that
/// are not given back stay in the ledger, and are never issued.
///
/// The writes are conditional, so they do no harm after the leadership is lost.
pub(crate) async fn close(node: &Node, clients: &Clients, deadline: Instant) {
    let (node, clock) = (node.clone(), node.clock().clone());
    let now = clock.now();
    // The rest of the time is for a series to report the numbers that it could not give back.
    let until = now + deadline.saturating_since(now) * 7 / 8;
    let closing = clients.on_requests(async move {
        let opened = node.apps().iter().filter_map(|app| Some((app.name(), app.opened.get()?)));
        let series = opened.flat_map(|(app, opened)| {
            opened.series.fast.values().map(move |series| close_one(app, series, until))
        });
        join_all(series).await;
        Ok(())
    });
    match clock.timeout_at(deadline, closing).await {
        Ok(Ok(())) => {}
        Ok(Err(problem)) => warn!(%problem, "document numbers not given back"),
        Err(_) => warn!("document numbers not given back in time"),
    }
}

async fn close_one(app: &AppName, series: &FastSeries, until: Instant) {
    let SeriesEnd { given_back, not_issued, not_given_back } = series.close(until).await;
    let id = series.series().id();
    info!(%app, series = %id, given_back, not_issued, not_given_back, "series closed");
}
