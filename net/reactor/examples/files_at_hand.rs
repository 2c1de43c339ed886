//! What a place in the ring's table of files saves: the same operations with and without one, in turn.
//!
//! `cargo run --release -p corelog-reactor --example files_at_hand [folder] [rounds]`

use std::path::PathBuf;
use std::time::Duration;

use corelog_reactor::ring::{RingConfig, RingDriver};
use corelog_reactor::{Durability, File, OpenHow, Reactor, ReactorLimits};

/// The file's size, and so the offsets that are written in turn.
const BLOCKS: u64 = 4096;
const BLOCK: u64 = 4096;
/// Operations of one round.
const WRITES: u64 = 1000;
const READS: u64 = 100_000;

/// CPU time of this thread, kernel and user.
fn cpu() -> Duration {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: one writable structure; all zeroes is a valid value of it.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    let of = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    of(usage.ru_utime) + of(usage.ru_stime)
}

async fn writes(reactor: &Reactor, file: &File) {
    let mut buf = reactor.pool().take(BLOCK as usize).expect("a buffer");
    for n in 0..WRITES {
        let (result, back) = file.write_at(buf, n % BLOCKS * BLOCK, Durability::Dsync).await;
        assert_eq!(result.expect("written"), BLOCK as usize);
        buf = back;
    }
}

/// Reads that the page cache answers: next to nothing but the operation itself.
async fn reads(file: &File) {
    let mut buf = vec![0; 64];
    for n in 0..READS {
        let (result, back) = file.read_at(buf, n % BLOCKS * BLOCK).await;
        assert_eq!(result.expect("read"), 64);
        buf = back;
    }
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn main() {
    let mut args = std::env::args().skip(1);
    let folder = args.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let rounds: usize = args.next().map_or(15, |n| n.parse().expect("a number of rounds"));
    let path = folder.join(format!("files-at-hand-{}", std::process::id()));
    let driver = RingDriver::new(RingConfig::default()).expect("a ring");
    let reactor = Reactor::new(Box::new(driver), ReactorLimits::default());
    reactor.block_on(async {
        let file = reactor.open(&path, OpenHow::write().create().direct()).await.expect("a file");
        let mut buf = reactor.pool().take((BLOCKS * BLOCK) as usize).expect("a buffer");
        buf.fill(0);
        file.write_at(buf, 0, Durability::Dsync).await.0.expect("pre-written");
        drop(file);
        let mut micros = [[Vec::new(), Vec::new()], [Vec::new(), Vec::new()]];
        for round in 0..rounds * 2 {
            let at_hand = round % 2;
            let direct = reactor.open(&path, OpenHow::write().direct()).await.expect("the file");
            let cached = reactor.open(&path, OpenHow::read()).await.expect("the file");
            if at_hand == 1 {
                assert!(direct.keep_at_hand() && cached.keep_at_hand(), "no places");
            }
            let before = cpu();
            writes(&reactor, &direct).await;
            let between = cpu();
            reads(&cached).await;
            let after = cpu();
            micros[0][at_hand].push((between - before).as_secs_f64() * 1e6 / WRITES as f64);
            micros[1][at_hand].push((after - between).as_secs_f64() * 1e6 / READS as f64);
        }
        let names = ["durable direct 4 KiB write", "64-byte read from the page cache"];
        for (name, [plain, at_hand]) in names.into_iter().zip(micros) {
            println!("{name}: {:.3} µs of CPU by descriptor, {:.3} at hand", median(plain), median(at_hand));
        }
        reactor.unlink(&path).await.expect("removed");
    });
}
