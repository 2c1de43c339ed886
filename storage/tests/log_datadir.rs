//! The data folder: its lock, its identity, the probe.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod log_common;

use corelog_storage::disk::datadir::{DataDir, DataDirError};
use corelog_storage::disk::meta::MetaProperties;
use corelog_storage::disk::probe::{ProbeError, probe};
use corelog_storage::ids::TopicId;
use log_common::ring;

fn folder() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("corelog-data-").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

#[test]
fn a_second_broker_is_refused_with_the_first_ones_pid() {
    let folder = folder();
    let path = folder.path().join("new/data");
    let reactor = ring();
    reactor.block_on(async {
        let mut data = DataDir::open(&reactor, &path).await.unwrap();
        assert_eq!(data.meta(), None);
        let meta = MetaProperties { cluster_id: "cluster".to_owned(), node_id: 3, directory_id: TopicId([5; 16]) };
        data.set_meta(&reactor, meta.clone()).await.unwrap();
        match DataDir::open(&reactor, &path).await {
            Err(DataDirError::Locked { holder, .. }) => assert_eq!(holder, std::process::id().to_string()),
            other => panic!("{other:?}"),
        }
        drop(data);
        let data = DataDir::open(&reactor, &path).await.unwrap();
        assert_eq!(data.meta(), Some(&meta));
    });
    reactor.shutdown();
}

#[test]
fn what_was_left_over_is_set_aside() {
    let folder = folder();
    let path = folder.path();
    for name in ["orders-0", "orders-1.0123456789abcdef0123456789abcdef-delete", ".spare"] {
        std::fs::create_dir(path.join(name)).unwrap();
    }
    std::fs::write(path.join(".spare/0-1"), [0; 4096]).unwrap();
    std::fs::write(path.join("log-checkpoint.3.tmp"), "half").unwrap();
    let reactor = ring();
    reactor.block_on(async {
        let data = DataDir::open(&reactor, path).await.unwrap();
        assert!(path.join("orders-0").exists());
        assert_eq!(data.leftovers().len(), 2);
        assert!(!path.join(".spare").exists());
        assert!(!path.join("log-checkpoint.3.tmp").exists());
    });
    reactor.shutdown();
}

#[test]
fn a_damaged_checkpoint_is_not_ignored() {
    let folder = folder();
    std::fs::write(folder.path().join("log-checkpoint.0"), "1\n0\ncrc32c 00000000\n").unwrap();
    let reactor = ring();
    reactor.block_on(async {
        assert!(matches!(DataDir::open(&reactor, folder.path()).await, Err(DataDirError::Checkpoint { .. })));
    });
    reactor.shutdown();
}

#[test]
fn the_probe_says_what_the_disk_can_do() {
    let folder = folder();
    let support = probe(folder.path()).unwrap();
    assert!(support.free_bytes > 0 && support.total_bytes >= support.free_bytes);
    assert!(support.block_bytes.is_power_of_two());
    assert_eq!(support.direct, support.direct_refused.is_none());
    assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none(), "the probe left something");
    assert!(matches!(probe(&folder.path().join("missing")), Err(ProbeError::NotWritable { .. })));
}
