//! The codecs: what others write, what we write, corrupt data, bombs, slices.

mod batch_common;

use batch_common::*;
use corelog_storage::batch::{
    Compression, Compressor, DecompressError, DecompressScratch, Decompression, TargetCodec, decompress_all,
};
use proptest::prelude::*;

// One batch each, as kafka-clients 4.2.0 writes it with the codecs' default levels: three records of producer 4711, epoch 3, from
// sequence 17; see `java_records`.
const JAVA_NONE: &str = "0000000000000000000001dbffffffff023392efd00000000000020000018bcfe568000000018bcfe56805000000000000126700030000001100000003e60400000001d804616971626a72636b73646c74656d75666e76676f776870616971626a72636b73646c74656d75666e76676f776870616971626a72636b73646c74656d75666e76676f776870616971626a72636b73646c74656d75666e76676f776870616971626a72636b73646c74656d75666e76676f776870616971626a72636b73646c74656d75666e76676f776870616971626a72636b73646c74656d75666e76676f776870616971626a72636b73646c74656d75666e76676f776870616971626a72636b73646c74656d75666e76676f776870616971626a72636b73646c74656d75666e76676f776870616971626a72636b73646c74656d75666e76676f776870616971626a72636b73646c74656d75666e76676f776870616971626a72636b73646c74656d75666e76676f776870610020000a02066b6579010402680276026e01c401000404026bb4016870616971626a72636b73646c74656d75666e76676f776870616971626a72636b73646c74656d75666e76676f776870616971626a72636b73646c74656d75666e76676f776870616971626a72636b73646c74656d75666e766700";
const JAVA_GZIP: &str = "000000000000000000000087ffffffff0227c02a3f0001000000020000018bcfe568000000018bcfe568050000000000001267000300000011000000031f8b08000000000000ff7bc6c2c0c0c078832531b33029ab2839bb3825a72435b7342daf2c3dbf3ca36054188b3083020317135b766a25230b53065319531ee31146061616a6ec2d8cb4b399010088643b92aa010000";
const JAVA_SNAPPY: &str = "00000000000000000000009affffffff02f67767570002000000020000018bcfe568000000018bcfe5680500000000000012670003000000110000000382534e4150505900000000010000000100000055aa0378e60400000001d804616971626a72636b73646c74656d75666e76676f776870fe1700fe1700fe1700fe1700521700680020000a02066b6579010402680276026e01c401000404026bb401fe32016632010000";
const JAVA_LZ4: &str = "00000000000000000000008bffffffff025e3a7d720003000000020000018bcfe568000000018bcfe5680500000000000012670003000000110000000304224d186040824b000000ff10e60400000001d804616971626a72636b73646c74656d75666e76676f7768701700ff03ff0c0020000a02066b6579010402680276026e01c401000404026bb40132014350666e76670000000000";
const JAVA_ZSTD: &str = "000000000000000000000084ffffffff02f6748fda0004000000020000018bcfe568000000018bcfe5680500000000000012670003000000110000000328b52ffd00583c0200b403e60400000001d804616971626a72636b73646c74656d75666e76676f7768700020000a02066b6579010402680276026e01c401000404026bb4010002005fcd9ac612aace3c010000";

fn unhex(text: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal");
    (0..text.len()).step_by(2).map(digit).collect()
}

fn java_bytes(count: usize, seed: usize) -> Vec<u8> {
    (0..count).map(|n| ((n * 31 + seed) % 23) as u8 + b'a').collect()
}

fn java_records() -> Vec<Owned> {
    let mut second = Owned::new(1_700_000_000_005, Some(b"key"), None);
    second.headers = vec![(b"h".to_vec(), Some(b"v".to_vec())), (b"n".to_vec(), None)];
    vec![
        Owned::new(1_700_000_000_000, None, Some(&java_bytes(300, 0))),
        second,
        Owned::new(1_700_000_000_002, Some(b"k"), Some(&java_bytes(90, 7))),
    ]
}

