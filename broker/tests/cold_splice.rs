//! Holds: that older segments are sent as they lie, whatever the codec; that slow readers of them hold up nobody; and what a
//! client sees when the file goes bad beneath an answer.
//! Never touches: clients; requests by hand, with limits that clients seldom set.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use support::admin::Admin;
use support::broker::{Broker, BrokerSetup};
use support::raw::{Encoder, RawConnection, frame, request};
use support::requests::{FETCH, PRODUCE, Session, batch, fetch_answer, fetch_within, produce, produce_answer};
use support::sockets::connect_from;

const PATIENCE: Duration = Duration::from_secs(60);
const WITHOUT: Session = Session { id: 0, epoch: -1 };
const SEGMENT_BYTES: &str = "1048576";
const CODECS: [&str; 5] = ["uncompressed", "gzip", "snappy", "lz4", "zstd"];
const PARTITIONS: i32 = 2;

fn produce_to(connection: &mut RawConnection, topic: &str, partition: i32, value: &[u8]) {
    let bytes = batch(&[value, b"and another"], 1);
    let answer = connection.call(PRODUCE, 3, produce(topic, partition, 1, &bytes)).expect("an answer");
    assert_eq!(produce_answer(&answer).0, 0, "produced");
}

/// Half of it is noise, so that compressed batches fill segments, too.
fn value(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut noise = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..bytes).map(|n| if n % 2 == 0 { noise() } else { b'x' }).collect()
}

/// The offset behind whole batches.
fn end_of(mut records: &[u8]) -> Option<i64> {
    let mut end = None;
    while !records.is_empty() {
        let number = |at: usize, len: usize| {
            records[at..at + len].iter().fold(0, |number: i64, byte| number << 8 | i64::from(*byte))
        };
        let (base, len, delta) = (number(0, 8), number(8, 4) as usize, number(23, 4));
        let crc = crc32c::crc32c(&records[21..12 + len]);
        assert_eq!(i64::from(crc), number(17, 4), "the checksum of the batch at {base}");
        end = Some(base + delta + 1);
        records = &records[12 + len..];
    }
    end
}

/// All records of these partitions, by fetches that ask for all of them at once and go on until none brings anything.
fn read_all(connection: &mut RawConnection, limits: (i32, i32), topics: &[&str]) -> Vec<Vec<u8>> {
    let mut places: Vec<(&str, i32, i64)> =
        topics.iter().flat_map(|topic| (0..PARTITIONS).map(move |partition| (*topic, partition, 0))).collect();
    let mut all = vec![Vec::new(); places.len()];
    loop {
        let answer = connection.call(FETCH, 7, fetch_within(WITHOUT, 0, limits.0, limits.1, &places));
        let fetched = fetch_answer(&answer.expect("an answer"));
        let mut brought = 0;
        for (topic, partition, error, _, _, records) in fetched.partitions {
            assert_eq!((fetched.error, error), (0, 0));
            let at = places.iter().position(|place| (place.0, place.1) == (&topic, partition)).expect("asked for");
            if let Some(end) = end_of(&records) {
                assert!(end > places[at].2, "{topic}-{partition} goes on");
                // The first batch is the one that holds the offset: here always the one that begins with it.
                places[at].2 = end;
                brought += records.len();
                all[at].extend(records);
            }
        }
        if brought == 0 {
            return all;
        }
    }
}

