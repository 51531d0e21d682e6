//! The writes of a group that are sent together.

use istorage::{BatchLimits, Capabilities};

use super::RowWrite;

/// Splits writes into chunks that the storage writes atomically. The rows of a chunk are neighbours
/// of one storage partition. The writes keep their order.
pub(crate) fn in_chunks(writes: Vec<RowWrite>, can: &Capabilities) -> Vec<Vec<RowWrite>> {
    const ONE: BatchLimits = BatchLimits { rows: 1, bytes: usize::MAX };
    let mut chunks: Vec<Vec<RowWrite>> = Vec::new();
    let mut size = 0;
    for write in writes {
        let limits =
            if write.is_conditional() { can.conditional } else { can.ordered.unwrap_or(ONE) };
        size += write.size();
        match chunks.last_mut() {
            Some(chunk)
                if chunk[0].key.pkey == write.key.pkey
                    && chunk.len() < limits.rows
                    && size <= limits.bytes =>
            {
                chunk.push(write);
            }
            _ => {
                size = write.size();
                chunks.push(vec![write]);
            }
        }
    }
    chunks
}