fn compress(target: TargetCodec, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut compressor = Compressor::new(target).expect("a known level");
    for piece in bytes.chunks(1000) {
        compressor.write(piece, &mut out).expect("memory");
    }
    compressor.finish(&mut out).expect("memory");
    out
}

fn decompress(codec: Compression, bytes: &[u8]) -> Result<Vec<u8>, DecompressError> {
    decompress_all(codec, bytes, BOUND, &mut DecompressScratch::new())
}

fn is_corrupt(codec: Compression, bytes: &[u8]) -> bool {
    matches!(decompress(codec, bytes), Err(DecompressError::Corrupt { codec: named, .. }) if named == codec)
}

#[test]
fn batches_of_the_java_client_are_read_with_every_codec() {
    for (codec, text) in CODECS.into_iter().zip([JAVA_NONE, JAVA_GZIP, JAVA_SNAPPY, JAVA_LZ4, JAVA_ZSTD]) {
        let batch = unhex(text);
        let view = view(&batch);
        assert!(view.crc_ok(), "{codec}");
        assert_eq!(view.header.attributes.compression(), Some(codec));
        let records: Vec<_> = records_of(&batch).into_iter().map(|(_, record)| record).collect();
        assert_eq!(records, java_records(), "{codec}");
    }
}

#[test]
fn what_we_build_without_compression_is_what_the_java_client_builds() {
    let batch = build_with(idempotent(Compression::None, 4711, 3, 17), &java_records());
    assert_eq!(batch, unhex(JAVA_NONE));
}

#[test]
fn our_streams_start_as_the_clients_expect() {
    let gzip = compress(TargetCodec::default_of(Compression::Gzip), b"x");
    assert_eq!(gzip[..10], unhex("1f8b08000000000000ff"));
    let snappy = compress(TargetCodec::Snappy, b"x");
    assert_eq!(snappy[..16], unhex("82534e41505059000000000100000001"));
    let lz4 = compress(TargetCodec::Lz4, b"x");
    assert_eq!(lz4[..7], unhex("04224d18604082"), "independent blocks of 64 KiB, header checksum 82");
    assert_eq!(lz4[lz4.len() - 4..], [0; 4], "the end mark");
    let zstd = compress(TargetCodec::default_of(Compression::Zstd), b"x");
    assert_eq!(zstd[..4], unhex("28b52ffd"));
}

#[test]
fn a_bare_snappy_block_is_read_as_librdkafka_and_go_write_it() {
    for bytes in [0, 1, 100, 70_000, 3_000_000] {
        let plain: Vec<u8> = noise(bytes / 2).into_iter().chain(vec![7; bytes / 2]).collect();
        let block = snap::raw::Encoder::new().compress_vec(&plain).expect("compressed");
        assert_eq!(decompress(Compression::Snappy, &block).as_ref(), Ok(&plain), "{bytes} bytes");
    }
}

#[test]
fn snappy_copies_may_reach_back_further_than_64_kib() {
    // A literal of 2 MiB, then a copy of its first 64 bytes with a four-byte offset: no encoder of Google's writes this, Go's do.
    let plain = noise(2 << 20);
    let mut block = Vec::new();
    let mut length = plain.len() + 64;
    while length >= 0x80 {
        block.push(length as u8 | 0x80);
        length >>= 7;
    }
    block.push(length as u8);
    block.push(62 << 2);
    block.extend_from_slice(&((plain.len() - 1) as u32).to_le_bytes()[..3]);
    block.extend_from_slice(&plain);
    block.push(63 << 2 | 3);
    block.extend_from_slice(&(plain.len() as u32).to_le_bytes());
    let expected = [&plain[..], &plain[..64]].concat();
    assert_eq!(decompress(Compression::Snappy, &block), Ok(expected));
}

