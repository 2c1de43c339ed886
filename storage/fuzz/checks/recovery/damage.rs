//! Damage to a data folder, chosen by the fuzzer's bytes.
//!
//! Holds: the kinds of damage, from a flipped bit to forged batches and checkpoints. Never touches: recovery.

use super::image::{Files, Image, Known, key};
use super::sim::TOPIC;
use corelog_storage::batch::{BatchView, crc_of, field};
use corelog_storage::disk::checkpoint::CheckpointSet;
use corelog_storage::ids::Offset;

/// Damages done to one folder.
const DAMAGES_MAX: usize = 12;
/// No file grows past this.
const FILE_BYTES_MAX: usize = 24 << 10;

/// The fuzzer's bytes as choices; zeroes when they are used up.
pub struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let (now, rest) = self.0.split_at(N.min(self.0.len()));
        out[..now.len()].copy_from_slice(now);
        self.0 = rest;
        out
    }

    pub fn byte(&mut self) -> u8 {
        self.take::<1>()[0]
    }

    fn below(&mut self, end: usize) -> usize {
        usize::from(u16::from_be_bytes(self.take())) % end.max(1)
    }

    /// A number: a small one, one near the edges, or any.
    fn number(&mut self) -> i64 {
        match self.byte() {
            0 => i64::MAX,
            1 => i64::MIN,
            2 => i64::from(i32::MAX),
            3 => i64::from(u32::MAX) + i64::from(self.byte()),
            4..=9 => i64::from_be_bytes(self.take()),
            10..=40 => i64::from(i16::from_be_bytes(self.take())),
            small => i64::from(small) - 48,
        }
    }

    fn some(&mut self, bytes_max: usize) -> &'a [u8] {
        let (now, rest) = self.0.split_at(bytes_max.min(self.0.len()));
        self.0 = rest;
        now
    }
}

/// Damages the files as the choices say, until they are used up.
pub fn damage(image: &Image, choices: &mut Choices<'_>) -> Files {
    let mut files = image.files.clone();
    for _ in 0..DAMAGES_MAX {
        if choices.is_empty() {
            break;
        }
        once(image, &mut files, choices);
    }
    files.values_mut().for_each(|bytes| bytes.truncate(FILE_BYTES_MAX));
    files
}

fn once(image: &Image, files: &mut Files, choices: &mut Choices<'_>) {
    let kind = choices.byte() % 18;
    match kind {
        10 => return forge_field(image, files, choices),
        11 => return forge_batch(image, files, choices),
        12 => return forge_checkpoint(files, choices),
        16 => return forge_snapshot(files, choices),
        _ => {}
    }
    let names: Vec<String> = files.keys().cloned().collect();
    let Some(name) = names.get(usize::from(choices.byte()) % names.len().max(1)) else { return };
    let other = files.get(&names[usize::from(kind) * 7 % names.len()]).cloned().unwrap_or_default();
    let Some(bytes) = files.get_mut(name) else { return };
    match kind {
        0 => {
            let at = choices.below(bytes.len());
            let count = usize::from(choices.byte() % 32);
            overwrite(bytes, at, choices.some(count));
        }
        1 => {
            let at = choices.below(bytes.len());
            let mask = 1 << (choices.byte() % 8);
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= mask;
            }
        }
        2 => {
            let (at, count) = (choices.below(bytes.len()), choices.below(2048));
            zero(bytes, at, count);
        }
        3 => {
            let sector = choices.below(bytes.len().div_ceil(512));
            zero(bytes, sector * 512, 512);
        }
        4 => {
            let len = choices.below(bytes.len());
            bytes.truncate(len);
        }
        5 => {
            let count = usize::from(choices.byte());
            bytes.extend_from_slice(choices.some(count));
        }
        6 => bytes.resize(bytes.len() + 512 * usize::from(choices.byte() % 16), 0),
        7 => {
            files.remove(name);
        }
        8 => *bytes = other,
        9 => {
            let (from, at, count) = (choices.below(other.len()), choices.below(bytes.len()), choices.below(512));
            let piece = other.get(from..(from + count).min(other.len())).unwrap_or_default();
            overwrite(bytes, at, piece);
        }
        13 => {
            let number = choices.number().unsigned_abs();
            let suffix = name.rsplit_once('.').map_or("log", |(_, suffix)| suffix).to_owned();
            if let Some(bytes) = files.remove(name) {
                files.insert(format!("{TOPIC}/{number:020}.{suffix}"), bytes);
            }
        }
        14 => index_entry(bytes, 8, 4, choices),
        15 => index_entry(bytes, 12, 8, choices),
        _ => *bytes = choices.some(usize::MAX).to_vec(),
    }
}

fn overwrite(bytes: &mut [u8], at: usize, with: &[u8]) {
    for (slot, byte) in bytes.iter_mut().skip(at).zip(with) {
        *slot = *byte;
    }
}

fn zero(bytes: &mut [u8], at: usize, count: usize) {
    bytes.iter_mut().skip(at).take(count).for_each(|byte| *byte = 0);
}

/// Changes one of the two numbers of an entry of `entry_bytes`, of which the first has `first_bytes`.
fn index_entry(bytes: &mut Vec<u8>, entry_bytes: usize, first_bytes: usize, choices: &mut Choices<'_>) {
    let entries = bytes.len() / entry_bytes;
    let entry = choices.below(entries + 1);
    if entry == entries {
        bytes.resize(entries * entry_bytes + entry_bytes, 0);
    }
    let number = choices.number();
    let at = entry * entry_bytes;
    if choices.byte() & 1 == 0 {
        overwrite(bytes, at + first_bytes, &(number as u32).to_be_bytes());
    } else {
        overwrite(bytes, at, &number.to_be_bytes()[8 - first_bytes..]);
    }
}

