//! Opening damaged folders: what the fuzzer found, and what it must be able to find.
//!
//! The folders are the fuzz target's: `recovery::image`.

#[path = "../fuzz/checks/recovery/mod.rs"]
#[allow(dead_code, reason = "the fuzz target uses all of it")]
mod recovery;

use corelog_storage::ids::Offset;
use recovery::image::{Files, Image, all, checkpoint_of};
use recovery::{Found, check};

const FIRST_LOG: &str = "orders-0/00000000000000000000.log";
const SECOND_LOG: &str = "orders-0/00000000000000000019.log";
const SECOND_INDEX: &str = "orders-0/00000000000000000019.index";

fn crashed() -> Image {
    all().swap_remove(0)
}

/// With an active segment of several blocks, and the recovery point in the last one.
fn large() -> Image {
    all().pop().unwrap()
}

fn file<'f>(files: &'f mut Files, path: &str) -> &'f mut Vec<u8> {
    files.get_mut(path).unwrap_or_else(|| panic!("no {path}"))
}

fn offsets(image: &Image) -> Vec<(i64, i64)> {
    image.batches.iter().map(|known| (known.base.0, known.last.0)).collect()
}

/// Checks an image whose files `damage` has changed, and returns what was found.
fn opened(image: &Image, damage: impl FnOnce(&mut Files)) -> Option<Found> {
    let mut files = image.files.clone();
    damage(&mut files);
    assert_ne!(files, image.files);
    check(image, &files, true)
}

#[test]
fn the_folders_to_damage_have_sealed_segments_and_recovery_points_at_and_within_the_active_one() {
    let images = all();
    let crashed = &images[0];
    assert_eq!(crashed.files.keys().filter(|path| path.ends_with(".log")).count(), 3);
    assert_eq!((crashed.recovery, crashed.log_end), (Offset(36), Offset(43)));
    let [within, closed, deleted, empty, large] = &images[1..] else { panic!("{} images", images.len()) };
    assert_eq!((within.recovery, within.log_end), (Offset(42), Offset(43)));
    assert_eq!((closed.recovery, closed.log_end), (Offset(43), Offset(43)));
    assert_eq!((deleted.log_start, deleted.log_end), (Offset(13), Offset(43)));
    assert_eq!((empty.log_start, empty.log_end), (Offset(0), Offset(0)));
    let position = checkpoint_of(&large.files).unwrap().recovery.position;
    assert!(position > 2 * 4096 && large.recovery < large.log_end, "{position}");
    for image in &images {
        let found = check(image, &image.files, true).unwrap();
        let expected: Vec<_> = offsets(image).into_iter().filter(|(_, last)| *last >= image.log_start.0).collect();
        assert_eq!(found.offsets(), expected);
    }
}

#[test]
fn sound_batches_before_a_damaged_one_are_read_though_one_read_would_reach_both() {
    let image = crashed();
    // The third batch of a sealed segment, of which recovery looks at the last ones only.
    let at = image.batches.iter().find(|known| known.base == Offset(24)).unwrap();
    let magic = at.end_position - at.bytes.len() + 16;
    let found = opened(&image, |files| file(files, SECOND_LOG)[magic] = 0xff).unwrap();
    assert_eq!(found.status.fenced, None);
    let read = found.offsets();
    assert!(read.contains(&(19, 20)) && read.contains(&(21, 23)) && !read.contains(&(24, 24)), "{read:?}");
}

#[test]
fn an_index_that_points_into_the_middle_of_batches_hides_none_of_them() {
    let image = crashed();
    for entry in 0..4 {
        let found = opened(&image, |files| file(files, SECOND_INDEX)[entry * 8 + 7] ^= 1).unwrap();
        assert_eq!(found.offsets(), offsets(&image), "entry {entry}");
    }
}

#[test]
fn a_wrong_index_of_the_active_segment_neither_fences_the_log_nor_hides_a_batch() {
    let image = large();
    let index = "orders-0/00000000000000000000.index";
    let entries = image.files[index].len() / 8;
    assert!(entries > 30, "{entries}");
    for entry in 0..entries {
        let found = opened(&image, |files| file(files, index)[entry * 8 + 7] ^= 1).unwrap();
        assert_eq!((found.status.fenced.clone(), found.offsets()), (None, offsets(&image)), "entry {entry}");
    }
}

#[test]
fn batches_that_claim_more_offsets_than_a_segment_reaches_do_not_stop_recovery_with_a_panic() {
    let image = all().swap_remove(4);
    let found = opened(&image, |files| {
        forge(files, FIRST_LOG, 0, 0, i32::MAX);
        let position = files[FIRST_LOG].len();
        forge(files, FIRST_LOG, position, i64::from(i32::MAX) + 1, i32::MAX);
    });
    assert_eq!(found.unwrap().status.log_end, Offset(2 * (i64::from(i32::MAX) + 1)));
}

/// Rewrites what the checkpoint says, its checksum included.
fn truncating(files: &mut Files, to: i64) {
    use corelog_storage::disk::checkpoint::CheckpointSet;
    let bytes = file(files, "log-checkpoint.0");
    let mut set = CheckpointSet::decode(bytes).unwrap();
    let key = recovery::image::key();
    let mut entry = set.remove(&key).unwrap();
    entry.truncate_to = Some(Offset(to));
    set.set(key, entry);
    *bytes = set.encode();
}

#[test]
fn an_interrupted_truncation_is_completed() {
    let image = crashed();
    let found = opened(&image, |files| truncating(files, 40)).unwrap();
    assert_eq!((found.status.fenced, found.status.log_end), (None, Offset(39)));
}

#[test]
fn a_truncation_that_would_cut_below_the_recovery_point_is_refused() {
    let image = crashed();
    assert_eq!(opened(&image, |files| truncating(files, 35)), None);
}

#[test]
fn a_truncation_under_way_does_not_hide_that_a_segment_before_it_is_missing() {
    let image = crashed();
    let found = opened(&image, |files| {
        truncating(files, 36);
        files.remove(SECOND_LOG);
        // A sound batch that claims everything up to the truncation.
        forge(files, FIRST_LOG, 1960, 19, 20);
    });
    assert!(found.unwrap().status.fenced.is_some());
}

#[test]
fn a_truncation_under_way_does_not_hide_a_batch_too_many_in_a_sealed_segment() {
    let image = crashed();
    let found = opened(&image, |files| {
        truncating(files, 60);
        forge(files, FIRST_LOG, 1960, 19, 45);
    });
    assert!(found.unwrap().status.fenced.is_some());
}

/// Puts a sound batch of the offsets `base..=base + delta` at `position`.
fn forge(files: &mut Files, path: &str, position: usize, base: i64, delta: i32) {
    let mut batch = recovery::image::batch(1, 0);
    batch[..8].copy_from_slice(&base.to_be_bytes());
    batch[12..16].copy_from_slice(&1_i32.to_be_bytes());
    batch[23..27].copy_from_slice(&delta.to_be_bytes());
    let crc = corelog_storage::batch::crc_of(&batch);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    let log = file(files, path);
    log.truncate(position);
    log.extend_from_slice(&batch);
}