#[test]
fn xerial_streams_one_after_the_other_are_one_stream() {
    let stream = compress(TargetCodec::Snappy, b"abc");
    assert_eq!(decompress(Compression::Snappy, &[&stream[..], &stream].concat()), Ok(b"abcabc".to_vec()));
}

#[test]
fn gzip_members_and_zstd_frames_one_after_the_other_are_one_stream() {
    for codec in [Compression::Gzip, Compression::Zstd] {
        let stream = compress(TargetCodec::default_of(codec), b"abc");
        assert_eq!(decompress(codec, &[&stream[..], &stream].concat()), Ok(b"abcabc".to_vec()));
    }
}

#[test]
fn gzip_headers_with_all_options_are_skipped() {
    let plain = compress(TargetCodec::default_of(Compression::Gzip), b"abc");
    let mut stream = vec![0x1f, 0x8b, 8, 0b1_1110, 0, 0, 0, 0, 0, 3];
    stream.extend_from_slice(&[2, 0, 9, 9]);
    stream.extend_from_slice(b"name\0comment\0");
    let mut crc = flate2::Crc::new();
    crc.update(&stream);
    stream.extend_from_slice(&(crc.sum() as u16).to_le_bytes());
    stream.extend_from_slice(&plain[10..]);
    assert_eq!(decompress(Compression::Gzip, &stream), Ok(b"abc".to_vec()));
    stream[4] = 1;
    assert!(is_corrupt(Compression::Gzip, &stream), "the header has a checksum");
}

#[test]
fn lz4_frames_with_checksums_and_content_size_are_read_and_verified() {
    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
    use std::io::Write as _;
    let plain = noise(300_000);
    for size in [BlockSize::Max64KB, BlockSize::Max256KB, BlockSize::Max1MB, BlockSize::Max4MB] {
        let info = FrameInfo::new()
            .block_size(size)
            .block_mode(BlockMode::Independent)
            .block_checksums(true)
            .content_checksum(true)
            .content_size(Some(plain.len() as u64));
        let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
        encoder.write_all(&plain).expect("memory");
        let frame = encoder.finish().expect("memory");
        assert_eq!(decompress(Compression::Lz4, &frame).as_ref(), Ok(&plain));

        for (place, name) in [
            (5, "descriptor"),
            (6, "content size"),
            (14, "header checksum"),
            (30, "block"),
            (frame.len() - 1, "content checksum"),
        ] {
            let mut frame = frame.clone();
            frame[place] ^= 1;
            assert!(is_corrupt(Compression::Lz4, &frame), "{name}");
        }
    }
}

#[test]
fn a_wrong_gzip_crc_or_length_is_refused() {
    let stream = compress(TargetCodec::default_of(Compression::Gzip), b"abc");
    for back in 1..=8 {
        let mut stream = stream.clone();
        let at = stream.len() - back;
        stream[at] ^= 1;
        assert!(is_corrupt(Compression::Gzip, &stream), "{back} bytes from the end");
    }
}

#[test]
fn an_lz4_block_larger_than_its_frame_allows_is_refused() {
    let mut frame = compress(TargetCodec::Lz4, b"")[..7].to_vec();
    let block = noise(64 * 1024 + 1);
    frame.extend_from_slice(&(block.len() as u32 | 0x8000_0000).to_le_bytes());
    frame.extend_from_slice(&block);
    frame.extend_from_slice(&[0; 4]);
    assert!(is_corrupt(Compression::Lz4, &frame), "stored");
}

#[test]
fn lz4_frames_of_dependent_blocks_are_refused() {
    use lz4_flex::frame::{BlockMode, FrameEncoder, FrameInfo};
    use std::io::Write as _;
    let mut encoder = FrameEncoder::with_frame_info(FrameInfo::new().block_mode(BlockMode::Linked), Vec::new());
    encoder.write_all(b"abc").expect("memory");
    assert!(is_corrupt(Compression::Lz4, &encoder.finish().expect("memory")));
}

