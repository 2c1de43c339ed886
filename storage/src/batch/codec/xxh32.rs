//! XXH32 with seed 0, which LZ4 frames use for their checksums (xxHash specification 0.1.1).
//!
//! Holds: the hash, whole or in parts. Never touches: anything else.

const PRIME_1: u32 = 0x9E37_79B1;
const PRIME_2: u32 = 0x85EB_CA77;
const PRIME_3: u32 = 0xC2B2_AE3D;
const PRIME_4: u32 = 0x27D4_EB2F;
const PRIME_5: u32 = 0x1656_67B1;
const STRIPE_BYTES: usize = 16;

/// A hash of bytes that come in parts.
#[derive(Clone, Debug)]
pub(super) struct Xxh32 {
    lanes: [u32; 4],
    partial: [u8; STRIPE_BYTES],
    partial_bytes: usize,
    total_bytes: u64,
}

impl Xxh32 {
    pub(super) const fn new() -> Self {
        Self {
            lanes: [PRIME_1.wrapping_add(PRIME_2), PRIME_2, 0, 0_u32.wrapping_sub(PRIME_1)],
            partial: [0; STRIPE_BYTES],
            partial_bytes: 0,
            total_bytes: 0,
        }
    }

    pub(super) fn update(&mut self, mut bytes: &[u8]) {
        self.total_bytes += bytes.len() as u64;
        if self.partial_bytes > 0 {
            let wanted = (STRIPE_BYTES - self.partial_bytes).min(bytes.len());
            let (head, rest) = bytes.split_at(wanted);
            if let Some(slot) = self.partial.get_mut(self.partial_bytes..self.partial_bytes + wanted) {
                slot.copy_from_slice(head);
            }
            self.partial_bytes += wanted;
            bytes = rest;
            if self.partial_bytes < STRIPE_BYTES {
                return;
            }
            let stripe = self.partial;
            self.stripe(&stripe);
            self.partial_bytes = 0;
        }
        let (stripes, rest) = bytes.as_chunks::<STRIPE_BYTES>();
        for stripe in stripes {
            self.stripe(stripe);
        }
        if let Some(slot) = self.partial.get_mut(..rest.len()) {
            slot.copy_from_slice(rest);
        }
        self.partial_bytes = rest.len();
    }

    pub(super) fn finish(&self) -> u32 {
        let mut hash = if self.total_bytes >= STRIPE_BYTES as u64 {
            let [a, b, c, d] = self.lanes;
            a.rotate_left(1)
                .wrapping_add(b.rotate_left(7))
                .wrapping_add(c.rotate_left(12))
                .wrapping_add(d.rotate_left(18))
        } else {
            PRIME_5
        };
        // The format adds the length modulo 2^32.
        hash = hash.wrapping_add(self.total_bytes as u32);
        let rest = self.partial.get(..self.partial_bytes).unwrap_or_default();
        let (words, bytes) = rest.as_chunks::<4>();
        for word in words {
            hash = hash.wrapping_add(u32::from_le_bytes(*word).wrapping_mul(PRIME_3));
            hash = hash.rotate_left(17).wrapping_mul(PRIME_4);
        }
        for &byte in bytes {
            hash = hash.wrapping_add(u32::from(byte).wrapping_mul(PRIME_5));
            hash = hash.rotate_left(11).wrapping_mul(PRIME_1);
        }
        hash = (hash ^ (hash >> 15)).wrapping_mul(PRIME_2);
        hash = (hash ^ (hash >> 13)).wrapping_mul(PRIME_3);
        hash ^ (hash >> 16)
    }

    #[inline]
    fn stripe(&mut self, stripe: &[u8; STRIPE_BYTES]) {
        let (words, _) = stripe.as_chunks::<4>();
        for (lane, word) in self.lanes.iter_mut().zip(words) {
            let mixed = lane.wrapping_add(u32::from_le_bytes(*word).wrapping_mul(PRIME_2));
            *lane = mixed.rotate_left(13).wrapping_mul(PRIME_1);
        }
    }
}

/// The hash of `bytes`.
pub(super) fn xxh32(bytes: &[u8]) -> u32 {
    let mut hash = Xxh32::new();
    hash.update(bytes);
    hash.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_hashes_come_out() {
        assert_eq!(xxh32(b""), 0x02CC_5D05);
        assert_eq!(xxh32(b"a"), 0x550D_7456);
        assert_eq!(xxh32(b"abc"), 0x32D1_53FF);
        assert_eq!(xxh32(b"Nobody inspects the spammish repetition"), 0xE229_3B2F);
    }

    #[test]
    fn parts_hash_like_the_whole() {
        let bytes: Vec<u8> = (0..200_u8).collect();
        for cut in 0..bytes.len() {
            let (head, tail) = bytes.split_at(cut);
            let mut hash = Xxh32::new();
            hash.update(head);
            hash.update(tail);
            assert_eq!(hash.finish(), xxh32(&bytes), "cut at {cut}");
        }
    }
}
