//! The cost of a gapless number: commands that write a row with a number field, beside commands
//! that write the same row without one, or two such rows. A number adds one record to the event, so
//! two rows are the floor.

use std::sync::Arc;

use clock::Clock;
use eventlog::{Name, QName, RecordId, TrustLevel, Value};
use istorage::{KeyspaceName, StorageDriver};
use processor::RowChange;
use tck::storage::KeyspaceTracker;
use vvm_tests::bench::{BenchError, Sample, ShopLoad, median};

use crate::Args;

/// One row, two rows, and a row with a number.
const KINDS: [&[&str]; 3] = [&["shop.Bill"], &["shop.Bill", "shop.Bill"], &["shop.Invoice"]];

pub(crate) async fn bench(
    args: &Args,
    clock: &Clock,
    driver: &Arc<dyn StorageDriver>,
) -> Result<(), BenchError> {
    println!(
        "| level | workspaces | in flight | one row/s | two rows/s | numbered row/s | of one row | of two rows | CPU: one, two, numbered |"
    );
    println!("|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for &level in &args.levels {
        for &workspaces in &args.workspaces {
            for &in_flight in &args.in_flight {
                measure(args, clock, driver, level, workspaces, in_flight).await?;
            }
        }
    }
    println!();
    Ok(())
}

async fn measure(
    args: &Args,
    clock: &Clock,
    driver: &Arc<dyn StorageDriver>,
    level: TrustLevel,
    workspaces: u64,
    in_flight: usize,
) -> Result<(), BenchError> {
    let keyspaces = KeyspaceTracker::default();
    let driver = keyspaces.track(Arc::clone(driver));
    let (mut samples, mut ratios) = ([const { Vec::new() }; 3], [const { Vec::new() }; 2]);
    // The first round warms up, because a server compiles while it runs.
    for round in 0..=args.rounds {
        let mut rates = [0.0; 3];
        for (kind, rate) in rates.iter_mut().enumerate() {
            let name = KeyspaceName::new(format!("bench_{:016x}", clock.random()))?;
            let load = ShopLoad::new(&driver, name, level, workspaces, |same| same, clock).await?;
            let sample = load.run(in_flight, args.span(), rows(KINDS[kind])?).await?;
            load.stop().await;
            keyspaces.drop_all(&*driver, clock).await;
            *rate = sample.per_second;
            if round > 0 {
                samples[kind].push(sample);
            }
        }
        eprintln!(
            "{} level {level}, {workspaces} workspaces, {in_flight} in flight, round {round}: {rates:.0?}",
            driver.name(),
        );
        if round > 0 {
            let [one, two, numbered] = rates;
            ratios[0].push(numbered / one);
            ratios[1].push(numbered / two);
        }
    }
    let none = "there are no rounds";
    let samples = samples.map(|samples| Sample::medians(&samples));
    let [Some(one), Some(two), Some(numbered)] = samples else { return Err(none.into()) };
    let [Some(of_one), Some(of_two)] = ratios.map(median) else { return Err(none.into()) };
    let cpu = [one, two, numbered].map(|sample| sample.cpu.as_secs_f64() * 1e6);
    println!(
        "| {level} | {workspaces} | {in_flight} | {:.0} | {:.0} | {:.0} | {of_one:.2} | {of_two:.2} | {:.1}, {:.1}, {:.1} µs |",
        one.per_second, two.per_second, numbered.per_second, cpu[0], cpu[1], cpu[2]
    );
    Ok(())
}

/// Makes a new row in each of the tables.
fn rows(
    tables: &[&str],
) -> Result<impl Fn() -> Vec<RowChange> + Clone + Send + 'static, BenchError> {
    let tables: Vec<QName> = tables.iter().map(|table| table.parse()).collect::<Result<_, _>>()?;
    let name: Name = "name".parse()?;
    let text = "a text of sixty bytes, as there are many in documents of shops";
    Ok(move || {
        let row = |(raw, table): (u64, &QName)| RowChange::Create {
            raw: RecordId(raw),
            table: table.clone(),
            parent: None,
            fields: [(name.clone(), Value::String(text.to_owned()))].into(),
        };
        (1..).zip(&tables).map(row).collect()
    })
}
