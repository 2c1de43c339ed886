//! The index of aborted transactions at a start: taken up from its files, where the recovery point vouches for them, and else
//! from the batches.
//!
//! Holds: what of a file counts, what is read anew, the repairs. Never touches: the batches' own place and soundness
//! (`recover`), how a file is written (`txn_index`).
//!
//! | the segment's file | its entries below the recovery point | those behind it |
//! |---|---|---|
//! | is sound up to there | from the file | from the batches; the file is cut there |
//! | is not | from the batches, all of them; the file is made anew | the same |
//! | is missing | there are none, but for what recovery reads anyway | from the batches |
//!
//! An entry has no checksum. What tells a damaged one is what Kafka's sanity check looks at, and that last offsets rise.

use super::error::OpenError;
use super::names::TXN_INDEX;
use super::recover::{Recovery, failed};
use super::replay::{Part, Replay, ReplayError};
use super::state::Segment;
use super::txn_index::{Looked, cut, look, position_of, replace};
use crate::ids::Offset;
use crate::segment::txn_index::{AbortedTxn, TxnIndex};

/// What is to be done to a file before the log is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TxnRepair {
    /// It ends behind so many entries.
    Cut(u64),
    /// What is in memory takes its place.
    Replace,
}

impl Recovery<'_> {
    /// The index of a segment that was looked at. The recovery point vouches for it up to `vouched`; `read` are the
    /// transactions that its batches have told of, from the place on where recovery began to replay.
    pub(super) async fn take_up_aborted(
        &mut self,
        part: Part,
        vouched: Offset,
        read: Vec<AbortedTxn>,
    ) -> Result<Option<Box<TxnIndex>>, OpenError> {
        self.parts.push(part);
        let base = part.base;
        let looked = if self.txn_indexes.binary_search(&base).is_ok() {
            let looked = look(self.env.reactor(), self.folder, base, vouched).await;
            looked.map_err(failed(&self.path(base, TXN_INDEX), "read it"))?
        } else {
            Looked::Missing
        };
        let (filed, filed_to, pending) = match looked {
            Looked::Missing => (0, None, read),
            Looked::Sound { kept, kept_to, bytes } => {
                // Of a sealed segment that the recovery point has passed nothing is cut and added to again.
                if vouched < part.end || part.is_last || kept == 0 || position_of(kept) != bytes {
                    self.txn_repairs.push((base, TxnRepair::Cut(kept)));
                }
                (kept, kept_to, read.into_iter().filter(|entry| entry.last_offset >= vouched).collect())
            }
            Looked::Malformed => {
                self.txn_repairs.push((base, TxnRepair::Replace));
                (0, None, if self.replay_from <= base { read } else { self.read_aborted(base).await? })
            }
        };
        Ok(TxnIndex::new(filed, filed_to, pending))
    }

    /// All aborted transactions whose markers are in the segment at `base`, from its batches, and those of older segments that
    /// tell where the transactions began. Damage in these hides some, as it hides their records.
    async fn read_aborted(&self, base: Offset) -> Result<Vec<AbortedTxn>, OpenError> {
        let mut producers = self.producers.clone();
        let mut found = Vec::new();
        let replay = Replay {
            env: self.env,
            folder: self.folder,
            parts: &self.parts,
            snapshots: &self.snapshots,
            holes_below: self.holes_below,
            goes_over_damage: true,
        };
        let each = |segment, aborted| {
            if segment == base {
                found.push(aborted);
            }
        };
        let path = self.path(base, TXN_INDEX);
        match replay.run(&mut producers, base, each).await {
            Ok(()) | Err(ReplayError::Damaged { .. }) => Ok(found),
            Err(ReplayError::Io(error)) => Err(failed(&path, "read the batches for it")(error)),
        }
    }

    /// Makes the files say what was taken up. Returns whether the folder must be synced.
    pub(super) async fn repair_txn_indexes<'s>(
        &self,
        mut segments: impl Iterator<Item = &'s mut Segment>,
    ) -> Result<bool, OpenError> {
        let reactor = self.env.reactor();
        let mut is_changed = false;
        for (base, repair) in &self.txn_repairs {
            let path = self.path(*base, TXN_INDEX);
            match repair {
                TxnRepair::Cut(kept) => {
                    cut(reactor, self.folder, *base, *kept).await.map_err(failed(&path, "cut it"))?;
                }
                TxnRepair::Replace => {
                    let segment = segments.find(|segment| segment.base == *base);
                    let index = segment.and_then(|segment| segment.aborted.as_deref_mut());
                    let entries = index.as_ref().map_or(&[][..], |index| index.pending());
                    replace(reactor, self.folder, *base, entries).await.map_err(failed(&path, "write it anew"))?;
                    tracing::warn!(
                        path = %path.display(),
                        entries = entries.len(),
                        "the index of aborted transactions was damaged: it was read from the log's batches and written anew"
                    );
                    let count = entries.len();
                    if let Some(index) = index {
                        index.filed_more(count);
                    }
                    is_changed = true;
                }
            }
        }
        Ok(is_changed)
    }
}