/// Changes a field of a batch's header and makes its CRC right again.
fn forge_field(image: &Image, files: &mut Files, choices: &mut Choices<'_>) {
    const FIELDS: [(usize, usize); 12] = [
        (field::BASE_OFFSET, 8),
        (field::LENGTH, 4),
        (field::LEADER_EPOCH, 4),
        (field::MAGIC, 1),
        (field::ATTRIBUTES, 2),
        (field::LAST_OFFSET_DELTA, 4),
        (field::BASE_TIMESTAMP, 8),
        (field::MAX_TIMESTAMP, 8),
        (field::PRODUCER_ID, 8),
        (field::PRODUCER_EPOCH, 2),
        (field::BASE_SEQUENCE, 4),
        (field::RECORD_COUNT, 4),
    ];
    let Some(known) = pick(image, choices) else { return };
    let (at, bytes) = FIELDS[usize::from(choices.byte()) % FIELDS.len()];
    let number = choices.number().to_be_bytes();
    let Some(batch) = files.get_mut(&known.file).and_then(|file| within(file, known)) else { return };
    overwrite(batch, at, &number[8 - bytes..]);
    reseal(batch);
}

fn pick<'i>(image: &'i Image, choices: &mut Choices<'_>) -> Option<&'i Known> {
    image.batches.get(usize::from(choices.byte()) % image.batches.len().max(1))
}

fn within<'f>(file: &'f mut [u8], known: &Known) -> Option<&'f mut [u8]> {
    file.get_mut(known.end_position - known.bytes.len()..known.end_position)
}

fn reseal(batch: &mut [u8]) {
    if batch.len() >= field::RECORDS {
        let crc = crc_of(batch);
        overwrite(batch, field::CRC, &crc.to_be_bytes());
    }
}

/// Writes a sound batch with any offset, epoch and number of offsets behind a known one.
fn forge_batch(image: &Image, files: &mut Files, choices: &mut Choices<'_>) {
    let Some(known) = pick(image, choices) else { return };
    let mut forged = super::image::batch(u64::from(choices.byte()), 3);
    let base = match choices.byte() % 4 {
        0 => Offset(choices.number()),
        _ => known.last.next(),
    };
    let delta = match choices.byte() % 4 {
        0 => choices.number() as i32,
        _ => i32::from(choices.byte()),
    };
    let epoch = i32::from(choices.byte() % 4);
    overwrite(&mut forged, field::BASE_OFFSET, &base.0.to_be_bytes());
    overwrite(&mut forged, field::LEADER_EPOCH, &epoch.to_be_bytes());
    overwrite(&mut forged, field::LAST_OFFSET_DELTA, &delta.to_be_bytes());
    if choices.byte().is_multiple_of(3) {
        // A control batch, now and then one that ends a transaction.
        let attributes = BatchView::first(&forged).map_or(0, |b| b.header.attributes.with_control(true).0);
        overwrite(&mut forged, field::ATTRIBUTES, &attributes.to_be_bytes());
    }
    reseal(&mut forged);
    let Some(file) = files.get_mut(&known.file) else { return };
    let end = known.end_position + forged.len();
    if file.len() < end {
        file.resize(end, 0);
    }
    overwrite(file, known.end_position, &forged);
}

/// Changes what the checkpoint says, with a CRC that is right.
fn forge_checkpoint(files: &mut Files, choices: &mut Choices<'_>) {
    let (which, number) = (choices.byte() % 7, choices.number());
    for (_, bytes) in files.iter_mut().filter(|(path, _)| path.starts_with("log-checkpoint")) {
        let Ok(mut set) = CheckpointSet::decode(bytes) else { continue };
        let Some(mut entry) = set.remove(&key()) else { continue };
        match which {
            0 => entry.log_start = Offset(number),
            1 => entry.recovery.offset = Offset(number),
            2 => entry.recovery.segment_base = Offset(number),
            3 => entry.recovery.position = number.unsigned_abs() >> 1,
            4 => entry.truncate_to = Some(Offset(number)).filter(|to| *to != Offset::NONE),
            5 => entry.version = number.unsigned_abs(),
            _ => {
                *bytes = set.encode();
                continue;
            }
        }
        set.set(key(), entry);
        *bytes = set.encode();
    }
}

/// Changes a number in a producer snapshot, with a CRC that is right.
fn forge_snapshot(files: &mut Files, choices: &mut Choices<'_>) {
    const FIELDS: [(usize, usize); 8] = [(0, 8), (8, 2), (10, 4), (14, 8), (22, 4), (26, 8), (34, 4), (38, 8)];
    let nth = usize::from(choices.byte());
    let (at, count) = FIELDS[usize::from(choices.byte()) % FIELDS.len()];
    let number = choices.number().to_be_bytes();
    let snapshots = files.iter().filter(|(path, _)| path.ends_with(".snapshot")).count().max(1);
    let snapshot = files.iter_mut().filter(|(path, _)| path.ends_with(".snapshot")).nth(nth % snapshots);
    let Some((_, bytes)) = snapshot.filter(|(_, bytes)| bytes.len() > 10) else { return };
    overwrite(bytes, 10 + at, &number[8 - count..]);
    let crc = crc32c::crc32c(&bytes[6..]);
    overwrite(bytes, 2, &crc.to_be_bytes());
}