#[test]
fn lz4_frames_in_foreign_hands_can_be_read_back() {
    use std::io::Read as _;
    let plain = [noise(100_000), vec![1; 200_000]].concat();
    let frame = compress(TargetCodec::Lz4, &plain);
    let mut read = Vec::new();
    lz4_flex::frame::FrameDecoder::new(&frame[..]).read_to_end(&mut read).expect("a sound frame");
    assert_eq!(read, plain);
    let stream = compress(TargetCodec::default_of(Compression::Gzip), &plain);
    read.clear();
    flate2::read::GzDecoder::new(&stream[..]).read_to_end(&mut read).expect("a sound stream");
    assert_eq!(read, plain);
    let stream = compress(TargetCodec::Zstd { level: 7 }, &plain);
    assert_eq!(zstd::decode_all(&stream[..]).expect("a sound frame"), plain);
}

#[test]
fn no_bytes_are_no_stream() {
    for codec in [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd] {
        assert!(is_corrupt(codec, b""), "{codec}");
    }
    assert_eq!(decompress(Compression::None, b""), Ok(Vec::new()));
}

#[test]
fn every_cut_stream_is_refused() {
    let plain = [noise(500), vec![1; 500]].concat();
    for codec in [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd] {
        let stream = compress(TargetCodec::default_of(codec), &plain);
        for cut in 0..stream.len() {
            // A xerial stream has no end mark: after a whole chunk, or none, it may well end.
            let may_end = codec == Compression::Snappy && cut == 16;
            let read = decompress(codec, &stream[..cut]);
            assert!(read.is_err() || may_end, "{codec} cut at {cut} of {}", stream.len());
        }
    }
}

#[test]
fn bytes_behind_a_stream_are_refused() {
    for codec in [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd] {
        let stream = compress(TargetCodec::default_of(codec), b"abc");
        let read = decompress(codec, &[&stream[..], b"ju"].concat());
        match codec {
            // What follows a frame is the next one, or nothing.
            Compression::Zstd => assert!(read.is_err()),
            codec => assert_eq!(read, Err(DecompressError::Trailing { codec })),
        }
    }
}

#[test]
fn a_bomb_is_stopped_at_its_bound() {
    let plain = vec![0; 20 << 20];
    for codec in [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd] {
        let bomb = compress(TargetCodec::default_of(codec), &plain);
        let mut scratch = DecompressScratch::new();
        let mut stream = Decompression::new(codec, &bomb, 1 << 20, &mut scratch);
        let error = loop {
            match stream.next_piece(usize::MAX) {
                Ok(Some(_)) => {}
                Ok(None) => panic!("{codec} let {} bytes through", stream.produced()),
                Err(error) => break error,
            }
        };
        assert_eq!(error, DecompressError::TooLarge { bytes_max: 1 << 20 }, "{codec}");
        drop(stream);
        assert!(scratch.retained_bytes() < 4 << 20, "{codec} holds {} bytes", scratch.retained_bytes());
    }
    let bomb = snap::raw::Encoder::new().compress_vec(&plain).expect("compressed");
    let read = decompress_all(Compression::Snappy, &bomb, 1 << 20, &mut DecompressScratch::new());
    assert_eq!(read, Err(DecompressError::TooLarge { bytes_max: 1 << 20 }), "a bare block");
}

#[test]
fn a_snappy_length_that_cannot_be_true_sizes_nothing() {
    // It promises four gigabytes in five bytes.
    let block = [0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0];
    let mut scratch = DecompressScratch::new();
    let read = decompress_all(Compression::Snappy, &block, u64::MAX, &mut scratch);
    assert!(matches!(read, Err(DecompressError::Corrupt { .. })));
    assert_eq!(scratch.retained_bytes(), 0);
}

