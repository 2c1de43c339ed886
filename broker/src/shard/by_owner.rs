//! Parts of one request, sorted by the shard that owns them.
//!
//! Holds: the parts of each owner and where in the request they stood. Never touches: what a part is.

use corelog_reactor::ShardId;
use smallvec::SmallVec;

/// Parts of a request for one owner. A request for a single partition, which is what many small producers send, allocates
/// nothing for it.
pub type Parts<T> = SmallVec<[T; 1]>;

/// Parts by owner, each with its position in the request.
#[derive(Debug)]
pub struct ByOwner<T> {
    groups: Parts<OwnedParts<T>>,
    /// Parts that are expected for an owner.
    expected: usize,
}

/// The parts of one owner.
#[derive(Debug)]
pub struct OwnedParts<T> {
    /// The owner.
    pub owner: ShardId,
    /// Where in the request each part stood.
    pub positions: Parts<usize>,
    /// The parts, in the request's order.
    pub parts: Parts<T>,
}

impl<T> ByOwner<T> {
    /// No parts yet; `expected` are to come, for `shards` shards.
    pub fn new(shards: usize, expected: usize) -> ByOwner<T> {
        // An even share and a half: one allocation as a rule where there are many parts.
        ByOwner { groups: Parts::new(), expected: expected.div_ceil(shards.max(1)).saturating_mul(3) / 2 }
    }

    /// Adds the part at `position` of the request.
    pub fn push(&mut self, owner: ShardId, position: usize, part: T) {
        // As many groups as there are owners at most: few.
        let found = self.groups.iter().position(|group| group.owner == owner);
        let index = found.unwrap_or_else(|| {
            let (positions, parts) = (Parts::with_capacity(self.expected), Parts::with_capacity(self.expected));
            self.groups.push(OwnedParts { owner, positions, parts });
            self.groups.len() - 1
        });
        if let Some(group) = self.groups.get_mut(index) {
            group.positions.push(position);
            group.parts.push(part);
        }
    }

    /// Whether there are no parts.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// The owners that have parts.
    pub fn groups(self) -> impl Iterator<Item = OwnedParts<T>> {
        self.groups.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_keep_their_order_within_an_owner_and_know_where_they_stood() {
        let mut parts = ByOwner::new(3, 3);
        for (position, owner) in [2, 0, 2].into_iter().enumerate() {
            parts.push(ShardId(owner), position, position * 10);
        }
        let groups: Vec<_> =
            parts.groups().map(|group| (group.owner.0, group.positions.to_vec(), group.parts.to_vec())).collect();
        assert_eq!(groups, [(2, vec![0, 2], vec![0, 20]), (0, vec![1], vec![10])]);
    }
}