#[test]
fn what_is_sent_as_it_lies_is_what_is_copied_for_every_codec_and_several_partitions_in_an_answer() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let mut setup = BrokerSetup::new(data.path(), 2);
    let mut broker = setup.start();
    let admin = Admin::new(&setup.bootstrap(), PATIENCE);
    let mut connection = RawConnection::connect(setup.address()).expect("a connection");
    for codec in CODECS {
        let configs = [("compression.type", codec), ("segment.bytes", SEGMENT_BYTES)];
        admin.create_topic(codec, PARTITIONS as usize, &configs).expect("a topic");
        for n in 0..140 {
            for partition in 0..PARTITIONS {
                let bytes = [100, 3_000, 40_000][n % 3] + n * 17;
                produce_to(&mut connection, codec, partition, &value(bytes, n as u64 * 2 + partition as u64));
            }
        }
    }
    let mut answers = Vec::new();
    // The third checks what it sends.
    let ways = [("65536", "false"), ("-1", "false"), ("65536", "true"), ("1", "false")];
    for (bytes_min, checks) in ways {
        assert!(broker.terminate(PATIENCE).success(), "an orderly stop");
        setup.settings = vec![
            ("corelog.fetch.splice.bytes.min".to_owned(), bytes_min.to_owned()),
            ("corelog.fetch.check.crc".to_owned(), checks.to_owned()),
        ];
        broker = setup.start();
        let mut connection = RawConnection::connect(setup.address()).expect("a connection");
        for limits in [(50 << 20, 1 << 20), (300_000, 200_000)] {
            answers.push(read_all(&mut connection, limits, &CODECS));
        }
        let (spliced, sent) = (broker.status("bytes_spliced", 2), broker.status("bytes_sent", 2));
        if (bytes_min, checks) == ("65536", "false") || bytes_min == "1" {
            assert!(spliced > sent / 3, "{spliced} of {sent} bytes");
        } else {
            assert_eq!(spliced, 0, "{bytes_min} {checks}");
        }
    }
    assert!(answers[0].iter().all(|records| records.len() > 1 << 20), "more than a segment each");
    for (nth, answer) in answers.iter().enumerate() {
        assert!(answer == &answers[0], "way {nth}");
    }
}

/// A broker with all of topic "t" on disk alone.
fn cold_broker(setup: &BrokerSetup, segment_bytes: &str, batches: usize) -> Broker {
    let mut broker = setup.start();
    let admin = Admin::new(&setup.bootstrap(), PATIENCE);
    admin.create_topic("t", 1, &[("segment.bytes", segment_bytes)]).expect("a topic");
    let mut connection = RawConnection::connect(setup.address()).expect("a connection");
    for n in 0..batches {
        produce_to(&mut connection, "t", 0, &value(100_000, n as u64));
    }
    assert!(broker.terminate(PATIENCE).success(), "an orderly stop");
    setup.start()
}

/// First offset and file of a segment that is larger than a pipe and whatever sockets take. (When a segment ends depends on
/// when pre-written space for the next one is there, too.)
fn large_segment(setup: &BrokerSetup) -> (i64, PathBuf) {
    let entries = std::fs::read_dir(setup.data_dir.join("t-0")).expect("the partition's folder");
    let mut logs: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    logs.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
    logs.sort();
    // The last one is not sealed.
    logs.pop();
    let large = logs.into_iter().find(|path| path.metadata().expect("its length").len() > 3 << 20);
    let path = large.expect("a large segment");
    let base = path.file_stem().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
    (base.expect("named by its first offset"), path)
}

/// Asks for up to 20 MiB from this offset on, and takes nothing of it.
fn stalled(setup: &BrokerSetup, from: i64) -> TcpStream {
    let mut stream = connect_from(1, Some(32 << 10), setup.address()).expect("a connection");
    let body: Encoder = fetch_within(WITHOUT, 0, 50 << 20, 20 << 20, &[("t", 0, from)]);
    stream.write_all(&frame(&request(FETCH, 7, 1, body))).expect("sent");
    stream
}

/// Reads all of "t" from the beginning; the bytes, and how long it took.
fn time_to_read(setup: &BrokerSetup) -> (usize, Duration) {
    let mut connection = RawConnection::connect(setup.address()).expect("a connection");
    let began = Instant::now();
    let (mut at, mut bytes) = (0, 0);
    loop {
        let answer = connection.call(FETCH, 7, fetch_within(WITHOUT, 0, 50 << 20, 1 << 20, &[("t", 0, at)]));
        let fetched = fetch_answer(&answer.expect("an answer"));
        let records = &fetched.partitions[0].5;
        let Some(end) = end_of(records) else { return (bytes, began.elapsed()) };
        (at, bytes) = (end, bytes + records.len());
    }
}

