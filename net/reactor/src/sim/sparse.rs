//! File contents in memory: pages that were written, zeroes elsewhere.
//!
//! Holds: length and pages of one version of one file. Never touches: durability (see `fs.rs`).

use std::collections::BTreeMap;

const PAGE: u64 = 4096;

#[derive(Clone, Default)]
pub(super) struct Sparse {
    len: u64,
    pages: BTreeMap<u64, Box<[u8]>>,
}

impl Sparse {
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Reads at `offset`; how many bytes there were.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> usize {
        let there = self.len.saturating_sub(offset).min(into.len() as u64) as usize;
        let Some(into) = into.get_mut(..there) else { return 0 };
        self.copy_out(offset, into);
        there
    }

    /// Copies without regard to the length: zeroes where nothing is.
    pub fn copy_out(&self, offset: u64, into: &mut [u8]) {
        each_page(offset, into.len(), |page, in_page, range| {
            let Some(to) = into.get_mut(range.clone()) else { return };
            match self.pages.get(&page).and_then(|bytes| bytes.get(in_page..in_page + range.len())) {
                Some(from) => to.copy_from_slice(from),
                None => to.fill(0),
            }
        });
    }

    /// Writes at `offset`; the length grows if needed.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        self.len = self.len.max(offset + data.len() as u64);
        each_page(offset, data.len(), |page, in_page, range| {
            let bytes = self.pages.entry(page).or_insert_with(|| vec![0; PAGE as usize].into());
            let to = bytes.get_mut(in_page..in_page + range.len());
            if let (Some(to), Some(from)) = (to, data.get(range)) {
                to.copy_from_slice(from);
            }
        });
    }

    /// Sets the length; what is cut off reads as zeroes if the file grows again.
    pub fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.pages.split_off(&len.div_ceil(PAGE));
            if let Some(last) = self.pages.get_mut(&(len / PAGE))
                && let Some(cut) = last.get_mut((len % PAGE) as usize..)
            {
                cut.fill(0);
            }
        }
        self.len = len;
    }

    /// Grows the length to at least `len`.
    pub fn grow(&mut self, len: u64) {
        self.len = self.len.max(len);
    }

    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len as usize];
        self.copy_out(0, &mut bytes);
        bytes
    }
}

/// Calls with page, offset in the page, and range of the `len` bytes.
fn each_page(offset: u64, len: usize, mut f: impl FnMut(u64, usize, std::ops::Range<usize>)) {
    let mut done = 0;
    while done < len {
        let at = offset + done as u64;
        let in_page = (at % PAGE) as usize;
        let n = (PAGE as usize - in_page).min(len - done);
        f(at / PAGE, in_page, done..done + n);
        done += n;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_cut_off_reads_as_zeroes_after_growing_again() {
        let mut file = Sparse::default();
        file.write(4090, &[7; 20]);
        assert_eq!(file.len(), 4110);
        file.set_len(4092);
        file.set_len(5000);
        let bytes = file.to_vec();
        assert_eq!(bytes[4090..4096], [7, 7, 0, 0, 0, 0]);
        assert!(bytes[4096..].iter().all(|b| *b == 0));
        let mut tail = [9; 10];
        assert_eq!(file.read(4995, &mut tail), 5);
        assert_eq!(file.read(5000, &mut tail), 0);
    }
}
