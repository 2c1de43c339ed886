//! Holds: requests sent without waiting for answers: the answers come in order, and each partition takes its records in order.
//! Never touches: clients; a bare socket shows what they hide.

mod support;

use std::time::Duration;

use support::admin::Admin;
use support::broker::BrokerSetup;
use support::raw::{Decoder, Encoder, RawConnection, frame, request};
use support::requests::{
    FETCH, LIST_OFFSETS, METADATA, PRODUCE, Session, batch, fetch, fetch_answer, list_offsets, list_offsets_answer,
    metadata, produce, produce_answer, values_of,
};

const PATIENCE: Duration = Duration::from_secs(30);
const PARTITIONS: i32 = 8;

#[test]
fn a_hundred_pipelined_requests_of_all_kinds_are_answered_in_order() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let setup = BrokerSetup::new(data.path(), 4);
    let _broker = setup.start();
    Admin::new(&setup.bootstrap(), PATIENCE).create_topic("t", PARTITIONS as usize, &[]).expect("a topic");
    let mut connection = RawConnection::connect(setup.address()).expect("a connection");

    // Slow ones (a fetch that waits at an empty place, durable produces) between fast ones, over partitions on all shards.
    let without_session = Session { id: 0, epoch: -1 };
    let mut all = Vec::new();
    for id in 0..100 {
        let partition = id % PARTITIONS;
        let bytes = match id % 5 {
            0 | 1 => {
                let value = format!("request {id}");
                request(PRODUCE, 3, id, produce("t", partition, -1, &batch(&[value.as_bytes()], 1)))
            }
            2 => request(
                FETCH,
                7,
                id,
                fetch(without_session, 50, &[("t", partition, 0), ("t", (partition + 1) % PARTITIONS, 0)]),
            ),
            3 => request(LIST_OFFSETS, 1, id, list_offsets("t", partition, -1)),
            _ if id % 2 == 0 => request(METADATA, 4, id, metadata("t", false)),
            _ => request(18, 0, id, Encoder::default()),
        };
        all.extend(frame(&bytes));
    }
    connection.send(&all).expect("sent");

    let mut next_offsets = vec![0; PARTITIONS as usize];
    for id in 0..100 {
        let answer = connection.receive().unwrap_or_else(|error| panic!("answer {id}: {error}"));
        assert_eq!(Decoder::new(&answer).i32(), id, "answers leave in the order of the requests");
        let (answer, partition) = (&answer[4..], (id % PARTITIONS) as usize);
        match id % 5 {
            0 | 1 => {
                assert_eq!(produce_answer(answer), (0, next_offsets[partition]), "request {id}");
                next_offsets[partition] += 1;
            }
            2 => {
                let fetched = fetch_answer(answer);
                assert_eq!((fetched.error, fetched.partitions.len()), (0, 2), "request {id}");
            }
            // What was produced before on this connection has been answered before: it must be visible.
            3 => assert_eq!(list_offsets_answer(answer), (0, next_offsets[partition]), "request {id}"),
            _ => {}
        }
    }

    for partition in 0..PARTITIONS {
        let answer = connection.call(FETCH, 7, fetch(without_session, 0, &[("t", partition, 0)])).expect("an answer");
        let fetched = fetch_answer(&answer);
        let values: Vec<String> = values_of(&fetched.partitions[0].5)
            .into_iter()
            .map(|(_, value)| String::from_utf8_lossy(&value).into_owned())
            .collect();
        let sent: Vec<String> = (0..100)
            .filter(|id| id % PARTITIONS == partition && id % 5 < 2)
            .map(|id| format!("request {id}"))
            .collect();
        assert_eq!(values, sent, "partition {partition}");
    }
}

#[test]
fn produces_without_acknowledgement_get_no_answer_and_keep_their_place() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let setup = BrokerSetup::new(data.path(), 4);
    let _broker = setup.start();
    Admin::new(&setup.bootstrap(), PATIENCE).create_topic("t", 1, &[]).expect("a topic");
    let mut connection = RawConnection::connect(setup.address()).expect("a connection");
    let mut all = Vec::new();
    for id in 0..20 {
        let acks = if id % 2 == 0 { 0 } else { 1 };
        let value = id.to_string();
        all.extend(frame(&request(PRODUCE, 3, id, produce("t", 0, acks, &batch(&[value.as_bytes()], 1)))));
    }
    connection.send(&all).expect("sent");
    for id in (1..20).step_by(2) {
        let answer = connection.receive().expect("an answer");
        assert_eq!(Decoder::new(&answer).i32(), id, "only acks=1 is answered");
        assert_eq!(produce_answer(&answer[4..]), (0, i64::from(id)), "acks=0 records took their offsets in order");
    }
}
