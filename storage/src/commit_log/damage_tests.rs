//! What a start finds in files that are not as they were written: a crash or damage, and what follows from it.

use super::COMMIT_LOG_FOLDER;
use super::format::{
    ENTRY_HEADER_BYTES, EntryHeader, FILE_HEADER_BYTES, FIRST_WRITE, WRITE_HEADER_BYTES, WriteHeader,
    encode_file_header,
};
use super::replay::{DoneWith, Replay, put_away};
use super::tests::{DATA, files, key, reactor_of, read, run, world};
use crate::disk::BLOCK_BYTES;
use crate::ids::Offset;
use corelog_reactor::sim::{NodeId, SimWorld};
use std::path::{Path, PathBuf};

const BLOCK: usize = BLOCK_BYTES as usize;
/// Bytes of an entry's batches.
const BATCHES: usize = 100;

/// A use of a file.
#[derive(Clone, Copy)]
struct Use {
    generation: u64,
    first: u64,
    /// The number of the file before it.
    follows: Option<u64>,
}

/// A write of one entry for each of the partitions; their offsets are those of the sequence.
fn write(of: Use, sequence: u64, partitions: &[i32]) -> Vec<u8> {
    let mut out = vec![0; WRITE_HEADER_BYTES];
    for partition in partitions {
        let mut head = [0; ENTRY_HEADER_BYTES];
        let (start, end) = (Offset(sequence as i64), Offset(sequence as i64 + 1));
        let position = sequence * 1_000;
        EntryHeader { key: key(*partition), bytes: BATCHES as u32, segment: Offset::ZERO, position, start, end }
            .encode(&mut head);
        out.extend_from_slice(&head);
        out.extend([7; BATCHES]);
    }
    let header = WriteHeader {
        sequence,
        generation: of.generation,
        first: of.first,
        follows: of.follows.map_or(0, |number| number + 1),
        bytes: out.len() as u32,
        entries: partitions.len() as u32,
    };
    header.seal(&mut out);
    out.resize(out.len().next_multiple_of(BLOCK), 0);
    out
}

/// A file with the writes of these sequences, one block each, all with entries of partition 0 and one of the sequence's
/// own.
fn file(of: Use, sequences: impl IntoIterator<Item = u64>) -> Vec<u8> {
    let mut out = encode_file_header(of.generation).to_vec();
    out.resize(FIRST_WRITE as usize, 0);
    for sequence in sequences {
        out.extend(write(of, sequence, &[0, 1 + (sequence % 4) as i32]));
    }
    out.resize(32 * BLOCK, 0);
    out
}

const FIRST: Use = Use { generation: 1, first: 1, follows: None };

/// Damages the batches in the file's `nth` write.
fn hurt(bytes: &mut [u8], nth: usize) {
    bytes[(1 + nth) * BLOCK + WRITE_HEADER_BYTES + ENTRY_HEADER_BYTES + 3] ^= 0x10;
}

/// As if a crash had torn it: nothing is left.
fn tear(bytes: &mut [u8], nth: usize) {
    bytes[(1 + nth) * BLOCK..(2 + nth) * BLOCK].fill(0);
}

struct Start {
    world: SimWorld,
    node: NodeId,
}

impl Start {
    fn with(list: &[(&str, &[u8])]) -> Self {
        let (world, node) = world(1);
        world.disk(node).mkdir_all(&Path::new(DATA).join(COMMIT_LOG_FOLDER));
        for (name, bytes) in list {
            world.disk(node).put(&path(name), bytes);
        }
        Self { world, node }
    }

    fn read(&self) -> Replay {
        let reactor = reactor_of(&self.world, self.node);
        read(&self.world, &reactor, 0)
    }

    fn names(&self) -> Vec<String> {
        let name = |path: PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
        files(&self.world, self.node).into_iter().map(name).collect()
    }

    fn put_away(&self, done: Vec<DoneWith>) {
        let reactor = reactor_of(&self.world, self.node);
        let on = reactor.clone();
        let put = async move { put_away(&on, &Path::new(DATA).join(COMMIT_LOG_FOLDER), done).await };
        run(&self.world, &reactor, put);
    }
}

