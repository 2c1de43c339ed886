//! What a crash leaves, and what is damage: by the sequences of the writes that hold, over the files of a shard.
//!
//! Holds: the judgement. Never touches: files.
//!
//! Four writes may be in flight. Later ones may be whole and an earlier one torn; then none of them has been acknowledged
//! by the commit log, as writes are acknowledged in their order. A fifth one is begun only when the first is durable. So
//! a write n does not hold
//! - because a crash tore it, if no write behind n + 3 holds;
//! - because it was DAMAGED since, if one does: n was durable once, and acknowledged.
//!
//! A write tells which was the first in its file, and which file came before: its own first write goes on where that one
//! ended. So what is missing at a file's front or end is known, too, as long as the next file is as it was.
//!
//! ```text
//!   file 3   first 7   [ 7 ][ 8 ] ~ ~       9 and 10 are missing: file 4 begins with 11
//!   file 4   first 11, follows 3   [ 11 ] ~ ~ [ 14 ]
//!                                           14 holds: 10 was durable. So was 9
//! ```

use super::read_file::FileFound;
use super::writer::WRITES_MAX;

/// A file and what is known of the others.
pub(super) struct Candidate<'f> {
    /// Which shard's: the sequences of one have nothing to do with those of another.
    pub(super) shard: &'f str,
    pub(super) number: u64,
    pub(super) found: &'f FileFound,
    /// Up to this sequence an earlier start has proved the file's writes to have been durable.
    pub(super) proved: Option<u64>,
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Damaged {
    /// Every write of the file up to this one was durable.
    pub(super) proved: u64,
    /// The first of these that does not hold; `None` if all do that are known of, and only the header is damaged.
    pub(super) missing: Option<u64>,
}

/// Judges each of the files.
pub(super) fn judge(files: &[Candidate<'_>]) -> Vec<Option<Damaged>> {
    files.iter().map(|file| judge_one(file, files)).collect()
}

/// The file that was written to next, if it is there: what it says of `file` holds while that was not used again.
fn next_of<'a, 'f>(file: &Candidate<'_>, files: &'a [Candidate<'f>]) -> Option<(&'a Candidate<'f>, u64)> {
    let generation = file.found.in_use.map(|of| of.generation).or(file.found.header.ok());
    let mut followers = files.iter().filter(|next| next.shard == file.shard).filter_map(|next| {
        let of = next.found.in_use?;
        let is_next = of.follows == file.number + 1 && generation.is_none_or(|generation| generation < of.first);
        is_next.then_some((next, of.first))
    });
    followers.next()
}

fn judge_one(file: &Candidate<'_>, files: &[Candidate<'_>]) -> Option<Damaged> {
    let found = file.found;
    let next = next_of(file, files);
    // The newest write that holds in this file or one after it.
    let mut newest = found.last();
    let mut at = next;
    for _ in files {
        let Some((follower, _)) = at else { break };
        newest = newest.max(follower.found.last());
        at = next_of(follower, files);
    }
    let end = next.map(|(_, first)| first - 1).or(found.last());
    let durable = newest.map(|newest| newest.saturating_sub(WRITES_MAX as u64));
    let proved = end.zip(durable).map(|(end, durable)| end.min(durable)).max(file.proved);
    let missing = proved.and_then(|proved| first_missing(found, proved, end));
    let has_header = found.header.is_ok() || (found.in_use.is_none() && next.is_none() && is_unused(found));
    (missing.is_some() || !has_header || file.proved.is_some())
        .then(|| Damaged { proved: proved.unwrap_or(0), missing })
}

fn is_unused(found: &FileFound) -> bool {
    found.header == Err(super::format::HeaderFault::Unused)
}

/// The first of the file's writes up to `last` that does not hold.
fn first_missing(found: &FileFound, last: u64, end: Option<u64>) -> Option<u64> {
    // Of a file in which none holds the last one is known at best.
    let Some(of) = found.in_use else { return (end == Some(last)).then_some(last) };
    let mut expected = of.first;
    for (from, to) in &found.runs {
        if *from > expected {
            break;
        }
        expected = to + 1;
    }
    (expected <= last).then_some(expected)
}
