//! The records of Kafka's metadata log, as far as an import needs them.
//!
//! Holds: their types and the decoder of a record's value. Never touches: batches and files, what the records come to.
//!
//! A value is: frame version (varint, 1), type (varint), version (varint), the type's fields. Types and fields are
//! those of the
//! schemas in Kafka's metadata module. A type or version that is not known here is an error: it may matter.

use corelog_storage::ids::TopicId;
use thiserror::Error;

use super::fields::{FieldError, Fields};

const FRAME_VERSION: u32 = 1;

/// Why a value is no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RecordError {
    /// Another frame.
    #[error("it has frame version {0}, and {FRAME_VERSION} is known")]
    Frame(u32),
    /// A type of a later Kafka.
    #[error("it is of type {0}, which this version of Corelog does not know")]
    Type(u32),
    /// A version of a later Kafka.
    #[error("it is of type {kind}, version {version}, and this version of Corelog knows versions up to {known}")]
    Version {
        /// The type.
        kind: u32,
        /// Its version.
        version: u32,
        /// The last one that is known.
        known: u32,
    },
    /// Its fields are not what the type has.
    #[error(transparent)]
    Fields(#[from] FieldError),
}

/// One partition as it is created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPartition {
    pub topic: TopicId,
    pub partition: i32,
    pub replicas: Vec<i32>,
    pub isr: Vec<i32>,
    pub leader: i32,
    pub leader_epoch: i32,
    pub partition_epoch: i32,
}

/// What changes of a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionChange {
    pub replicas: Option<Vec<i32>>,
    pub isr: Option<Vec<i32>>,
    /// A change of leader, also to the same one, begins a new leader epoch.
    pub leader: Option<i32>,
}

/// What an import leaves behind, by what it is called on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Other {
    Acl,
    Scram,
    Quota,
    DelegationToken,
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KafkaRecord {
    Topic {
        name: String,
        id: TopicId,
    },
    Partition(NewPartition),
    PartitionChange {
        topic: TopicId,
        partition: i32,
        change: PartitionChange,
    },
    RemoveTopic {
        id: TopicId,
    },
    Config {
        kind: i8,
        resource: String,
        name: String,
        value: Option<String>,
    },
    Feature {
        name: String,
        level: i16,
    },
    ProducerIds {
        next: i64,
    },
    Broker {
        id: i32,
    },
    BrokerGone {
        id: i32,
    },
    Controller {
        id: i32,
    },
    /// Something that is not carried, by a name of its own.
    Set {
        what: Other,
        name: String,
    },
    Removed {
        what: Other,
        name: String,
    },
    /// A transaction of the controller (KIP-868): what follows counts when it ends.
    Begin,
    End,
    Abort,
    /// Says nothing that outlives a stopped cluster.
    Nothing,
}

/// A type's number and the newest version that is known of it.
const KNOWN: [(u32, u32); 28] = [
    (0, 3),
    (1, 0),
    (2, 0),
    (3, 2),
    (4, 0),
    (5, 2),
    (7, 0),
    (8, 0),
    (9, 0),
    (10, 0),
    (11, 0),
    (12, 0),
    (14, 0),
    (15, 0),
    (17, 2),
    (18, 0),
    (19, 0),
    (20, 0),
    (21, 0),
    (22, 0),
    (23, 0),
    (24, 0),
    (25, 0),
    (26, 0),
    (27, 0),
    (28, 0),
    // Never written by a release: the first access control entry (6) and the first removal of a feature (16).
    (6, 0),
    (16, 0),
];