fn path(name: &str) -> PathBuf {
    Path::new(DATA).join(COMMIT_LOG_FOLDER).join(name)
}

/// Sequences of partition 0's entries, and whether they are sound.
fn of_all(replay: &Replay) -> Vec<(u64, bool)> {
    replay.entries(&key(0)).iter().map(|e| (e.sequence, e.is_sound)).collect()
}

fn sound(sequences: impl IntoIterator<Item = u64>) -> Vec<(u64, bool)> {
    sequences.into_iter().map(|sequence| (sequence, true)).collect()
}

#[test]
fn behind_a_write_that_does_not_hold_those_that_do_count() {
    for hit in 0..8_usize {
        let mut bytes = file(FIRST, 1..=8);
        hurt(&mut bytes, hit);
        let start = Start::with(&[("2-3", &bytes)]);
        let replay = start.read();
        let sequence = hit as u64 + 1;
        let mut expected = sound(1..=8);
        if hit < 4 {
            // It was durable. What is left of it says which logs had something in it.
            expected[hit].1 = false;
            assert_eq!(start.names(), ["2-3-damaged-4"]);
            let one = key(1 + (sequence % 4) as i32);
            assert!(replay.entries(&one).iter().any(|e| e.sequence == sequence && !e.is_sound));
        } else {
            expected.remove(hit);
            assert_eq!(start.names(), ["2-3"], "the last four may have been in flight");
        }
        assert_eq!(of_all(&replay), expected, "write {sequence} is damaged");
        assert!(replay.next_sequence() >= if hit == 7 { 8 } else { 9 });
    }
}

#[test]
fn a_write_of_which_nothing_is_left_hides_none_behind_it() {
    let mut bytes = file(FIRST, 1..=9);
    tear(&mut bytes, 2);
    tear(&mut bytes, 3);
    let start = Start::with(&[("0-0", &bytes)]);
    let replay = start.read();
    assert_eq!(of_all(&replay), sound([1, 2, 5, 6, 7, 8, 9]));
    assert_eq!(start.names(), ["0-0-damaged-5"]);
}

#[test]
fn writes_torn_at_the_start_of_a_file_are_no_damage() {
    // It got its header long before the file before it was full.
    let of = Use { generation: 2, first: 20, follows: None };
    for torn in [&[0][..], &[1], &[0, 1], &[0, 1, 2], &[3], &[1, 3], &[0, 1, 2, 3]] {
        let mut bytes = file(of, 20..=23);
        torn.iter().for_each(|nth| tear(&mut bytes, *nth));
        let start = Start::with(&[("0-7", &bytes)]);
        let replay = start.read();
        let whole: Vec<u64> = (20..=23).filter(|sequence| !torn.contains(&(*sequence as usize - 20))).collect();
        assert_eq!(replay.next_sequence(), whole.last().map_or(2, |last| last + 1));
        assert_eq!(of_all(&replay), sound(whole));
        assert!(!start.names().iter().any(|name| name.contains("damaged") || name.contains("aside")));
    }
    let mut bytes = file(of, 20..=24);
    tear(&mut bytes, 0);
    let start = Start::with(&[("0-7", &bytes)]);
    assert_eq!(of_all(&start.read()), sound(21..=24));
    assert_eq!(start.names(), ["0-7-damaged-20"], "the fifth is begun only when the first is durable");
}