#[test]
fn a_piece_is_as_small_as_asked_for() {
    let plain = vec![9; 4 << 20];
    for codec in CODECS {
        let stream = compress(TargetCodec::default_of(codec), &plain);
        let mut scratch = DecompressScratch::new();
        let mut stream = Decompression::new(codec, &stream, BOUND, &mut scratch);
        // The unit of snappy is the chunk.
        let most = match codec {
            Compression::Snappy => 32 * 1024,
            Compression::None | Compression::Gzip | Compression::Lz4 | Compression::Zstd => 1000,
        };
        while let Some(piece) = stream.next_piece(1000).expect("sound") {
            assert!(piece.len() <= most, "{codec} gave {} bytes", piece.len());
        }
    }
    let block = snap::raw::Encoder::new().compress_vec(&plain).expect("compressed");
    let mut scratch = DecompressScratch::new();
    let mut stream = Decompression::new(Compression::Snappy, &block, BOUND, &mut scratch);
    while let Some(piece) = stream.next_piece(1000).expect("sound") {
        assert!(piece.len() <= 1000 + 64, "a large bare block gave {} bytes", piece.len());
    }
}

#[test]
fn an_unknown_level_is_refused() {
    assert!(Compressor::new(TargetCodec::Gzip { level: 10 }).is_err());
    assert!(Compressor::new(TargetCodec::Gzip { level: 9 }).is_ok());
    assert!(Compressor::new(TargetCodec::Zstd { level: 22 }).is_ok());
}

proptest! {
    #[test]
    fn bytes_survive_every_codec(
        codec in any_codec(),
        parts in prop::collection::vec((any::<u8>(), 0_usize..100_000, 0_usize..5_000), 0..4),
        piece in 1_usize..70_000,
    ) {
        let plain: Vec<u8> = parts.iter().flat_map(|&(byte, same, any)| [vec![byte; same], noise(any)].concat()).collect();
        let stream = compress(TargetCodec::default_of(codec), &plain);
        let mut scratch = DecompressScratch::new();
        // The scratch is used twice: nothing of the first time may be left in the second.
        for _ in 0..2 {
            let mut decompression = Decompression::new(codec, &stream, BOUND, &mut scratch);
            let mut read = Vec::new();
            while let Some(piece) = decompression.next_piece(piece).expect("sound") {
                read.extend_from_slice(piece);
            }
            prop_assert!(read == plain);
            prop_assert_eq!(decompression.consumed(), stream.len());
        }
    }

    #[test]
    fn a_scratch_that_met_corrupt_data_is_as_good_as_new(codec in any_codec(), place: prop::sample::Index, change in 1_u8..) {
        let plain = [noise(3000), vec![5; 3000]].concat();
        let stream = compress(TargetCodec::default_of(codec), &plain);
        let mut damaged = stream.clone();
        damaged[place.index(stream.len())] ^= change;
        let mut scratch = DecompressScratch::new();
        let _ = decompress_all(codec, &damaged, BOUND, &mut scratch);
        let _ = decompress_all(codec, &damaged[..place.index(stream.len())], BOUND, &mut scratch);
        prop_assert_eq!(decompress_all(codec, &stream, BOUND, &mut scratch), Ok(plain));
    }

    #[test]
    fn any_bytes_are_decompressed_or_refused_without_a_panic(
        codec in any_codec(),
        magic: bool,
        bytes in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        let start = compress(TargetCodec::default_of(codec), b"");
        let keep = if magic { start.len().min(16) } else { 0 };
        let _ = decompress(codec, &[&start[..keep], &bytes].concat());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn large_snappy_blocks_are_decoded_as_the_reference_decodes_them(seed: u8, place: prop::sample::Index, change: u8) {
        let plain = [noise(700_000), vec![seed; 500_000]].concat();
        let mut block = snap::raw::Encoder::new().compress_vec(&plain).expect("compressed");
        let at = place.index(block.len());
        block[at] ^= change;
        let reference = snap::raw::Decoder::new().decompress_vec(&block);
        prop_assert!(decompress(Compression::Snappy, &block).ok() == reference.ok().filter(|read| read.len() as u64 <= BOUND));
    }
}
