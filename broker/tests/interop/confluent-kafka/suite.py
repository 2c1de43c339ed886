"""The suite of confluent-kafka, and so of librdkafka as it is today.

Holds: the cases. Never touches: groups (consumers are assigned their partitions).
"""
import time

from client import NAME, Client
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic, OffsetSpec,
                                   ResourceType)
from interop import CODECS, Cases, equal, eventually, expected_in, fails, first_not_older, load_fixtures, same_records

FIXTURES = load_fixtures()
client = Client()
cases = Cases()


def code_of(raised):
    return raised.args[0].code() if isinstance(raised, KafkaException) else raised


def round_trip(topic, settings):
    client.create(topic)
    client.send(topic, FIXTURES, settings)
    same_records(FIXTURES, client.read(topic, len(FIXTURES)), topic)


def record_cases():
    for codec in CODECS:
        cases.run(f"records come back identical, compression {codec}",
                  lambda: round_trip(f"cross.{NAME}.{codec}", {"compression.type": codec}))
    for acks in ("0", "1", "all"):
        cases.run(f"records come back identical, acks {acks}", lambda: round_trip(f"{NAME}.acks.{acks}", {"acks": acks}))
    cases.run("an idempotent producer's small batches arrive once and in order", idempotent)
    cases.run("records that other clients wrote are identical", cross)


def idempotent():
    topic = f"{NAME}.idempotent"
    client.create(topic)
    many = FIXTURES * 20
    client.send(topic, many, {"enable.idempotence": True, "batch.num.messages": 7})
    same_records(many, client.read(topic, len(many)), topic)


def cross():
    topics = sorted(name for name in client.admin.list_topics(timeout=10).topics if name.startswith("cross."))
    equal(True, len(topics) >= len(CODECS), "topics to read")
    for topic in topics:
        expected = expected_in(topic)
        same_records(expected, client.read(topic, len(expected)), topic)


def offsets_for_times():
    topic = f"cross.{NAME}.lz4"
    with client.consumer() as consumer:
        for record in FIXTURES:
            for timestamp in (record.timestamp - 1, record.timestamp, record.timestamp + 1):
                found = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp)], timeout=10)[0]
                expected = first_not_older(FIXTURES, timestamp)
                # librdkafka turns "none" into its own mark for the end.
                equal(expected, -1 if found.offset < 0 else found.offset, f"offset for {timestamp}")


def read_from_time():
    topic = f"cross.{NAME}.gzip"
    with client.consumer() as consumer:
        start = consumer.offsets_for_times([TopicPartition(topic, 0, FIXTURES[8].timestamp - 500)], timeout=10)[0].offset
    same_records(FIXTURES[8:], client.read(topic, len(FIXTURES) - 8, start), "from a time on")


def watermarks():
    with client.consumer() as consumer:
        equal((0, len(FIXTURES)), consumer.get_watermark_offsets(TopicPartition(f"cross.{NAME}.none", 0), timeout=10), "low and high")


def list_offsets():
    partition = TopicPartition(f"cross.{NAME}.none", 0)
    newest = max(range(len(FIXTURES)), key=lambda i: FIXTURES[i].timestamp)
    for spec, expected in ((OffsetSpec.earliest(), 0), (OffsetSpec.latest(), len(FIXTURES)), (OffsetSpec.max_timestamp(), newest),
                           (OffsetSpec.for_timestamp(FIXTURES[3].timestamp), 3)):
        equal(expected, client.admin.list_offsets({partition: spec})[partition].result().offset, str(spec))


ADMIN_TOPIC = f"{NAME}.admin"
RESOURCE = ConfigResource(ResourceType.TOPIC, ADMIN_TOPIC)


def create_and_describe():
    client.create(ADMIN_TOPIC, 3, {"retention.ms": "7200000"})
    metadata = client.admin.list_topics(ADMIN_TOPIC, timeout=10).topics[ADMIN_TOPIC]
    equal([0, 1, 2], sorted(metadata.partitions), "partitions in the metadata")
    described = client.describe(ADMIN_TOPIC)
    equal([(0, 1), (1, 1), (2, 1)], [(partition.id, partition.leader.id) for partition in described.partitions], "partitions and leaders")


def describe_cluster():
    cluster = client.admin.describe_cluster(request_timeout=10).result()
    equal([1], [node.id for node in cluster.nodes], "nodes")
    equal(1, cluster.controller.id, "controller")


def config(name):
    return client.admin.describe_configs([RESOURCE])[RESOURCE].result()[name].value


def alter_configs():
    for operation, name, value, after in (
            (AlterConfigOpType.SET, "segment.bytes", "2097152", "2097152"),
            (AlterConfigOpType.APPEND, "cleanup.policy", "compact", "delete,compact"),
            (AlterConfigOpType.SUBTRACT, "cleanup.policy", "compact", "delete"),
            (AlterConfigOpType.DELETE, "segment.bytes", None, "1073741824")):
        alter(name, value, operation)
        eventually(lambda: equal(after, config(name), f"{name} after {operation}"))


