//! The cluster as this node sees it, and the orders of an operator.

use http_server::{
    problem::{Answer, ProblemDetails},
    query::{check_query, parameter, required},
    response::json_response,
};
use hyper::StatusCode;
use serde_json::json;
use vvm::{ClusterOrder, ClusterStatus, Node, OrderError, sysvvm::AppName};

use crate::paths::OrderKind;

/// The status of the cluster, as an event: the status without the times that change all the time,
/// and the whole status as one line.
pub(crate) fn event(node: &Node) -> (ClusterStatus, Vec<u8>) {
    let mut status = node.cluster_status();
    // All keys are texts, so the conversion cannot fail.
    let line = serde_json::to_vec(&status).unwrap_or_default();
    status.age_ms = None;
    status.members.iter_mut().for_each(|member| member.left_ms = None);
    (status, line)
}

/// Begins or ends a drain of this node. This needs no storage.
pub(crate) fn drain(node: &Node, query: Option<&str>) -> Answer {
    check_query(&["cancel"], query)?;
    let is_cancelled = is_cancelled(query)?;
    match is_cancelled {
        true => node.cancel_drain(),
        false => node.begin_drain(),
    }
    Ok(json_response(StatusCode::ACCEPTED, &json!({ "draining": !is_cancelled })))
}

/// Gives an order to the cluster.
pub(crate) async fn order(node: &Node, order: OrderKind, query: Option<&str>) -> Answer {
    order_of(order, query)?.give(node).await.map_err(|error| problem(&error))?;
    Ok(json_response(StatusCode::ACCEPTED, &json!({ "ordered": true })))
}

fn order_of(order: OrderKind, query: Option<&str>) -> Result<ClusterOrder, ProblemDetails> {
    let known: &[&str] = match order {
        OrderKind::Move => &["app", "partition", "to"],
        OrderKind::Drain => &["member", "cancel"],
        OrderKind::Pause | OrderKind::Resume => &[],
    };
    check_query(known, query)?;
    Ok(match order {
        OrderKind::Move => {
            let app = required::<AppName>(query, "app")?.to_string();
            let (partition, to) = (required(query, "partition")?, required(query, "to")?);
            ClusterOrder::Move { app, partition, to }
        }
        OrderKind::Drain => {
            let member = required(query, "member")?;
            match is_cancelled(query)? {
                true => ClusterOrder::CancelDrain(member),
                false => ClusterOrder::Drain(member),
            }
        }
        OrderKind::Pause => ClusterOrder::Pause,
        OrderKind::Resume => ClusterOrder::Resume,
    })
}

fn is_cancelled(query: Option<&str>) -> Result<bool, ProblemDetails> {
    Ok(parameter(query, "cancel")?.unwrap_or(false))
}

fn problem(error: &OrderError) -> ProblemDetails {
    let reason = error.to_string();
    match error {
        OrderError::Unknown(_) => ProblemDetails::not_found(reason),
        OrderError::Refused(_) => ProblemDetails::new(StatusCode::CONFLICT, "refused", reason),
        OrderError::Storage(_) => ProblemDetails::unavailable("storage", reason),
    }
}

#[cfg(test)]
mod tests {
    use vvm::sysvvm::ownership::MemberId;

    use super::*;

    #[test]
    fn an_order_and_its_parameters_are_read() {
        let id = "000000000000000000000000000000ab";
        let order = |order, query: &str| order_of(order, Some(&query.replace("ID", id))).unwrap();
        assert_eq!(order(OrderKind::Pause, ""), ClusterOrder::Pause);
        assert_eq!(order(OrderKind::Resume, ""), ClusterOrder::Resume);
        let (app, to) = ("acme/shop".to_owned(), MemberId(0xab));
        assert_eq!(
            order(OrderKind::Move, "app=acme/shop&partition=7&to=ID"),
            ClusterOrder::Move { app, partition: 7, to }
        );
        assert_eq!(order(OrderKind::Drain, "member=ID"), ClusterOrder::Drain(to));
        assert_eq!(order(OrderKind::Drain, "member=ID&cancel=false"), ClusterOrder::Drain(to));
        assert_eq!(order(OrderKind::Drain, "member=ID&cancel=true"), ClusterOrder::CancelDrain(to));
    }

    #[test]
    fn missing_and_unknown_parameters_are_refused() {
        let id = "000000000000000000000000000000ab";
        for (order, query) in [
            (OrderKind::Pause, "app=acme/shop"),
            (OrderKind::Move, "app=acme/shop&partition=7"),
            (OrderKind::Move, "app=acme&partition=7&to=ID"),
            (OrderKind::Move, "app=acme/shop&partition=70000&to=ID"),
            (OrderKind::Move, "app=acme/shop&partition=7&to=10.0.0.1:8822"),
            (OrderKind::Drain, ""),
            (OrderKind::Drain, "member=ID&cancel=yes"),
        ] {
            let refused = order_of(order, Some(&query.replace("ID", id))).unwrap_err();
            assert_eq!(refused.code(), "bad_request", "{order:?}?{query}");
        }
    }
}
