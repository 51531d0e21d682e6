//! The rows of a group that are sent together.

use istorage::{BatchLimits, Capabilities};

use super::RowWrite;

/// Splits rows into chunks that the storage writes atomically. The rows of a chunk are neighbours
/// of one storage partition, and keep their order.
pub(crate) fn in_chunks(rows: Vec<RowWrite>, can: &Capabilities) -> Vec<Vec<RowWrite>> {
    const ONE: BatchLimits = BatchLimits { rows: 1, bytes: usize::MAX };
    let mut chunks: Vec<Vec<RowWrite>> = Vec::new();
    let mut size = 0;
    for row in rows {
        let limits =
            if row.is_conditional() { can.conditional } else { can.ordered.unwrap_or(ONE) };
        size += row.bytes();
        match chunks.last_mut() {
            Some(chunk)
                if chunk[0].key.pkey == row.key.pkey
                    && chunk.len() < limits.rows
                    && size <= limits.bytes =>
            {
                chunk.push(row);
            }
            _ => {
                size = row.bytes();
                chunks.push(vec![row]);
            }
        }
    }
    chunks
}