def alter(name, value, operation=AlterConfigOpType.SET):
    change = ConfigResource(ResourceType.TOPIC, ADMIN_TOPIC,
                            incremental_configs=[ConfigEntry(name, value, incremental_operation=operation)])
    client.admin.incremental_alter_configs([change])[change].result()


def create_partitions():
    client.admin.create_partitions([NewPartitions(ADMIN_TOPIC, 5)])[ADMIN_TOPIC].result()
    eventually(lambda: equal(5, len(client.describe(ADMIN_TOPIC).partitions), "partitions"))


def delete_records():
    topic = f"{NAME}.delete-records"
    client.create(topic)
    client.send(topic, FIXTURES, {})
    asked = TopicPartition(topic, 0, 4)
    equal(4, client.admin.delete_records([asked])[asked].result().low_watermark, "low watermark")
    same_records(FIXTURES[4:], client.read(topic, len(FIXTURES) - 4, 4), "what is left")


def delete_topic():
    topic = f"{NAME}.gone"
    client.create(topic)
    client.admin.delete_topics([topic])[topic].result()
    eventually(lambda: fails(code_of, KafkaError.UNKNOWN_TOPIC_OR_PART, lambda: client.describe(topic)))


def admin_cases():
    cases.run("offsets for times find the first record that is not older", offsets_for_times)
    cases.run("reading from a time yields the records from there on", read_from_time)
    cases.run("low and high watermark", watermarks)
    cases.run("list offsets: earliest, latest, newest timestamp, by time", list_offsets)
    cases.run("create and describe a topic", create_and_describe)
    cases.run("describe cluster names one node, which is the controller", describe_cluster)
    cases.run("alter configs incrementally: set, append, subtract, delete", alter_configs)
    cases.run("create partitions", create_partitions)
    cases.run("delete records moves the beginning", delete_records)
    cases.run("delete a topic", delete_topic)


def create(name, partitions=1, replicas=1, configs=None):
    client.admin.create_topics([NewTopic(name, partitions, replicas, config=configs or {})])[name].result()


def produce_one(topic, value, timestamp=None, **settings):
    delivered = []
    producer = client.producer(settings)
    producer.produce(topic, value, partition=0, timestamp=timestamp or int(time.time() * 1000),
                     on_delivery=lambda error, _: delivered.append(error))
    producer.flush(15)
    if delivered[0] is not None:
        raise KafkaException(delivered[0])


def fetch_out_of_range():
    with client.consumer({"auto.offset.reset": "error"}) as consumer:
        consumer.assign([TopicPartition(f"{NAME}.errors", 0, 1000)])
        message = consumer.poll(15)
        raise KafkaException(message.error())


def error_cases():
    topic = f"{NAME}.errors"
    cases.run("a topic is created for the error cases", lambda: client.create(topic, 1, {"max.message.bytes": "1000"}))
    for name, expected, body in (
            ("create topic: it exists already", KafkaError.TOPIC_ALREADY_EXISTS, lambda: create(topic)),
            ("create topic: an illegal name", KafkaError.TOPIC_EXCEPTION, lambda: create("no spaces!")),
            ("create topic: no partitions", KafkaError.INVALID_PARTITIONS, lambda: create(f"{NAME}.none", partitions=0)),
            ("create topic: more replicas than brokers", KafkaError.INVALID_REPLICATION_FACTOR, lambda: create(f"{NAME}.rf", replicas=3)),
            ("create topic: an unknown config", KafkaError.INVALID_CONFIG, lambda: create(f"{NAME}.cfg", configs={"no.such.config": "1"})),
            ("alter configs: an unknown name", KafkaError.INVALID_CONFIG, lambda: alter("no.such.config", "1")),
            ("create partitions: fewer than there are", KafkaError.INVALID_PARTITIONS,
             lambda: client.admin.create_partitions([NewPartitions(ADMIN_TOPIC, 1)])[ADMIN_TOPIC].result()),
            ("describe topic: unknown", KafkaError.UNKNOWN_TOPIC_OR_PART, lambda: client.describe(f"{NAME}.unknown")),
            ("delete topic: unknown", KafkaError.UNKNOWN_TOPIC_OR_PART,
             lambda: client.admin.delete_topics([f"{NAME}.unknown"])[f"{NAME}.unknown"].result()),
            ("produce: a record too large for the topic", KafkaError.MSG_SIZE_TOO_LARGE, lambda: produce_one(topic, bytes(2000))),
            ("produce: a timestamp too far ahead", KafkaError.INVALID_TIMESTAMP,
             lambda: produce_one(topic, b"v", int(time.time() * 1000) + 7_200_000)),
            ("produce: a partition that is not there", KafkaError._UNKNOWN_PARTITION,
             lambda: client.send(topic, FIXTURES[:1], {"message.timeout.ms": 3000}, partition=9)),
            ("fetch: an offset out of range", KafkaError._AUTO_OFFSET_RESET, fetch_out_of_range)):
        cases.run(name, lambda: fails(code_of, expected, body))


record_cases()
admin_cases()
error_cases()
cases.finish()
