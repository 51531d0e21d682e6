//! The shares of the workspaces in the requests of a bench.

/// Returns the running sums of the shares. The share of the workspace at a rank is proportional to
/// one divided by the rank to the power of `zipf`.
pub(super) fn sums(workspaces: u32, zipf: f64) -> Vec<f64> {
    let mut sum = 0.0;
    let mut sums: Vec<f64> = (1..=workspaces)
        .map(|rank| {
            sum += f64::from(rank).powf(-zipf);
            sum
        })
        .collect();
    sums.iter_mut().for_each(|part| *part /= sum);
    sums
}

/// Draws workspaces, from 1 on.
pub(super) struct WorkspacePicker<'l> {
    sums: &'l [f64],
    state: u64,
}

impl WorkspacePicker<'_> {
    pub(super) fn new(sums: &[f64], seed: u64) -> WorkspacePicker<'_> {
        WorkspacePicker { sums, state: seed }
    }

    pub(super) fn next(&mut self) -> u64 {
        // The generator is SplitMix64.
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let part = ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64;
        let rank = self.sums.partition_point(|sum| *sum <= part).min(self.sums.len() - 1);
        rank as u64 + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(zipf: f64) -> Vec<u32> {
        let sums = sums(10, zipf);
        let mut workspaces = WorkspacePicker { sums: &sums, state: 7 };
        let mut counts = vec![0; 10];
        (0..100_000).for_each(|_| counts[workspaces.next() as usize - 1] += 1);
        counts
    }

    #[test]
    fn workspaces_are_drawn_by_their_shares() {
        for count in drawn(0.0) {
            assert!((9_000..11_000).contains(&count), "{count}");
        }
        let zipf = drawn(1.0);
        let ratio = f64::from(zipf[0]) / f64::from(zipf[9]);
        assert!((8.0..12.5).contains(&ratio), "{zipf:?}");
    }
}