#[test]
fn rot_in_the_last_writes_of_a_file_is_noticed_by_the_one_that_follows() {
    let next = Use { generation: 3, first: 6, follows: Some(4) };
    let mut bytes = file(FIRST, 1..=5);
    hurt(&mut bytes, 3);
    hurt(&mut bytes, 4);
    // Both may have been in flight.
    let start = Start::with(&[("0-4", &bytes)]);
    assert_eq!(of_all(&start.read()), sound(1..=3));
    assert_eq!(start.names(), ["0-4"]);
    // The first of them was durable, and then both.
    for (last, proved) in [(8, 4), (9, 5), (11, 5)] {
        let start = Start::with(&[("0-4", &bytes), ("0-9", &file(next, 6..=last))]);
        let all = of_all(&start.read());
        let named: Vec<u64> = all.iter().filter(|(_, is_sound)| !is_sound).map(|(sequence, _)| *sequence).collect();
        // What is left of a write says something only where it is clear that it starts there.
        assert_eq!(named, [4]);
        assert_eq!(all.len() as u64, 3 + 1 + last - 5);
        assert_eq!(start.names(), [format!("0-4-damaged-{proved}"), "0-9".to_owned()]);
    }
    // A file of another shard follows another one, and one that was used again ended elsewhere.
    let start = Start::with(&[("0-4", &bytes), ("1-9", &file(next, 6..=9))]);
    assert_eq!((of_all(&start.read()).len(), start.names()), (3 + 4, vec!["0-4".to_owned(), "1-9".to_owned()]));
    let again = file(Use { generation: 6, first: 10, follows: Some(9) }, []);
    let start = Start::with(&[("0-4", &again), ("0-9", &file(next, 6..=9))]);
    assert_eq!((of_all(&start.read()), start.names()), (sound(6..=9), vec!["0-9".to_owned()]));
}

#[test]
fn a_file_of_which_no_write_is_left_is_noticed_by_those_that_follow() {
    let empty = file(FIRST, []);
    let second = Use { generation: 2, first: 4, follows: Some(0) };
    let third = Use { generation: 3, first: 5, follows: Some(1) };
    // Its last write and the first of the next ones may have been in flight.
    let start = Start::with(&[("0-0", &empty), ("0-1", &file(second, 4..=4))]);
    assert_eq!(of_all(&start.read()), sound([4]));
    assert_eq!(start.names(), ["0-1"]);
    let start = Start::with(&[("0-0", &empty), ("0-1", &file(second, 4..=4)), ("0-2", &file(third, 5..=7))]);
    assert_eq!(of_all(&start.read()), sound(4..=7));
    assert_eq!(start.names(), ["0-0-aside", "0-1", "0-2"], "nothing of it counts, and it is kept");
}

#[test]
fn a_damaged_header_is_noticed_also_with_a_damaged_first_write() {
    for is_zeroed in [false, true] {
        let mut bytes = file(FIRST, 1..=5);
        if is_zeroed {
            bytes[..FILE_HEADER_BYTES].fill(0);
        } else {
            bytes[9] ^= 1;
        }
        let start = Start::with(&[("0-0", &bytes)]);
        assert_eq!(of_all(&start.read()), sound(1..=5));
        assert_eq!(start.names(), ["0-0-damaged-1"]);
        hurt(&mut bytes, 0);
        let start = Start::with(&[("0-0", &bytes)]);
        let mut expected = sound(1..=5);
        expected[0].1 = false;
        assert_eq!(of_all(&start.read()), expected);
        // And with nothing else in it.
        let mut bytes = file(FIRST, 1..=1);
        bytes[9] ^= 1;
        hurt(&mut bytes, 0);
        let start = Start::with(&[("0-0", &bytes)]);
        let _ = start.read();
        assert_eq!(start.names(), ["0-0-aside"]);
    }
}

#[test]
fn under_a_damaged_header_the_newest_use_counts() {
    let mut bytes = file(FIRST, 1..=6);
    let of = Use { generation: 9, first: 9, follows: None };
    for sequence in 9..=11_u64 {
        let at = (sequence - 8) as usize * BLOCK;
        bytes[at..at + BLOCK].copy_from_slice(&write(of, sequence, &[0]));
    }
    bytes[9] ^= 1;
    let start = Start::with(&[("0-0", &bytes)]);
    assert_eq!(of_all(&start.read()), sound(9..=11));
}

/// Its proof may be gone by then: with the file that followed it, say.
#[test]
fn damage_that_was_found_once_is_known_to_later_starts() {
    let next = Use { generation: 3, first: 6, follows: Some(4) };
    let mut bytes = file(FIRST, 1..=5);
    hurt(&mut bytes, 4);
    let start = Start::with(&[("0-4", &bytes), ("0-9", &file(next, 6..=9))]);
    let first = of_all(&start.read());
    assert!(first.contains(&(5, false)));
    start.put_away(vec![DoneWith::of(path("0-9"))]);
    assert_eq!(start.names(), ["0-4-damaged-5"]);
    assert_eq!(of_all(&start.read()), first.iter().copied().filter(|(sequence, _)| *sequence < 6).collect::<Vec<_>>());
    assert_eq!(start.names(), ["0-4-damaged-5"]);
}

