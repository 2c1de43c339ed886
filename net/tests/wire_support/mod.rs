//! Bytes for every message in every version, made from its schema.
//!
//! Holds: a writer of random valid messages that shares no code with the codec but the schema.
//! Never touches: the codec's own encoders and decoders.

#![allow(dead_code)]

use corelog_net::wire::{ApiKey, ErrorCode, FieldType, RequestBody, ResponseBody, Schema};

/// Which of an API's two messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Request,
    Response,
}

/// Every message in every version.
pub fn every_message() -> impl Iterator<Item = (ApiKey, i16, Side)> {
    ApiKey::SUPPORTED.iter().flat_map(|&key| {
        let sides = [Side::Request, Side::Response];
        key.versions().iter().flat_map(move |version| sides.map(|side| (key, version, side)))
    })
}

/// Layout of a message.
pub fn layout(key: ApiKey, side: Side) -> &'static FieldType {
    match side {
        Side::Request => RequestBody::layout(key),
        Side::Response => ResponseBody::layout(key),
    }
}

/// A source of choices: bytes given from outside, so that a failing case can be made smaller. Zeroes once they are used up.
pub struct Choices<'c> {
    bytes: &'c [u8],
}

impl<'c> Choices<'c> {
    pub fn new(bytes: &'c [u8]) -> Self {
        Self { bytes }
    }

    pub fn byte(&mut self) -> u8 {
        match self.bytes.split_first() {
            Some((&byte, rest)) => {
                self.bytes = rest;
                byte
            }
            None => 0,
        }
    }

    pub fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()) % bound
    }
}

/// The body of a message with random contents.
pub fn body(key: ApiKey, version: i16, side: Side, choices: &mut Choices<'_>) -> Vec<u8> {
    let mut writer = Writer { out: Vec::new(), version, flexible: key.is_flexible(version), unknown_tags: false };
    writer.value(layout(key, side), choices);
    writer.out
}

/// As [`body`], with tagged fields in it that nobody knows.
pub fn body_with_unknown_tags(key: ApiKey, version: i16, side: Side, choices: &mut Choices<'_>) -> Vec<u8> {
    let mut writer = Writer { out: Vec::new(), version, flexible: key.is_flexible(version), unknown_tags: true };
    writer.value(layout(key, side), choices);
    writer.out
}

/// Choices under which arrays have elements, options are set and tagged fields are there.
pub fn rich_choices(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        // No zero: zero is null and empty.
        (state >> 32) as u8 | 1
    };
    std::iter::repeat_with(next).take(len).collect()
}

struct Writer {
    out: Vec<u8>,
    version: i16,
    flexible: bool,
    unknown_tags: bool,
}

const TEXTS: [&str; 8] = ["", "a", "topic-1", "räksmörgås", "日本", "x.y_z", "0", "\u{10ffff}\u{0}"];

impl Writer {
    fn uvarint(&mut self, mut value: usize) {
        while value >= 0x80 {
            self.out.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.out.push(value as u8);
    }

    fn length(&mut self, length: Option<usize>, old_bytes: usize) {
        if self.flexible {
            return self.uvarint(length.map_or(0, |length| length + 1));
        }
        let length = length.map_or(-1, |length| length as i64);
        self.out.extend_from_slice(&length.to_be_bytes()[8 - old_bytes..]);
    }

    fn value(&mut self, ty: &FieldType, choices: &mut Choices<'_>) {
        match ty {
            FieldType::Bool => self.out.push((choices.below(2) == 1).into()),
            FieldType::Int(bytes) => {
                // Defaults and small values are as likely as large ones.
                let value = match choices.below(4) {
                    0 => 0,
                    1 => -1,
                    2 => choices.byte().into(),
                    _ => i64::from_be_bytes(std::array::from_fn(|_| choices.byte())),
                };
                self.out.extend_from_slice(&value.to_be_bytes()[8 - usize::from(*bytes)..]);
            }
            FieldType::Float64 => self.out.extend_from_slice(&f64::from(choices.byte()).to_be_bytes()),
            FieldType::ErrorCode => {
                let code = ErrorCode::ALL[choices.below(ErrorCode::ALL.len())].code();
                self.out.extend_from_slice(&code.to_be_bytes());
            }
            FieldType::Uuid => {
                let id: [u8; 16] = std::array::from_fn(|_| choices.byte());
                self.out.extend_from_slice(&id);
            }
            FieldType::String => {
                let text = TEXTS[choices.below(TEXTS.len())];
                self.length(Some(text.len()), 2);
                self.out.extend_from_slice(text.as_bytes());
            }
            FieldType::Bytes => {
                // Now and then long enough for a compact length of two bytes.
                let len = [0, 1, 5, 200][choices.below(4)];
                self.length(Some(len), 4);
                self.out.extend((0..len).map(|i| i as u8));
            }
            FieldType::Array(element) | FieldType::Lazy(element) => {
                let len = choices.below(4);
                self.length(Some(len), 4);
                for _ in 0..len {
                    self.value(element, choices);
                }
            }
            FieldType::Struct(schema) => self.structure(schema, choices),
            FieldType::Nullable(inner) => self.nullable(inner, choices.below(4) == 0, choices),
        }
    }

    fn nullable(&mut self, ty: &FieldType, null: bool, choices: &mut Choices<'_>) {
        match ty {
            FieldType::String if null => self.length(None, 2),
            FieldType::Struct(_) if null => self.out.push(0xff),
            FieldType::Struct(_) => {
                self.out.push(1);
                self.value(ty, choices);
            }
            _ if null => self.length(None, 4),
            _ => self.value(ty, choices),
        }
    }

    fn structure(&mut self, schema: &Schema, choices: &mut Choices<'_>) {
        let version = self.version;
        let present = schema.fields.iter().filter(|field| field.versions.contains(version));
        for field in present.clone().filter(|field| field.tag.is_none()) {
            match field.ty {
                FieldType::Nullable(inner) if !field.nullable.contains(version) => {
                    self.nullable(inner, false, choices);
                }
                ty => self.value(ty, choices),
            }
        }
        if !self.flexible {
            return;
        }
        let tagged: Vec<_> = present.filter(|field| field.tag.is_some()).filter(|_| choices.below(3) != 0).collect();
        let unknown = if self.unknown_tags { choices.below(3) } else { 0 };
        self.uvarint(tagged.len() + unknown);
        for field in tagged {
            self.uvarint(field.tag.unwrap() as usize);
            let outer = std::mem::take(&mut self.out);
            self.value(field.ty, choices);
            let value = std::mem::replace(&mut self.out, outer);
            self.uvarint(value.len());
            self.out.extend_from_slice(&value);
        }
        for tag in 0..unknown {
            self.uvarint(100 + 1000 * tag);
            let len = choices.below(200);
            self.uvarint(len);
            self.out.extend(std::iter::repeat_n(0xee, len));
        }
    }
}
