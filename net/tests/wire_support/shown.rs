//! Values compared by what `Debug` shows of them.
//!
//! Holds: a reader of `Debug` output, so that two libraries' structs can be compared field by field, by name.
//! Never touches: bytes.

use corelog_net::wire::{ErrorCode, Uuid};

/// What was shown.
#[derive(Debug, Clone, PartialEq)]
pub enum Shown {
    Struct(Vec<(String, Shown)>),
    List(Vec<Shown>),
    Text(String),
    Word(String),
    Null,
}

/// Reads `Debug` output. Wrappers of one value (`Some(x)`, `TopicName(x)`) are taken off.
pub fn read(debug: &str) -> Shown {
    let mut reader = Reader { rest: debug };
    let shown = reader.value();
    assert_eq!(reader.rest.trim(), "", "left of {debug}");
    shown
}

struct Reader<'s> {
    rest: &'s str,
}

impl<'s> Reader<'s> {
    fn eat(&mut self, token: &str) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn word(&mut self) -> &'s str {
        self.rest = self.rest.trim_start();
        let end = self.rest.find(|c: char| !(c.is_alphanumeric() || "_-.".contains(c)));
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        word
    }

    fn list(&mut self, close: &str) -> Vec<Shown> {
        let mut elements = Vec::new();
        while !self.eat(close) {
            elements.push(self.value());
            self.eat(",");
        }
        elements
    }

    fn value(&mut self) -> Shown {
        if self.eat("[") {
            return Shown::List(self.list("]"));
        }
        if self.eat("\"") {
            let bytes = self.quoted();
            return Shown::Text(String::from_utf8(bytes).unwrap());
        }
        if self.eat("b\"") {
            let bytes = self.quoted();
            return Shown::List(bytes.iter().map(|byte| Shown::Word(byte.to_string())).collect());
        }
        if self.eat("{") {
            // A map: only ever the unknown tagged fields, and empty here.
            assert!(self.eat("}"), "a map with something in it: {}", self.rest);
            return Shown::Struct(Vec::new());
        }
        let word = self.word();
        assert!(!word.is_empty(), "no value at {}", self.rest);
        if self.eat("(") {
            let mut inner = self.list(")");
            assert_eq!(inner.len(), 1, "{word} holds several values");
            return inner.remove(0);
        }
        if self.eat("{") {
            let mut fields = Vec::new();
            while !self.eat("}") {
                let name = self.word().to_owned();
                assert!(self.eat(":"), "no colon behind {name}");
                fields.push((name, self.value()));
                self.eat(",");
            }
            return Shown::Struct(fields);
        }
        match word {
            "None" | "Null" => Shown::Null,
            _ => Shown::Word(word.to_owned()),
        }
    }

    fn quoted(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        loop {
            let mut chars = self.rest.chars();
            let c = chars.next().unwrap();
            self.rest = chars.as_str();
            match c {
                '"' => return bytes,
                '\\' => {
                    let escaped = chars.next().unwrap();
                    self.rest = chars.as_str();
                    match escaped {
                        'n' => bytes.push(b'\n'),
                        'r' => bytes.push(b'\r'),
                        't' => bytes.push(b'\t'),
                        '0' => bytes.push(0),
                        'x' => {
                            let (hex, rest) = self.rest.split_at(2);
                            bytes.push(u8::from_str_radix(hex, 16).unwrap());
                            self.rest = rest;
                        }
                        'u' => {
                            let (hex, rest) = self.rest[1..].split_once('}').unwrap();
                            let c = char::from_u32(u32::from_str_radix(hex, 16).unwrap()).unwrap();
                            bytes.extend_from_slice(c.to_string().as_bytes());
                            self.rest = rest;
                        }
                        other => bytes.extend_from_slice(other.to_string().as_bytes()),
                    }
                }
                other => bytes.extend_from_slice(other.to_string().as_bytes()),
            }
        }
    }
}

/// Fields of the oracle that no version we speak has (two-phase commit, KIP-939).
const NOT_OURS: [&str; 5] = [
    "unknown_tagged_fields",
    "enable_2_pc",
    "keep_prepared_txn",
    "ongoing_txn_producer_id",
    "ongoing_txn_producer_epoch",
];

/// Panics unless both show the same fields with the same values, in any order.
pub fn assert_same(path: &str, ours: &Shown, oracle: &Shown) {
    match (ours, oracle) {
        (Shown::Struct(ours), Shown::Struct(oracle)) => {
            let oracle: Vec<_> = oracle.iter().filter(|(name, _)| !NOT_OURS.contains(&name.as_str())).collect();
            for (name, _) in &oracle {
                assert!(ours.iter().any(|(own, _)| own == name), "{path} lacks {name}");
            }
            for (name, value) in ours {
                let other = oracle.iter().find(|(other, _)| other == name);
                let (_, other) = other.unwrap_or_else(|| panic!("{path}: the oracle has no {name}"));
                assert_same(&format!("{path}.{name}"), value, other);
            }
        }
        (Shown::List(ours), Shown::List(oracle)) => {
            assert_eq!(ours.len(), oracle.len(), "{path}: number of elements");
            for (index, (ours, oracle)) in ours.iter().zip(oracle).enumerate() {
                assert_same(&format!("{path}[{index}]"), ours, oracle);
            }
        }
        (Shown::Word(ours), Shown::Word(oracle)) => {
            assert!(same_word(ours, oracle), "{path}: {ours} against the oracle's {oracle}");
        }
        // `ErrorCode::None` shows like an absent value.
        (Shown::Null, Shown::Word(oracle)) => assert_eq!(oracle, "0", "{path}"),
        _ => assert_eq!(ours, oracle, "{path}"),
    }
}

fn same_word(ours: &str, oracle: &str) -> bool {
    if ours == oracle {
        return true;
    }
    if oracle.len() == 36 {
        let hex = oracle.replace('-', "");
        let id = ours.parse::<Uuid>().unwrap();
        return u128::from_str_radix(&hex, 16) == Ok(u128::from_be_bytes(id.0));
    }
    let code = ErrorCode::ALL.iter().find(|code| format!("{code:?}") == ours);
    code.is_some_and(|code| code.code().to_string() == oracle)
}
