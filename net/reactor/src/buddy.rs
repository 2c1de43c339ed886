//! Which blocks of a region are free: a buddy allocator over page numbers.
//!
//! Holds: one bitmap of free blocks for each block size. Never touches: the memory itself.
//!
//! Order `k` is a block of `2^k` pages at a multiple of `2^k`. Taking splits the lowest large enough block, giving
//! back joins a block with its free neighbour, so that pages near the start are used most and stay warm.

/// A bitmap with a summary: one bit for each of its words that is not zero.
struct Bitmap {
    words: Vec<u64>,
    summary: Vec<u64>,
}

impl Bitmap {
    fn new(bits: usize) -> Bitmap {
        let words = bits.div_ceil(64);
        Bitmap { words: vec![0; words], summary: vec![0; words.div_ceil(64)] }
    }

    fn set(&mut self, bit: usize) {
        if let (Some(word), Some(sum)) = (self.words.get_mut(bit / 64), self.summary.get_mut(bit / 4096)) {
            *word |= 1 << (bit % 64);
            *sum |= 1 << (bit / 64 % 64);
        }
    }

    /// Clears the bit; whether it was set.
    fn take(&mut self, bit: usize) -> bool {
        let Some(word) = self.words.get_mut(bit / 64) else {
            return false;
        };
        let was = *word & (1 << (bit % 64)) != 0;
        *word &= !(1 << (bit % 64));
        if *word == 0
            && let Some(sum) = self.summary.get_mut(bit / 4096)
        {
            *sum &= !(1 << (bit / 64 % 64));
        }
        was
    }

    fn first(&self) -> Option<usize> {
        let (group, sum) = self.summary.iter().enumerate().find(|(_, sum)| **sum != 0)?;
        let word_index = group * 64 + sum.trailing_zeros() as usize;
        let word = self.words.get(word_index)?;
        Some(word_index * 64 + word.trailing_zeros() as usize)
    }
}

pub(crate) struct Buddy {
    orders: Vec<Bitmap>,
    pages: usize,
}

impl Buddy {
    /// `pages` pages, all free.
    pub fn new(pages: usize) -> Buddy {
        assert!(pages > 0, "pages {pages}");
        let orders_count = pages.ilog2() as usize + 1;
        let mut buddy = Buddy { orders: (0..orders_count).map(|k| Bitmap::new(pages >> k)).collect(), pages };
        let mut page = 0;
        while page < pages {
            // The largest block that begins here: limited by alignment and by what is left.
            let aligned = if page == 0 { orders_count - 1 } else { page.trailing_zeros() as usize };
            let order = aligned.min((pages - page).ilog2() as usize);
            buddy.mark_free(page, order);
            page += 1 << order;
        }
        buddy
    }

    /// The smallest order of at least `pages` pages.
    pub fn order_for(pages: usize) -> usize {
        pages.max(1).next_power_of_two().ilog2() as usize
    }

    fn mark_free(&mut self, page: usize, order: usize) {
        if let Some(bitmap) = self.orders.get_mut(order) {
            bitmap.set(page >> order);
        }
    }

    fn take_free(&mut self, page: usize, order: usize) -> bool {
        self.orders.get_mut(order).is_some_and(|bitmap| bitmap.take(page >> order))
    }

    /// A free block's first page, or None when no block of that size is left.
    pub fn take(&mut self, order: usize) -> Option<usize> {
        let found = (order..self.orders.len())
            .find_map(|k| self.orders.get(k).and_then(Bitmap::first).map(|block| (block << k, k)));
        let (page, mut k) = found?;
        let was_free = self.take_free(page, k);
        assert!(was_free, "page {page} order {k} was not free");
        while k > order {
            k -= 1;
            self.mark_free(page + (1 << k), k);
        }
        Some(page)
    }

    /// Gives a block back.
    pub fn give(&mut self, mut page: usize, mut order: usize) {
        assert!(page + (1 << order) <= self.pages, "block {page}+2^{order} past {}", self.pages);
        while order + 1 < self.orders.len() {
            let neighbour = page ^ (1 << order);
            if neighbour + (1 << order) > self.pages || !self.take_free(neighbour, order) {
                break;
            }
            page = page.min(neighbour);
            order += 1;
        }
        self.mark_free(page, order);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn blocks_never_overlap_and_all_space_comes_back(
            pages in 1usize..700,
            steps in prop::collection::vec((0usize..6, any::<bool>(), any::<prop::sample::Index>()), 1..200),
        ) {
            let mut buddy = Buddy::new(pages);
            let mut used = vec![false; pages];
            let mut held: Vec<(usize, usize)> = Vec::new();
            for (order, give, which) in steps {
                if give && !held.is_empty() {
                    let (page, order) = held.swap_remove(which.index(held.len()));
                    used[page..page + (1 << order)].fill(false);
                    buddy.give(page, order);
                } else if let Some(page) = buddy.take(order) {
                    prop_assert_eq!(page % (1 << order), 0);
                    prop_assert!(used[page..page + (1 << order)].iter().all(|u| !u));
                    used[page..page + (1 << order)].fill(true);
                    held.push((page, order));
                }
            }
            for (page, order) in held {
                buddy.give(page, order);
            }
            let largest = pages.ilog2() as usize;
            prop_assert!(buddy.take(largest).is_some(), "the space must have joined up again");
        }
    }

    #[test]
    fn the_lowest_block_is_taken_first() {
        let mut buddy = Buddy::new(64);
        assert_eq!((buddy.take(0), buddy.take(0), buddy.take(1)), (Some(0), Some(1), Some(2)));
        buddy.give(0, 0);
        assert_eq!(buddy.take(0), Some(0));
    }
}
