//! The disk's own figures, as a table.

use std::path::Path;

use corelog_storage::disk::probe;
use corelog_storage::disk::speed::{Loop, Scratch, Speed, Way};
use serde::Serialize;

use crate::client::ring;
use crate::error::BenchError;
use crate::measure::clock::now_ns;
use crate::report::files;
use crate::say;

/// A line of the table.
#[derive(Clone, Debug, Serialize)]
pub struct DiskFigure {
    /// What was done.
    pub what: String,
    /// Bytes of each operation.
    pub block_bytes: usize,
    /// Operations in flight.
    pub depth: usize,
    /// Megabytes (10^6) a second.
    pub mb_per_s: f64,
    /// Median, µs.
    pub p50_us: f64,
    /// 99th percentile, µs.
    pub p99_us: f64,
    /// 99.9th percentile, µs.
    pub p999_us: f64,
    /// Largest, µs.
    pub max_us: f64,
}

/// Measures the disk under `folder` and shows it.
///
/// # Errors
/// The folder can't be used for logs, or the disk failed.
pub fn run(folder: &Path, mib: u64, seconds: f64, json: Option<&Path>) -> Result<(), BenchError> {
    let figures = measure(folder, mib << 20, (seconds * 1e9) as u64, &mut |figure| say!("{}\n", line(figure)))?;
    let best = figures.iter().filter(|figure| figure.what == way_name(Way::DurableOnWritten));
    let best = best.map(|figure| figure.mb_per_s).fold(0.0, f64::max);
    say!("the limit for a durable log on recycled space: {best:.0} MB/s\n");
    let fresh = figures.iter().find(|figure| figure.what == way_name(Way::Fresh)).map_or(0.0, |figure| figure.mb_per_s);
    if fresh > 0.0 && best > 0.0 {
        // Each byte is written twice, one after the other on the same disk.
        say!("on fresh space, where the zeroes come first: {:.0} MB/s\n", 1.0 / (1.0 / best + 1.0 / fresh));
    }
    match json {
        Some(path) => files::json(path, &figures),
        None => Ok(()),
    }
}

/// All the figures of the disk under `folder`.
///
/// # Errors
/// The folder can't be used for logs, or the disk failed.
pub fn measure(
    folder: &Path,
    bytes: u64,
    nanos: u64,
    each: &mut dyn FnMut(&DiskFigure),
) -> Result<Vec<DiskFigure>, BenchError> {
    let support = probe::probe(folder).map_err(|error| BenchError::Usage(error.to_string()))?;
    if let Some(why) = support.direct_refused {
        return Err(BenchError::Usage(format!("{}: no direct I/O: {why}", folder.display())));
    }
    if support.free_bytes < bytes + (bytes >> 2) {
        let free = support.free_bytes >> 20;
        return Err(BenchError::Usage(format!("{}: only {free} MiB free: give a smaller --mib", folder.display())));
    }
    let reactor = ring::reactor(None)?;
    reactor.block_on(async {
        let failed = BenchError::file(folder);
        let scratch = match Scratch::new(&reactor, folder, bytes, now_ns).await {
            Ok(scratch) => scratch,
            Err(error) => return Err(failed(error)),
        };
        let result = all(&scratch, nanos, each).await;
        let removed = scratch.remove().await;
        match (result, removed) {
            (Ok(figures), Ok(())) => Ok(figures),
            (Err(error), _) | (_, Err(error)) => Err(BenchError::file(folder)(error)),
        }
    })
}

async fn all(scratch: &Scratch, nanos: u64, each: &mut dyn FnMut(&DiskFigure)) -> std::io::Result<Vec<DiskFigure>> {
    let mut figures = Vec::new();
    let mut keep = |how: Loop, speed: &Speed| {
        let figure = figure(how, speed);
        each(&figure);
        figures.push(figure);
    };
    const KIB: usize = 1024;
    for block_bytes in [4 * KIB, 256 * KIB] {
        let how = Loop { way: Way::DurableGrowing, block_bytes, depth: 1 };
        keep(how, &scratch.measure(how, nanos).await?);
    }
    keep(Loop { way: Way::Fresh, block_bytes: KIB * KIB, depth: 4 }, &scratch.write_fresh().await?);
    for (block_bytes, depth) in [
        (4, 1),
        (4, 16),
        (16, 1),
        (64, 1),
        (64, 16),
        (256, 1),
        (256, 4),
        (1024, 1),
        (1024, 4),
        (1024, 16),
        (4096, 1),
        (4096, 4),
    ] {
        let how = Loop { way: Way::DurableOnWritten, block_bytes: block_bytes * KIB, depth };
        keep(how, &scratch.measure(how, nanos).await?);
    }
    let how = Loop { way: Way::DirectOnWritten, block_bytes: KIB * KIB, depth: 4 };
    keep(how, &scratch.measure(how, nanos).await?);
    let how = Loop { way: Way::Read, block_bytes: KIB * KIB, depth: 4 };
    keep(how, &scratch.measure(how, nanos).await?);
    Ok(figures)
}

const fn way_name(way: Way) -> &'static str {
    match way {
        Way::DurableOnWritten => "durable write, space written before",
        Way::DurableGrowing => "durable write, growing file",
        Way::DirectOnWritten => "direct write, not durable",
        Way::Fresh => "fresh space (zeroes, then one sync)",
        Way::Read => "direct read",
    }
}

fn figure(how: Loop, speed: &Speed) -> DiskFigure {
    DiskFigure {
        what: way_name(how.way).to_owned(),
        block_bytes: how.block_bytes,
        depth: how.depth,
        mb_per_s: speed.mb_per_s(),
        p50_us: speed.percentile_us(0.5),
        p99_us: speed.percentile_us(0.99),
        p999_us: speed.percentile_us(0.999),
        max_us: speed.percentile_us(1.0),
    }
}

fn line(figure: &DiskFigure) -> String {
    format!(
        "{:<38} {:>5} KiB x {:>2}  {:>7.1} MB/s  p50 {:>8.1}  p99 {:>8.1}  p99.9 {:>8.1}  max {:>9.1} µs",
        figure.what,
        figure.block_bytes / 1024,
        figure.depth,
        figure.mb_per_s,
        figure.p50_us,
        figure.p99_us,
        figure.p999_us,
        figure.max_us
    )
}