#[test]
fn thirty_two_stalled_readers_do_not_change_the_rate_of_another() {
    let data = tempfile::tempdir().expect("a temporary folder");
    // Little is buffered by the sockets, and no tail cache has it in memory.
    let setup = BrokerSetup::new(data.path(), 1).set("socket.send.buffer.bytes", "65536");
    let broker = cold_broker(&setup, "8388608", 400);
    let best = || (0..4).map(|_| time_to_read(&setup)).min_by_key(|(_, time)| *time).expect("four");
    let (bytes, alone) = best();
    assert!(bytes >= 400 * 100_000, "{bytes} bytes");
    let before = broker.status("bytes_spliced", 1);
    let (from, _) = large_segment(&setup);
    let mut readers: Vec<TcpStream> = (0..32).map(|_| stalled(&setup, from)).collect();
    // Each has got as much as its socket takes.
    std::thread::sleep(Duration::from_millis(200));
    let (again, beside) = best();
    assert_eq!(again, bytes);
    let spliced = broker.status("bytes_spliced", 1) - before;
    assert!(spliced as usize > 4 * bytes * 3 / 4, "{spliced} of {} bytes went the short way", 4 * bytes);
    // Measured within a few per cent; the bound is for machines that have other things to do, too.
    assert!(beside < alone * 2 + Duration::from_millis(50), "{alone:?} alone, {beside:?} beside 32 that stand still");
    // They lose nothing by it.
    for reader in &mut readers {
        let mut len = [0; 4];
        reader.read_exact(&mut len).expect("the length of the answer");
        let mut answer = vec![0; u32::from_be_bytes(len) as usize];
        reader.read_exact(&mut answer).expect("the rest of it");
        let fetched = fetch_answer(&answer[4..]);
        let records = &fetched.partitions[0].5;
        assert!(records.len() > 3 << 20, "{} bytes", records.len());
        assert!(end_of(records).is_some(), "whole batches");
    }
}

#[test]
fn a_file_cut_beneath_an_answer_ends_the_connection_and_is_told_to_who_comes_again() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let setup = BrokerSetup::new(data.path(), 1).set("socket.send.buffer.bytes", "65536");
    let _broker = cold_broker(&setup, "8388608", 200);
    let (from, segment) = large_segment(&setup);
    let whole = std::fs::read(&segment).expect("the segment");
    let mut reader = stalled(&setup, from);
    // The answer has begun.
    let mut len = [0; 4];
    reader.read_exact(&mut len).expect("the length of the answer");
    let head = u32::from_be_bytes(len) as usize - whole.len();
    assert!(head < 200, "the whole segment is promised, behind {head} bytes");
    let file = std::fs::OpenOptions::new().write(true).open(&segment).expect("the segment");
    // Between pages: of one that is cut within, the kernel zeroes the rest, also on its way to a client.
    let cut = whole.len() / 2 / 4096 * 4096;
    file.set_len(cut as u64).expect("cut");
    let mut got = Vec::new();
    // A reset is an end, too: it may take some of the last bytes with it.
    let _ = reader.read_to_end(&mut got);
    assert!(got.len() < head + whole.len(), "{} bytes: nothing may stand for what is gone", got.len());
    assert!(whole.starts_with(&got[head.min(got.len())..]), "and the rest is what was there");

    // What is left is served, and then the error is told, on a connection that stays open.
    let mut connection = RawConnection::connect(setup.address()).expect("a connection");
    let (mut at, mut bytes) = (from, 0);
    let error = loop {
        let answer = connection.call(FETCH, 7, fetch_within(WITHOUT, 0, 50 << 20, 1 << 20, &[("t", 0, at)]));
        let fetched = fetch_answer(&answer.expect("an answer"));
        let (_, _, error, _, _, records) = &fetched.partitions[0];
        let Some(end) = end_of(records) else { break *error };
        (at, bytes) = (end, bytes + records.len());
    };
    assert_eq!(error, 56, "KAFKA_STORAGE_ERROR, at offset {at}");
    assert!(bytes <= cut && bytes + 200_000 > cut, "{bytes} bytes of {cut}");
}
