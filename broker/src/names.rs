//! Topic names: which are legal, which are Kafka's own, and which clash with each other.
//!
//! Holds: the rules. Never touches: topics that exist (the controller compares against those).

use thiserror::Error;

/// Committed offsets and group metadata.
pub const CONSUMER_OFFSETS: &str = "__consumer_offsets";
/// The states of transactions.
pub const TRANSACTION_STATE: &str = "__transaction_state";
/// The states of share groups (KIP-932).
pub const SHARE_GROUP_STATE: &str = "__share_group_state";
/// The controller's log. Never a topic a client can create, read or write.
pub const CLUSTER_METADATA: &str = "__cluster_metadata";

/// The longest legal topic name, in characters: `name-partition` must still fit in a file name of 255 bytes.
pub const TOPIC_NAME_CHARS_MAX: usize = 249;

/// Why a name cannot be a topic's. Shown, it reads as Kafka's own message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidTopicName {
    /// `""`
    #[error("Topic name is invalid: the empty string is not allowed")]
    Empty,
    /// `.` would be a folder that already has a meaning.
    #[error("Topic name is invalid: '.' is not allowed")]
    Dot,
    /// `..` likewise.
    #[error("Topic name is invalid: '..' is not allowed")]
    DotDot,
    /// More than [`TOPIC_NAME_CHARS_MAX`] characters.
    #[error(
        "Topic name is invalid: the length of '{name}' is longer than the max allowed length {TOPIC_NAME_CHARS_MAX}"
    )]
    TooLong {
        /// The refused name.
        name: String,
    },
    /// A character outside `[a-zA-Z0-9._-]`.
    #[error(
        "Topic name is invalid: '{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    )]
    IllegalCharacter {
        /// The refused name.
        name: String,
    },
}

/// Checks that `name` may be a topic's name.
///
/// # Errors
/// The first rule that `name` breaks, in Kafka's order.
pub fn validate_topic_name(name: &str) -> Result<(), InvalidTopicName> {
    match name {
        "" => return Err(InvalidTopicName::Empty),
        "." => return Err(InvalidTopicName::Dot),
        ".." => return Err(InvalidTopicName::DotDot),
        _ => {}
    }
    // Kafka counts UTF-16 units: for a name with only legal characters that is its length in bytes, and the
    // length rule is checked first.
    if name.encode_utf16().count() > TOPIC_NAME_CHARS_MAX {
        return Err(InvalidTopicName::TooLong { name: name.to_owned() });
    }
    if !name.bytes().all(is_legal) {
        return Err(InvalidTopicName::IllegalCharacter { name: name.to_owned() });
    }
    Ok(())
}

const fn is_legal(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

/// Whether a topic is one of those the broker keeps for itself. Metadata marks them so, and consumers that
/// subscribe by pattern leave them out.
#[must_use]
pub fn is_internal(topic: &str) -> bool {
    matches!(topic, CONSUMER_OFFSETS | TRANSACTION_STATE | SHARE_GROUP_STATE)
}

/// The form in which clashing names are equal, or `None` when the name has no character that can clash.
/// Kafka's metric names cannot tell `.` from `_`, so `a.b` and `a_b` must not both exist.
#[must_use]
pub fn collision_key(topic: &str) -> Option<String> {
    topic.contains(['.', '_']).then(|| topic.replace('.', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_legal_character_is_accepted_and_249_of_them_too() {
        let alphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
        assert_eq!(validate_topic_name(alphabet), Ok(()));
        assert_eq!(validate_topic_name(&"x".repeat(249)), Ok(()));
        assert_eq!(validate_topic_name("..."), Ok(()));
    }

    #[test]
    fn an_illegal_name_is_refused_with_the_reason_kafka_gives() {
        let cases: [(String, &str); 6] = [
            (String::new(), "the empty string is not allowed"),
            (".".into(), "'.' is not allowed"),
            ("..".into(), "'..' is not allowed"),
            ("a/b".into(), "'a/b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
            (
                "caf\u{e9}".into(),
                "'caf\u{e9}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
            ),
            ("a b".into(), "'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ];
        for (name, reason) in cases {
            let error = validate_topic_name(&name).map_err(|e| e.to_string());
            assert_eq!(error, Err(format!("Topic name is invalid: {reason}")));
        }
    }

    #[test]
    fn a_name_of_250_characters_is_too_long_even_if_it_is_illegal_too() {
        let name = "/".repeat(250);
        assert_eq!(validate_topic_name(&name), Err(InvalidTopicName::TooLong { name }));
    }

    #[test]
    fn names_clash_when_only_dots_and_underscores_differ() {
        assert_eq!(collision_key("a.b_c"), collision_key("a_b.c"));
        assert_ne!(collision_key("a.b"), collision_key("a-b"));
        assert_eq!(collision_key("a-b"), None);
    }

    #[test]
    fn the_topics_of_the_coordinators_are_internal_and_the_metadata_log_is_not_a_topic() {
        assert!(is_internal("__consumer_offsets"));
        assert!(is_internal("__transaction_state"));
        assert!(is_internal("__share_group_state"));
        assert!(!is_internal("__cluster_metadata"));
        assert!(!is_internal("orders"));
    }
}
