//! The pieces of an answer that a command has read, and that its output has not taken yet.
//!
//! Invariant: the waiting pieces have at most `most` bytes together, or are one larger piece. A
//! simpler version bounds the number of pieces: an answer in small pieces then stops at a fraction
//! of these bytes.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{
    OwnedSemaphorePermit, Semaphore,
    mpsc::{Receiver, Sender, channel},
};

/// Makes a queue with room for `most` bytes.
pub(crate) fn read_ahead(most: u32) -> (PieceSender, PieceReceiver) {
    let free = Arc::new(Semaphore::new(most as usize));
    // Each piece has a byte, so there are never more pieces than bytes.
    let (sender, pieces) = channel(most as usize);
    (PieceSender { sender, free: Arc::clone(&free), most }, PieceReceiver { pieces, free })
}

/// A piece, and the room that it takes.
type WaitingPiece = (Bytes, OwnedSemaphorePermit);

/// The end of the queue that takes the pieces as they arrive.
pub(crate) struct PieceSender {
    sender: Sender<WaitingPiece>,
    free: Arc<Semaphore>,
    most: u32,
}

impl PieceSender {
    /// Waits until there is room for a piece. Returns false if nobody takes the pieces any more.
    pub(crate) async fn send(&self, piece: Bytes) -> bool {
        // Empty pieces take no room, so any number of them could wait.
        if piece.is_empty() {
            return true;
        }
        let bytes = u32::try_from(piece.len()).unwrap_or(u32::MAX).min(self.most);
        let Ok(room) = Arc::clone(&self.free).acquire_many_owned(bytes).await else { return false };
        self.sender.try_send((piece, room)).is_ok()
    }
}

/// The end of the queue that gives the pieces to the output.
pub(crate) struct PieceReceiver {
    pieces: Receiver<WaitingPiece>,
    free: Arc<Semaphore>,
}

impl PieceReceiver {
    /// Waits for the next piece, which makes room for others; `None` after the last piece.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        self.pieces.recv().await.map(|(piece, _)| piece)
    }
}

impl Drop for PieceReceiver {
    fn drop(&mut self) {
        self.free.close();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn piece(bytes: usize) -> Bytes {
        vec![b'x'; bytes].into()
    }

    /// The pieces of small rows were counted as if each had 8 KiB, so a view of 20 MiB did not wait
    /// in a pager.
    #[test]
    fn pieces_of_any_size_wait_up_to_the_same_bytes() {
        for size in [1, 7, 100, 1_000] {
            let (sender, mut pieces) = read_ahead(1_000);
            let mut send = || sender.send(piece(size)).now_or_never();
            let waiting = std::iter::from_fn(&mut send).take(2_000).count();
            assert_eq!(waiting, 1_000 / size, "{size}");
            assert_eq!(pieces.next().now_or_never().flatten(), Some(piece(size)));
            assert_eq!(send(), Some(true), "there is room again");
            assert_eq!(send(), None);
        }
    }

    #[test]
    fn a_piece_that_is_too_large_waits_alone() {
        let (sender, mut pieces) = read_ahead(1_000);
        assert_eq!(sender.send(piece(0)).now_or_never(), Some(true));
        assert_eq!(sender.send(piece(5_000)).now_or_never(), Some(true));
        assert_eq!(sender.send(piece(1)).now_or_never(), None);
        assert_eq!(pieces.next().now_or_never().flatten(), Some(piece(5_000)));
        assert_eq!(sender.send(piece(1)).now_or_never(), Some(true));
        drop(sender);
        assert_eq!(pieces.next().now_or_never(), Some(Some(piece(1))));
        assert_eq!(pieces.next().now_or_never(), Some(None), "the end");
    }

    /// A command whose output nobody reads (`| head`) must end.
    #[test]
    fn a_sender_ends_when_nobody_takes_the_pieces() {
        let (sender, pieces) = read_ahead(10);
        assert_eq!(sender.send(piece(10)).now_or_never(), Some(true));
        let mut waits = Box::pin(sender.send(piece(1)));
        assert_eq!(waits.as_mut().now_or_never(), None);
        drop(pieces);
        assert_eq!(waits.now_or_never(), Some(false));
        assert_eq!(sender.send(piece(1)).now_or_never(), Some(false));
    }
}
