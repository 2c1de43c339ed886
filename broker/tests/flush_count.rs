//! Holds: the proof from outside that an acknowledgement means a flush of the disk's write cache: the device counts them.
//! Never touches: crashes.

mod support;

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use support::admin::Admin;
use support::broker::BrokerSetup;
use support::workload::client_config;

const PATIENCE: Duration = Duration::from_secs(60);
/// Serial produces; each must raise the device's count.
const PRODUCES: u64 = 1_000;
/// Place of the count of completed flush requests in a block device's `stat` (Documentation/block/stat.rst).
const FLUSHES_FIELD: usize = 15;

/// The `stat` file of the whole device that holds `path`: flushes are not counted for a partition of it.
fn stat_file(path: &Path) -> io::Result<PathBuf> {
    let device = fs::metadata(path)?.dev();
    let (major, minor) = (libc::major(device), libc::minor(device));
    if major == 0 {
        return Err(io::Error::other(format!("{} is not on a block device (tmpfs, overlay, ...)", path.display())));
    }
    let folder = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}"))?;
    let is_partition = folder.join("partition").exists();
    let whole = if is_partition { folder.parent().map(Path::to_owned) } else { Some(folder) };
    whole.map(|folder| folder.join("stat")).ok_or_else(|| io::Error::other("the device has no folder in /sys"))
}

fn flushes(stat: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(stat)?;
    let field = text.split_whitespace().nth(FLUSHES_FIELD);
    field.and_then(|field| field.parse().ok()).ok_or_else(|| io::Error::other("this kernel does not count flushes"))
}

/// The device's `stat` file, if syncs of files in `folder` show in it: not so on a device without a volatile cache.
fn counting_device(folder: &Path) -> Result<PathBuf, String> {
    const SYNCS: u64 = 10;
    let count = || -> io::Result<(PathBuf, u64)> {
        let stat = stat_file(folder)?;
        let before = flushes(&stat)?;
        let mut file = File::create(folder.join("probe"))?;
        for _ in 0..SYNCS {
            file.write_all(&[1; 4096])?;
            file.sync_data()?;
        }
        let counted = flushes(&stat)?.saturating_sub(before);
        Ok((stat, counted))
    };
    match count() {
        Ok((stat, counted)) if counted >= SYNCS => Ok(stat),
        Ok((stat, counted)) => Err(format!("{} counted {counted} flushes for {SYNCS} fdatasyncs", stat.display())),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn each_acknowledged_serial_produce_is_a_flush_of_the_disk() {
    // Not the system's temporary folder, which may be in memory.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder");
    let stat = match counting_device(folder.path()) {
        Ok(stat) => stat,
        Err(why) => {
            eprintln!("SKIPPED each_acknowledged_serial_produce_is_a_flush_of_the_disk: {why}");
            return;
        }
    };
    let setup = BrokerSetup::new(&folder.path().join("data"), 2);
    let _broker = setup.start();
    Admin::new(&setup.bootstrap(), PATIENCE).create_topic("t", 1, &[]).expect("a topic");
    let mut config = client_config(&setup.bootstrap());
    config.set("acks", "1").set("linger.ms", "0").set("message.timeout.ms", "60000");
    let producer: BaseProducer = config.create().expect("a producer");
    let produce = |index: u64| {
        let payload = format!("produce {index}");
        let record: BaseRecord<'_, [u8], [u8]> = BaseRecord::to("t").partition(0).payload(payload.as_bytes());
        producer.send(record).map_err(|(error, _)| error).expect("room in the producer's queue");
        let deadline = Instant::now() + PATIENCE;
        while producer.in_flight_count() > 0 {
            assert!(Instant::now() < deadline, "produce {index} was not acknowledged");
            producer.poll(Duration::from_millis(10));
        }
    };
    // The first one may create and pre-write files, which is not what is counted here.
    produce(0);
    let (before, began) = (flushes(&stat).expect("the count"), Instant::now());
    (1..=PRODUCES).for_each(produce);
    let counted = flushes(&stat).expect("the count") - before;
    let took = began.elapsed();
    println!("{PRODUCES} serial acks=1 produces: {counted} flushes, {took:?}");
    assert!(counted >= PRODUCES, "{PRODUCES} serial acks=1 produces raised the flush count by only {counted}");
}
