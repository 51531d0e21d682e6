//! The timeline of a run as one HTML page.

use std::{collections::BTreeMap, fmt::Write};

use crate::{
    history::{History, Outcome},
    leaders::Owners,
};

/// The width of a second, and the height of a lane.
const SECOND: f64 = 8.0;
const LANE: f64 = 14.0;
/// The height of the picture of the rates.
const RATES: f64 = 120.0;
/// The height of the picture of the memory.
const MEMORY: f64 = 40.0;

/// The longest time, in microseconds, that an owner is drawn after it was seen once. The program
/// looks each second, and waits a second for each node.
const SEEN: u64 = 5_000_000;

/// The colours of the nodes.
const COLOURS: [&str; 6] = ["#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#a463f2", "#97bbf5"];

/// `report` is the text of the results.
pub(crate) fn html(
    seed: u64,
    history: &History,
    notes: &[(u64, String)],
    owners: &[Owners],
    report: &str,
) -> String {
    let mut picture = Picture::default();
    let end = picture.rates(history);
    picture.owners(owners);
    picture.memory(owners);
    picture.faults(notes, end);
    let Picture { svg, height } = picture;
    let width = seconds(end) * SECOND + 40.0;
    let notes: String = notes
        .iter()
        .map(|(at, text)| format!("{:9.2} s  {}\n", seconds(*at), escaped(text)))
        .collect();
    format!(
        "<!doctype html><meta charset=\"utf-8\"><title>Rounds of faults, seed {seed}</title>\n\
         <style>body{{font:13px system-ui;margin:1em}}svg{{background:#fafafa}}pre{{font-size:12px}}</style>\n\
         <h1>Rounds of faults, seed {seed}</h1>\n\
         <p>Above: answers in each second, green: done or read, red: refused or unknown. In the middle: the \
         owner of each partition, and the memory of each node, a colour for each node. Below: the faults.</p>\n\
         <div style=\"overflow-x:auto\"><svg width=\"{width:.0}\" height=\"{height:.0}\">{svg}</svg></div>\n\
         <pre>{}</pre>\n<pre>{notes}</pre>\n",
        escaped(report)
    )
}

fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

/// A picture that grows downwards.
#[derive(Default)]
struct Picture {
    svg: String,
    height: f64,
}

impl Picture {
    fn bar(&mut self, from: u64, to: u64, (y, height): (f64, f64), colour: &str, title: &str) {
        let (x, width) = (seconds(from) * SECOND, (seconds(to) - seconds(from)).max(0.05) * SECOND);
        // Writing into a string does not fail.
        let _ = write!(
            self.svg,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
             fill=\"{colour}\"><title>{}</title></rect>",
            escaped(title)
        );
    }

    /// Draws the answers of each second, and returns the end of the last one.
    fn rates(&mut self, history: &History) -> u64 {
        let mut rates: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for operation in &history.operations {
            let (good, bad) = rates.entry(operation.end / 1_000_000).or_default();
            match operation.outcome {
                Outcome::Refused { .. } | Outcome::Unknown { .. } | Outcome::Wrong { .. } => {
                    *bad += 1
                }
                _ => *good += 1,
            }
        }
        let most = rates.values().map(|(good, bad)| good + bad).max().unwrap_or(1).max(1);
        let scale = RATES / most as f64;
        for (second, (good, bad)) in &rates {
            let (from, to) = (second * 1_000_000, (second + 1) * 1_000_000);
            let (good_height, bad_height) = (*good as f64 * scale, *bad as f64 * scale);
            let title = format!("{second} s: {good} done or read, {bad} refused or unknown");
            self.bar(from, to, (RATES - good_height, good_height), "#3ca951", &title);
            let top = RATES - good_height - bad_height;
            self.bar(from, to, (top, bad_height), "#d62728", &title);
        }
        self.height = RATES + LANE;
        rates.keys().next_back().map_or(0, |second| (second + 1) * 1_000_000)
    }

    /// Draws a lane for each partition.
    fn owners(&mut self, owners: &[Owners]) {
        let mut partitions: Vec<u64> =
            owners.iter().flat_map(|seen| seen.partitions.keys().copied()).collect();
        partitions.sort_unstable();
        partitions.dedup();
        for partition in partitions {
            for pair in owners.windows(2) {
                let Some(owner) = pair[0].partitions.get(&partition) else { continue };
                let title = format!("partition {partition}: node {}", owner + 1);
                let colour = COLOURS[owner % COLOURS.len()];
                let until = pair[1].at.min(pair[0].at + SEEN);
                self.bar(pair[0].at, until, (self.height, LANE / 2.0), colour, &title);
            }
            self.height += LANE / 2.0 + 1.0;
        }
        self.height += LANE;
    }

    /// Draws a line for the memory of each node.
    fn memory(&mut self, owners: &[Owners]) {
        let most = owners.iter().flat_map(|seen| &seen.memory).max().copied().unwrap_or(0).max(1);
        let nodes = owners.iter().map(|seen| seen.memory.len()).max().unwrap_or(0);
        for node in 0..nodes {
            let points = owners.iter().filter_map(|seen| {
                let height = *seen.memory.get(node)? as f64 / most as f64 * MEMORY;
                Some(format!(
                    "{:.1},{:.1}",
                    seconds(seen.at) * SECOND,
                    self.height + MEMORY - height
                ))
            });
            let points = points.collect::<Vec<_>>().join(" ");
            // Writing into a string does not fail.
            let _ = write!(
                self.svg,
                "<polyline points=\"{points}\" fill=\"none\" stroke=\"{}\"><title>node {}, at \
                 most {} MiB</title></polyline>",
                COLOURS[node % COLOURS.len()],
                node + 1,
                most >> 20
            );
        }
        self.height += MEMORY + LANE;
    }

    /// Draws a bar for each fault, in the first lane that is free.
    fn faults(&mut self, notes: &[(u64, String)], end: u64) {
        let mut lanes: Vec<u64> = Vec::new();
        let top = self.height;
        for (place, (begin, text)) in notes.iter().enumerate() {
            let Some(fault) = text.strip_prefix("begin ") else { continue };
            let is_end = |(_, text): &&(u64, String)| text.strip_prefix("end ") == Some(fault);
            let until = notes[place..].iter().find(is_end).map_or(end, |(at, _)| *at);
            let free = lanes.iter().position(|taken| taken <= begin);
            let lane = free.unwrap_or_else(|| {
                lanes.push(0);
                lanes.len() - 1
            });
            lanes[lane] = until;
            let y = top + lane as f64 * LANE;
            self.bar(*begin, until, (y, LANE - 2.0), "#9c6b4e", fault);
        }
        self.height += lanes.len() as f64 * LANE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last owner was drawn for as long as no node answered.
    #[test]
    fn a_partition_has_no_owner_while_no_node_answers() {
        let seen = |second: u64| Owners {
            at: second * 1_000_000,
            partitions: [(1, 0)].into(),
            memory: vec![1 << 20],
        };
        let mut picture = Picture::default();
        picture.owners(&[10, 11, 41].map(seen));
        let bars: Vec<&str> = picture.svg.split("<rect ").skip(1).collect();
        let [short, cut] = &bars[..] else { panic!("{bars:?}") };
        assert!(short.starts_with("x=\"80.0\"") && short.contains("width=\"8.0\""), "{short}");
        assert!(cut.starts_with("x=\"88.0\"") && cut.contains("width=\"40.0\""), "{cut}");
    }
}
