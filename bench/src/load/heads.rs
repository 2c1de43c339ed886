//! Produce requests with a place left for their batch.
//!
//! Holds: the encoded bytes before and behind the records, one set for each partition. Never touches: sockets, batches.
//!
//! The codec writes each request once, without records; what changes from send to send is the frame's size, the
//! correlation id and the length in front of the records.

use bytes::BytesMut;
use corelog_net::wire::messages::{PartitionProduceData, ProduceRequest, TopicProduceData};
use corelog_net::wire::{ApiKey, LazyArray, Request};

use crate::client::cluster::Topic;
use crate::client::rpc::CLIENT_ID;
use crate::error::BenchError;

/// Where the correlation id lies in a frame: behind size, key and version.
const CORRELATION_AT: usize = 8;
/// Empty tagged fields of partition, topic and request, which end a flexible request.
const FLEXIBLE_TAIL: &[u8] = &[0, 0, 0];

/// Request frames for the partitions of a topic.
pub struct Heads {
    prefixes: Vec<Vec<u8>>,
    flexible: bool,
    /// The version they are written in.
    pub version: i16,
}

impl Heads {
    /// Writes the frames of `topic`.
    ///
    /// # Errors
    /// The version has no bytes for it.
    pub fn new(topic: &Topic, version: i16, acks: i16, timeout_ms: i32) -> Result<Self, BenchError> {
        let flexible = ApiKey::Produce.is_flexible(version);
        let mut prefixes = Vec::with_capacity(topic.partitions);
        for index in 0..topic.partitions as i32 {
            let partitions = [PartitionProduceData { index, records: Some(&[]) }];
            let topics = [TopicProduceData {
                name: &topic.name,
                topic_id: topic.id,
                partition_data: LazyArray::from_slice(&partitions),
            }];
            let request =
                ProduceRequest { transactional_id: None, acks, timeout_ms, topic_data: LazyArray::from_slice(&topics) };
            let encoded = request.encode_frame(BytesMut::new(), version, 0, Some(CLIENT_ID));
            let mut frame = encoded.map_err(|error| BenchError::Request { api: "Produce", error })?.head.to_vec();
            // Behind the prefix: the length of no bytes, and what ends the request.
            let rest = if flexible { 1 + FLEXIBLE_TAIL.len() } else { 4 };
            frame.truncate(frame.len() - rest);
            prefixes.push(frame);
        }
        Ok(Self { prefixes, flexible, version })
    }

    /// Writes what precedes the records; returns what must follow them.
    pub fn write(&self, partition: usize, batch_bytes: usize, correlation: i32, out: &mut Vec<u8>) -> &'static [u8] {
        let start = out.len();
        out.extend_from_slice(&self.prefixes[partition]);
        let tail: &[u8] = if self.flexible {
            // A compact length counts one more than there are (KIP-482).
            let mut left = batch_bytes + 1;
            while left >= 0x80 {
                out.push(left as u8 | 0x80);
                left >>= 7;
            }
            out.push(left as u8);
            FLEXIBLE_TAIL
        } else {
            out.extend_from_slice(&(batch_bytes as i32).to_be_bytes());
            &[]
        };
        let size = (out.len() - start - 4 + batch_bytes + tail.len()) as i32;
        out[start..start + 4].copy_from_slice(&size.to_be_bytes());
        let at = start + CORRELATION_AT;
        out[at..at + 4].copy_from_slice(&correlation.to_be_bytes());
        tail
    }
}

#[cfg(test)]
mod tests {
    use corelog_net::wire::{RequestHeader, Uuid};

    use super::*;

    #[test]
    fn a_head_with_its_batch_is_the_request_that_the_codec_reads() {
        let topic = Topic { name: "load".into(), id: Uuid([7; 16]), partitions: 3, leader: String::new() };
        for version in ApiKey::Produce.versions().iter() {
            let heads = Heads::new(&topic, version, -1, 1234).unwrap();
            for bytes in [0, 1, 126, 127, 128, 20_000] {
                let batch = vec![0xab; bytes];
                let mut frame = Vec::new();
                let tail = heads.write(2, bytes, 99, &mut frame);
                frame.extend_from_slice(&batch);
                frame.extend_from_slice(tail);
                assert_eq!(frame.len() - 4, i32::from_be_bytes(frame[..4].try_into().unwrap()) as usize);
                let (header, body) = RequestHeader::decode(&frame[4..]).unwrap();
                assert_eq!((header.correlation_id, header.client_id), (99, Some(CLIENT_ID)));
                let request = ProduceRequest::decode_body(body, version).unwrap();
                assert_eq!((request.acks, request.timeout_ms), (-1, 1234));
                let topic = request.topic_data.iter().next().unwrap();
                let partition = topic.partition_data.iter().next().unwrap();
                assert_eq!((partition.index, partition.records), (2, Some(&batch[..])), "version {version}");
            }
        }
    }
}
