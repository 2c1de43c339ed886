//! The committed fuzz corpus: replayed by every test run, and written here.

#[path = "../fuzz/checks.rs"]
mod checks;
#[path = "wire_support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use bytes::BytesMut;
use corelog_net::wire::{Api, ApiKey, RequestHeader};
use support::{Choices, Side, rich_choices};

fn corpus(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target)
}

fn inputs(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let mut inputs: Vec<_> = fs::read_dir(corpus(target))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    inputs.sort();
    inputs
}

/// A small request of this API and version, size prefix included.
fn seed(key: ApiKey, version: i16) -> Vec<u8> {
    let choices = rich_choices(3 * key.key() as u64 + version as u64, 300);
    let body = support::body(key, version, Side::Request, &mut Choices::new(&choices));
    let mut e = RequestHeader::begin(BytesMut::new(), key, version, 1, Some("seed"));
    e.put(&body);
    e.finish().unwrap().head.to_vec()
}

/// The seeds are the committed ones: one request for each API and version, and buffers for the frame target.
///
/// After an API or a version was added, `CORELOG_WRITE_SEEDS=1 cargo test -p corelog-net --test wire_corpus` writes them.
#[test]
fn the_seeds_are_the_committed_ones() {
    for &key in ApiKey::SUPPORTED {
        for version in key.versions().iter() {
            settle("request", &format!("{}-v{version}", key.name()), &seed(key, version)[4..]);
        }
    }
    let api_versions = seed(ApiKey::ApiVersions, 4);
    let metadata = seed(ApiKey::Metadata, 12);
    let buffers: [(&str, Vec<u8>); 9] = [
        ("empty", vec![]),
        ("empty-frame", vec![0; 4]),
        ("one", api_versions.clone()),
        ("two", [&api_versions[..], &metadata[..]].concat()),
        ("one-and-a-half", [&api_versions[..], &metadata[..9]].concat()),
        ("negative", vec![0xff; 4]),
        ("too-large", vec![0x7f, 0xff, 0xff, 0xff, 0, 0]),
        ("tls", vec![0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc]),
        ("http", b"GET / HTTP/1.1\r\n\r\n".to_vec()),
    ];
    for (name, bytes) in buffers {
        settle("frame", name, &bytes);
    }
}

/// Compares a seed with the committed one, or writes it if that is asked for.
fn settle(target: &str, name: &str, bytes: &[u8]) {
    let path = corpus(target).join(name);
    if std::env::var_os("CORELOG_WRITE_SEEDS").is_some() {
        fs::create_dir_all(corpus(target)).unwrap();
        fs::write(&path, bytes).unwrap();
    }
    let committed = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(committed == bytes, "{} is not the seed; write it again if the layout was changed", path.display());
}

#[test]
fn the_committed_frames_hold_what_the_fuzzer_checks() {
    let inputs = inputs("frame");
    assert!(!inputs.is_empty());
    inputs.iter().for_each(|(_, bytes)| checks::frame(bytes));
}

#[test]
fn the_committed_requests_hold_what_the_fuzzer_checks_and_reach_every_api_and_version() {
    let mut missing: BTreeSet<(i16, i16)> = ApiKey::SUPPORTED
        .iter()
        .flat_map(|key| key.versions().iter().map(move |version| (key.key(), version)))
        .collect();
    for (path, bytes) in inputs("request") {
        println!("{}", path.display());
        checks::request(&bytes);
        if let Ok((header, _)) = RequestHeader::decode(&bytes)
            && matches!(header.api, Api::Known(_))
        {
            missing.remove(&(header.api_key, header.api_version));
        }
    }
    assert!(missing.is_empty(), "no seed for (key, version): {missing:?}");
}
