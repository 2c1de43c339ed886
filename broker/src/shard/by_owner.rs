//! Parts of one request, sorted by the shard that owns them.
//!
//! Holds: the parts of each owner and where in the request they stood. Never touches: what a part is.

use corelog_reactor::ShardId;

/// Parts by owner, each with its position in the request.
#[derive(Debug)]
pub struct ByOwner<T> {
    groups: Vec<OwnedParts<T>>,
}

/// The parts of one owner.
#[derive(Debug)]
pub struct OwnedParts<T> {
    /// The owner.
    pub owner: ShardId,
    /// Where in the request each part stood.
    pub positions: Vec<usize>,
    /// The parts, in the request's order.
    pub parts: Vec<T>,
}

impl<T> ByOwner<T> {
    /// No parts, for a broker of `shards` shards.
    pub fn new(shards: usize) -> ByOwner<T> {
        let owners = (0..shards).map(|number| ShardId(number as u16));
        ByOwner { groups: owners.map(|owner| OwnedParts { owner, positions: Vec::new(), parts: Vec::new() }).collect() }
    }

    /// Adds the part at `position` of the request.
    pub fn push(&mut self, owner: ShardId, position: usize, part: T) {
        let group = &mut self.groups[usize::from(owner.0)];
        group.positions.push(position);
        group.parts.push(part);
    }

    /// Whether there are no parts.
    pub fn is_empty(&self) -> bool {
        self.groups.iter().all(|group| group.parts.is_empty())
    }

    /// The owners that have parts.
    pub fn groups(self) -> impl Iterator<Item = OwnedParts<T>> {
        self.groups.into_iter().filter(|group| !group.parts.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_keep_their_order_within_an_owner_and_know_where_they_stood() {
        let mut parts = ByOwner::new(3);
        for (position, owner) in [2, 0, 2].into_iter().enumerate() {
            parts.push(ShardId(owner), position, position * 10);
        }
        let groups: Vec<_> = parts.groups().map(|group| (group.owner.0, group.positions, group.parts)).collect();
        assert_eq!(groups, [(0, vec![1], vec![10]), (2, vec![0, 2], vec![0, 20])]);
    }
}
