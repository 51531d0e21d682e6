//! The question of an owner: is its successor there?

use std::sync::Weak;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, StatusCode, Uri, header::HOST};
use vvm::{SuccessorCheck, async_trait, ielections::Incarnation, sysvvm::ownership::Owner};

use crate::peers::Peers;

/// The path of the question, without the incarnation of the successor.
const PATH: &str = "/successor/";

/// Asks successors on their cluster ports.
#[derive(Debug)]
pub struct PeerCheck(pub Weak<Peers>);

#[async_trait]
impl SuccessorCheck for PeerCheck {
    async fn is_there(&self, successor: Owner) -> bool {
        let peers = self.0.upgrade();
        let peer = successor.cluster.and_then(|address| peers?.peer(address));
        // A node that cannot forward to another one cannot ask it, either.
        let Some(peer) = peer else { return true };
        let mut request = Request::new(Full::new(Bytes::new()));
        request.headers_mut().insert(HOST, peer.host.clone());
        *request.uri_mut() = question(successor.incarnation);
        let Ok(answer) = peer.question(request).await else { return false };
        let is_there = answer.status() == StatusCode::NO_CONTENT;
        // The connection serves the next request.
        let _ = answer.into_body().collect().await;
        is_there
    }
}

fn question(successor: Incarnation) -> Uri {
    Uri::try_from(format!("{PATH}{successor}")).unwrap_or_default()
}

/// The successor that a request asks for; `None` if the request is of another kind.
pub fn asked_successor(path: &str) -> Option<Incarnation> {
    let text = path.strip_prefix(PATH)?;
    u128::from_str_radix(text, 16).ok().map(Incarnation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_successor_is_asked_for_by_its_incarnation() {
        let successor = Incarnation(0xabc << 100);
        assert_eq!(asked_successor(question(successor).path()), Some(successor));
        for other in ["/", "/successor", "/successor/", "/successor/x", "/api/successor/1"] {
            assert_eq!(asked_successor(other), None, "{other}");
        }
    }
}