impl KafkaRecord {
    /// Reads a record's value.
    pub fn decode(value: &[u8]) -> Result<Self, RecordError> {
        let mut fields = Fields(value);
        let (frame, kind, version) = (fields.varint()?, fields.varint()?, fields.varint()?);
        if frame != FRAME_VERSION {
            return Err(RecordError::Frame(frame));
        }
        let Some((_, known)) = KNOWN.iter().find(|(known, _)| *known == kind) else {
            return Err(RecordError::Type(kind));
        };
        if version > *known {
            return Err(RecordError::Version { kind, version, known: *known });
        }
        Ok(match kind {
            0 => Self::Broker { id: fields.i32()? },
            1 => Self::BrokerGone { id: fields.i32()? },
            2 => topic(fields)?,
            3 => Self::Partition(partition(fields, version)?),
            4 => config(fields)?,
            5 => partition_change(fields)?,
            9 => Self::RemoveTopic { id: fields.id()? },
            10 => delegation_token(fields)?,
            11 => Self::Set { what: Other::Scram, name: scram_name(&mut fields)? },
            12 => Self::Feature { name: fields.text()?, level: fields.i16()? },
            14 => quota(fields)?,
            15 => producer_ids(fields)?,
            18 => Self::Set { what: Other::Acl, name: fields.id()?.to_string() },
            19 => Self::Removed { what: Other::Acl, name: fields.id()?.to_string() },
            22 => Self::Removed { what: Other::Scram, name: scram_name(&mut fields)? },
            23 => Self::Begin,
            24 => Self::End,
            25 => Self::Abort,
            26 => Self::Removed { what: Other::DelegationToken, name: fields.text()? },
            27 => Self::Controller { id: fields.i32()? },
            // Fenced or not, in which folders, in which state of a migration that is long over, which eligible
            // leaders are
            // forgotten; and types that no release has written.
            7 | 8 | 17 | 20 | 21 | 28 => Self::Nothing,
            other => return Err(RecordError::Type(other)),
        })
    }
}

fn topic(mut fields: Fields<'_>) -> Result<KafkaRecord, FieldError> {
    let (name, id) = (fields.text()?, fields.id()?);
    fields.end(|_, _| Ok(()))?;
    Ok(KafkaRecord::Topic { name, id })
}

fn partition(mut fields: Fields<'_>, version: u32) -> Result<NewPartition, FieldError> {
    let (partition, topic) = (fields.i32()?, fields.id()?);
    let (replicas, isr) = (fields.list(Fields::i32)?, fields.list(Fields::i32)?);
    let (_removing, _adding) = (fields.list(Fields::i32)?, fields.list(Fields::i32)?);
    let (leader, leader_epoch, partition_epoch) = (fields.i32()?, fields.i32()?, fields.i32()?);
    if version >= 1 {
        let _folders = fields.list(Fields::id)?;
    }
    fields.end(|_, _| Ok(()))?;
    Ok(NewPartition { topic, partition, replicas, isr, leader, leader_epoch, partition_epoch })
}

fn partition_change(mut fields: Fields<'_>) -> Result<KafkaRecord, FieldError> {
    let (partition, topic) = (fields.i32()?, fields.id()?);
    let mut change = PartitionChange::default();
    fields.end(|tag, mut field| {
        match tag {
            0 => change.isr = Some(field.list(Fields::i32)?),
            1 => change.leader = Some(field.i32()?),
            2 => change.replicas = Some(field.list(Fields::i32)?),
            // Replicas on their way, recovery of an unclean leader, eligible leaders, folders.
            _ => {}
        }
        Ok(())
    })?;
    Ok(KafkaRecord::PartitionChange { topic, partition, change })
}

fn config(mut fields: Fields<'_>) -> Result<KafkaRecord, FieldError> {
    let (kind, resource) = (fields.i8()?, fields.text()?);
    let (name, value) = (fields.text()?, fields.nullable_text()?);
    fields.end(|_, _| Ok(()))?;
    Ok(KafkaRecord::Config { kind, resource, name, value })
}

fn producer_ids(mut fields: Fields<'_>) -> Result<KafkaRecord, FieldError> {
    let (_broker, _epoch, next) = (fields.i32()?, fields.i64()?, fields.i64()?);
    fields.end(|_, _| Ok(()))?;
    Ok(KafkaRecord::ProducerIds { next })
}

fn scram_name(fields: &mut Fields<'_>) -> Result<String, FieldError> {
    Ok(format!("{} (mechanism {})", fields.text()?, fields.i8()?))
}

fn delegation_token(mut fields: Fields<'_>) -> Result<KafkaRecord, FieldError> {
    let (_owner, _requester, _renewers) = (fields.text()?, fields.text()?, fields.list(Fields::text)?);
    let (_issued, _latest, _expires) = (fields.i64()?, fields.i64()?, fields.i64()?);
    Ok(KafkaRecord::Set { what: Other::DelegationToken, name: fields.text()? })
}

