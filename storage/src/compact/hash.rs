//! SipHash-2-4 with 128 bits of output: what stands for a key in the key map.
//!
//! Holds: the hash. Never touches: a random source; the caller brings the secret.
//!
//! A collision of two keys makes one record delete another, so 64 bits are too few, and it must not be possible to make
//! one up: hence a keyed hash, where Kafka takes MD5.

/// The secret that one map's hashes depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashSecret(pub [u64; 2]);

/// Four words of state.
struct Sip([u64; 4]);

impl Sip {
    fn round(&mut self) {
        let [mut v0, mut v1, mut v2, mut v3] = self.0;
        v0 = v0.wrapping_add(v1);
        v1 = v1.rotate_left(13) ^ v0;
        v0 = v0.rotate_left(32);
        v2 = v2.wrapping_add(v3);
        v3 = v3.rotate_left(16) ^ v2;
        v0 = v0.wrapping_add(v3);
        v3 = v3.rotate_left(21) ^ v0;
        v2 = v2.wrapping_add(v1);
        v1 = v1.rotate_left(17) ^ v2;
        v2 = v2.rotate_left(32);
        self.0 = [v0, v1, v2, v3];
    }

    fn word(&mut self, word: u64) {
        self.0[3] ^= word;
        self.round();
        self.round();
        self.0[0] ^= word;
    }

    fn finish(&mut self) -> u64 {
        for _ in 0..4 {
            self.round();
        }
        self.0.iter().fold(0, |sum, word| sum ^ word)
    }
}

/// The 128-bit hash of `bytes`.
#[must_use]
pub fn hash(secret: HashSecret, bytes: &[u8]) -> [u64; 2] {
    let [k0, k1] = secret.0;
    let mut sip = Sip([
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d ^ 0xee,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ]);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        sip.word(u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    for (slot, byte) in last.iter_mut().zip(rest) {
        *slot = *byte;
    }
    last[7] = bytes.len() as u8;
    sip.word(u64::from_le_bytes(last));
    sip.0[2] ^= 0xee;
    let low = sip.finish();
    sip.0[1] ^= 0xdd;
    [low, sip.finish()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_the_reference_vectors() {
        let secret = HashSecret([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);
        let input: Vec<u8> = (0..64).collect();
        for (bytes, expected) in [
            (0, [0xa3_u8, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02, 0x93]),
            (1, [0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44, 0x34, 0x76, 0x59, 0x11, 0x9b, 0x22, 0xfc, 0x45]),
            (2, [0x81, 0x77, 0x22, 0x8d, 0xa4, 0xa4, 0x5d, 0xc7, 0xfc, 0xa3, 0x8b, 0xde, 0xf6, 0x0a, 0xff, 0xe4]),
        ] {
            let [low, high] = hash(secret, &input[..bytes]);
            assert_eq!([low.to_le_bytes(), high.to_le_bytes()].concat(), expected, "{bytes} bytes");
        }
    }

    #[test]
    fn another_secret_gives_another_hash() {
        assert_ne!(hash(HashSecret([1, 2]), b"key"), hash(HashSecret([1, 3]), b"key"));
    }
}