#[test]
fn a_damaged_file_is_never_removed_and_not_read_for_ever() {
    let mut bytes = file(FIRST, 1..=7);
    hurt(&mut bytes, 1);
    let start = Start::with(&[("0-4", &bytes)]);
    let replay = start.read();
    let done: Vec<DoneWith> = replay.logs().iter().flat_map(|key| replay.settle(key)).collect();
    start.put_away(done);
    assert_eq!(start.names(), ["0-4-aside"]);
    let replay = start.read();
    assert!(replay.is_done());
    assert_eq!((start.names(), replay.next_number()), (vec!["0-4-aside".to_owned()], 5));
}

/// What a client sends may look like anything.
#[test]
fn what_looks_like_a_write_within_a_damaged_one_does_not_count() {
    // One write of three blocks, with a block in it that looks like the next.
    let large = |sequence: u64, lie: &[u8]| {
        let (start, end) = (Offset(2), Offset(3));
        let mut out = vec![0; WRITE_HEADER_BYTES + ENTRY_HEADER_BYTES];
        let bytes = (3 * BLOCK - out.len()) as u32;
        let mut head = [0; ENTRY_HEADER_BYTES];
        EntryHeader { key: key(0), bytes, segment: Offset::ZERO, position: 2_000, start, end }.encode(&mut head);
        out[WRITE_HEADER_BYTES..].copy_from_slice(&head);
        out.resize(3 * BLOCK, 9);
        out[BLOCK..BLOCK + lie.len()].copy_from_slice(lie);
        WriteHeader { sequence, generation: 1, first: 1, follows: 0, bytes: out.len() as u32, entries: 1 }
            .seal(&mut out);
        out
    };
    let whole = file(FIRST, 1..=1);
    let with = |lie: u64, is_header_damaged: bool| {
        let mut bytes = whole[..2 * BLOCK].to_vec();
        bytes.extend(large(2, &write(FIRST, lie, &[0, 3])));
        bytes[2 * BLOCK + if is_header_damaged { 1 } else { 3_000 }] ^= 1;
        for sequence in 3..=7 {
            bytes.extend(write(FIRST, sequence, &[0]));
        }
        bytes.resize(32 * BLOCK, 0);
        let start = Start::with(&[("0-0", &bytes)]);
        let replay = start.read();
        (of_all(&replay), replay.entries(&key(3)).len(), replay.next_sequence())
    };
    // The header leads behind it.
    let (all, lies, _) = with(3, false);
    assert_eq!((all, lies), ([vec![(1, true), (2, false)], sound(3..=7)].concat(), 0));
    // Without, no more writes can be missing than there is room for.
    let (all, lies, next) = with(1_000, true);
    assert_eq!((all, lies), (sound([1, 3, 4, 5, 6, 7]), 0));
    assert!(next < 100, "{next}");
}

#[test]
fn what_was_cut_off_does_not_count_although_no_checkpoint_says_so() {
    let mut bytes = file(FIRST, 1..=6);
    // The same log, cut off at offset 3, and from there on anew.
    let at = 7 * BLOCK;
    let mut again = write(FIRST, 3, &[0]);
    let found = WriteHeader::check(&again).unwrap();
    WriteHeader { sequence: 7, ..found }.seal(&mut again[..found.bytes as usize]);
    bytes[at..at + BLOCK].copy_from_slice(&again);
    let start = Start::with(&[("0-0", &bytes)]);
    assert_eq!(of_all(&start.read()), sound([1, 2, 7]));
}

#[test]
fn no_file_gets_the_number_of_one_that_another_follows() {
    let of = Use { generation: 3, first: 6, follows: Some(17) };
    let start = Start::with(&[("0-4", &file(of, 6..=9))]);
    assert_eq!(start.read().next_number(), 18);
}