fn quota(mut fields: Fields<'_>) -> Result<KafkaRecord, FieldError> {
    let entity = fields.list(|fields| {
        let named = format!("{}={}", fields.text()?, fields.nullable_text()?.unwrap_or_else(|| "<default>".to_owned()));
        fields.tagged(|_, _| Ok(()))?;
        Ok(named)
    })?;
    let name = format!("{}: {}", entity.join(","), fields.text()?);
    let (_value, is_removed) = (fields.i64()?, fields.i8()? != 0);
    let what = Other::Quota;
    Ok(if is_removed { KafkaRecord::Removed { what, name } } else { KafkaRecord::Set { what, name } })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value: frame, type, version, fields.
    fn value(kind: u8, version: u8, fields: &[&[u8]]) -> Vec<u8> {
        [&[1, kind, version][..], &fields.concat()].concat()
    }

    #[test]
    fn a_topic_and_its_partition_are_read() {
        let id = TopicId([7; 16]);
        let topic = value(2, 0, &[&[4], b"abc", &id.0, &[0]]);
        assert_eq!(KafkaRecord::decode(&topic), Ok(KafkaRecord::Topic { name: "abc".to_owned(), id }));
        let numbers = |list: &[i32]| list.iter().flat_map(|n| n.to_be_bytes()).collect::<Vec<u8>>();
        let replicas = [&[3][..], &numbers(&[1, 2])].concat();
        let isr = [&[2][..], &numbers(&[1])].concat();
        let folders = [&[3][..], &[9; 32]].concat();
        // Eligible leaders stand in a tagged field.
        let tagged = [&[1, 1, 5, 2][..], &numbers(&[1])].concat();
        let body: [&[u8]; 8] =
            [&numbers(&[4]), &id.0, &replicas, &isr, &[1, 1], &numbers(&[1, 6, 8]), &folders, &tagged];
        let expected = NewPartition {
            topic: id,
            partition: 4,
            replicas: vec![1, 2],
            isr: vec![1],
            leader: 1,
            leader_epoch: 6,
            partition_epoch: 8,
        };
        assert_eq!(KafkaRecord::decode(&value(3, 2, &body)), Ok(KafkaRecord::Partition(expected)));
    }

    #[test]
    fn a_change_has_what_its_tags_say() {
        let id = TopicId([7; 16]);
        let record = value(5, 2, &[&4_i32.to_be_bytes(), &id.0, &[1, 1, 4], &3_i32.to_be_bytes()]);
        let change = PartitionChange { leader: Some(3), ..PartitionChange::default() };
        assert_eq!(KafkaRecord::decode(&record), Ok(KafkaRecord::PartitionChange { topic: id, partition: 4, change }));
    }

    #[test]
    fn a_configuration_is_set_and_removed() {
        let set = value(4, 0, &[&[2, 2], b"t", &[2], b"n", &[2], b"v", &[0]]);
        let record = |value| KafkaRecord::Config { kind: 2, resource: "t".to_owned(), name: "n".to_owned(), value };
        assert_eq!(KafkaRecord::decode(&set), Ok(record(Some("v".to_owned()))));
        assert_eq!(KafkaRecord::decode(&value(4, 0, &[&[2, 2], b"t", &[2], b"n", &[0], &[0]])), Ok(record(None)));
    }

    #[test]
    fn what_is_of_a_later_kafka_is_no_nothing() {
        assert_eq!(KafkaRecord::decode(&value(99, 0, &[])), Err(RecordError::Type(99)));
        assert_eq!(KafkaRecord::decode(&value(16, 0, &[])), Err(RecordError::Type(16)));
        let later = RecordError::Version { kind: 3, version: 3, known: 2 };
        assert_eq!(KafkaRecord::decode(&value(3, 3, &[])), Err(later));
        assert_eq!(KafkaRecord::decode(&[0, 2, 0]), Err(RecordError::Frame(0)));
    }

    #[test]
    fn no_cut_and_no_length_breaks_the_decoder() {
        let record = value(4, 0, &[&[2, 2], b"t", &[2], b"n", &[2], b"v", &[0]]);
        for cut in 0..record.len() {
            assert!(KafkaRecord::decode(&record[..cut]).is_err(), "cut at {cut}");
        }
        let huge = value(2, 0, &[&[0xff, 0xff, 0xff, 0xff, 0x0f], b"abc"]);
        assert_eq!(KafkaRecord::decode(&huge), Err(FieldError::Truncated.into()));
        let endless = value(2, 0, &[&[0xff; 9]]);
        assert_eq!(KafkaRecord::decode(&endless), Err(FieldError::Number.into()));
    }
}
