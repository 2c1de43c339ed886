"""The suite of kafka-python, a client in Python alone.

Holds: the cases. Never touches: groups (consumers are assigned their partitions).
"""
import time
from contextlib import closing

from client import NAME, Client
from interop import CODECS, Cases, Record, equal, eventually, expected_in, fails, first_not_older, load_fixtures, same_records, without_traits
from kafka import OffsetSpec, TopicPartition
from kafka import errors
from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType

# kafka-python refuses a record with neither key nor value, and a header without a value.
TRAITS_MISSING = ["hollow", "null-header"]
FIXTURES = without_traits(load_fixtures(), TRAITS_MISSING)
client = Client()
cases = Cases()


def cross_topic(codec):
    return ".".join(["cross", NAME, codec, "without", *TRAITS_MISSING])


def round_trip(topic, **settings):
    client.create(topic)
    client.send(topic, FIXTURES, **settings)
    same_records(FIXTURES, client.read(topic, len(FIXTURES)), topic)


def record_cases():
    for codec in CODECS:
        cases.run(f"records come back identical, compression {codec}",
                  lambda: round_trip(cross_topic(codec), compression_type=None if codec == "none" else codec))
    for acks in (0, 1, "all"):
        cases.run(f"records come back identical, acks {acks}",
                  lambda: round_trip(f"{NAME}.acks.{acks}", acks=acks, enable_idempotence=False,
                                     max_in_flight_requests_per_connection=1))
    cases.run("an idempotent producer's small batches arrive once and in order", idempotent)
    cases.run("records that other clients wrote are identical", cross)


def idempotent():
    topic = f"{NAME}.idempotent"
    client.create(topic)
    many = FIXTURES * 10
    client.send(topic, many, enable_idempotence=True, batch_size=200)
    same_records(many, client.read(topic, len(many)), topic)


def cross():
    topics = sorted(name for name in client.admin.list_topics() if name.startswith("cross."))
    equal(True, len(topics) >= len(CODECS), "topics to read")
    for topic in topics:
        expected = expected_in(topic)
        same_records(expected, client.read(topic, len(expected)), topic)


def offsets_for_times():
    partition = TopicPartition(cross_topic("lz4"), 0)
    with client.consumer() as consumer:
        for record in FIXTURES:
            for timestamp in (record.timestamp - 1, record.timestamp, record.timestamp + 1):
                found = consumer.offsets_for_times({partition: timestamp})[partition]
                equal(first_not_older(FIXTURES, timestamp), -1 if found is None else found.offset, f"offset for {timestamp}")


def read_from_time():
    partition = TopicPartition(cross_topic("gzip"), 0)
    with client.consumer() as consumer:
        start = consumer.offsets_for_times({partition: FIXTURES[8].timestamp - 500})[partition].offset
    same_records(FIXTURES[8:], client.read(partition.topic, len(FIXTURES) - 8, start), "from a time on")


def beginning_and_end():
    partition = TopicPartition(cross_topic("none"), 0)
    with client.consumer() as consumer:
        equal({partition: 0}, consumer.beginning_offsets([partition]), "beginning")
        equal({partition: len(FIXTURES)}, consumer.end_offsets([partition]), "end")


def list_offsets():
    partition = TopicPartition(cross_topic("none"), 0)
    newest = max(range(len(FIXTURES)), key=lambda i: FIXTURES[i].timestamp)
    for spec, expected in ((OffsetSpec.EARLIEST, 0), (OffsetSpec.LATEST, len(FIXTURES)), (OffsetSpec.MAX_TIMESTAMP, newest),
                           (OffsetSpec.EARLIEST_LOCAL, 0), (FIXTURES[3].timestamp, 3)):
        equal(expected, client.admin.list_partition_offsets({partition: spec})[partition].offset, str(spec))


ADMIN_TOPIC = f"{NAME}.admin"


def create_and_describe():
    client.create(ADMIN_TOPIC, 3, {"retention.ms": "7200000"})
    described = client.describe(ADMIN_TOPIC)
    equal([(0, 1), (1, 1), (2, 1)],
          sorted((partition["partition_index"], partition["leader_id"]) for partition in described["partitions"]), "partitions and leaders")


def describe_cluster():
    cluster = client.admin.describe_cluster()
    equal([1], [node["broker_id"] for node in cluster["brokers"]], "nodes")
    equal(1, cluster["controller_id"], "controller")


def config(name):
    described = client.admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, ADMIN_TOPIC)], config_filter="all")
    return described["topic"][ADMIN_TOPIC][name]["value"]


def alter(name, operation, value, **options):
    resource = ConfigResource(ConfigResourceType.TOPIC, ADMIN_TOPIC, {name: (operation, value)})
    return client.admin.alter_configs([resource], **options)["topic"][ADMIN_TOPIC]


def alter_configs():
    for operation, name, value, after in (
            (AlterConfigOp.SET, "segment.bytes", "2097152", "2097152"),
            (AlterConfigOp.APPEND, "cleanup.policy", "compact", "delete,compact"),
            (AlterConfigOp.SUBTRACT, "cleanup.policy", "compact", "delete"),
            (AlterConfigOp.DELETE, "segment.bytes", None, "1073741824")):
        alter(name, operation, value)
        eventually(lambda: equal(after, config(name), f"{name} after {operation}"))


def list_config_resources():
    equal(True, ADMIN_TOPIC in client.admin.list_config_resources(["TOPIC"])["topic"], "the topic is listed")


def create_partitions():
    client.admin.create_partitions({ADMIN_TOPIC: 5})
    eventually(lambda: equal(5, len(client.describe(ADMIN_TOPIC)["partitions"]), "partitions"))


def delete_records():
    topic = f"{NAME}.delete-records"
    client.create(topic)
    client.send(topic, FIXTURES)
    partition = TopicPartition(topic, 0)
    equal(4, client.admin.delete_records({partition: 4})[partition]["low_watermark"], "low watermark")
    same_records(FIXTURES[4:], client.read(topic, len(FIXTURES) - 4), "what is left")


def describe_log_dirs():
    answers = client.admin.describe_log_dirs({cross_topic("none"): [0]})
    sizes = [partition["partition_size"] for answer in answers for found in answer["log_dirs"]
             for topic in found["topics"] for partition in topic["partitions"]]
    equal(True, len(sizes) == 1 and sizes[0] > 64 * 1024, f"one partition of more than 64 KiB in {answers}")


def describe_producers():
    partition = TopicPartition(f"{NAME}.idempotent", 0)
    producers = client.admin.describe_producers([partition])[partition].active_producers
    equal([len(FIXTURES) * 10 - 1], [producer.last_sequence for producer in producers], "last sequences")


def delete_topic():
    topic = f"{NAME}.gone"
    client.create(topic)
    client.admin.delete_topics([topic])
    eventually(lambda: fails(type, errors.UnknownTopicOrPartitionError, lambda: client.describe(topic)))


def admin_cases():
    cases.run("offsets for times find the first record that is not older", offsets_for_times)
    cases.run("reading from a time yields the records from there on", read_from_time)
    cases.run("beginning and end", beginning_and_end)
    cases.run("list offsets: earliest, latest, newest timestamp, by time", list_offsets)
    cases.run("create and describe a topic", create_and_describe)
    cases.run("describe cluster names one node, which is the controller", describe_cluster)
    cases.run("alter configs incrementally: set, append, subtract, delete", alter_configs)
    cases.run("list config resources", list_config_resources)
    cases.run("create partitions", create_partitions)
    cases.run("delete records moves the beginning", delete_records)
    cases.run("describe log dirs shows a partition's size", describe_log_dirs)
    cases.run("describe producers shows an idempotent producer", describe_producers)
    cases.run("delete a topic", delete_topic)


def now_ms():
    return int(time.time() * 1000)


def create(name, partitions=1, replicas=1, configs=None):
    client.admin.create_topics({name: {"num_partitions": partitions, "replication_factor": replicas, "configs": configs or {}}})


def produce_one(topic, value, timestamp=None):
    client.send(topic, [Record(None, value, (), timestamp or now_ms())])


def fetch_out_of_range():
    with client.consumer(auto_offset_reset="none") as consumer:
        partition = TopicPartition(f"{NAME}.errors", 0)
        consumer.assign([partition])
        consumer.seek(partition, 1000)
        consumer.poll(10000)


def error_cases():
    topic = f"{NAME}.errors"
    cases.run("a topic is created for the error cases", lambda: client.create(topic, 1, {"max.message.bytes": "1000"}))
    for name, expected, body in (
            ("create topic: it exists already", errors.TopicAlreadyExistsError, lambda: create(topic)),
            ("create topic: an illegal name", errors.InvalidTopicError, lambda: create("no spaces!")),
            ("create topic: no partitions", errors.InvalidPartitionsError, lambda: create(f"{NAME}.none", partitions=0)),
            ("create topic: more replicas than brokers", errors.InvalidReplicationFactorError, lambda: create(f"{NAME}.rf", replicas=3)),
            ("create topic: an unknown config", errors.InvalidConfigurationError,
             lambda: create(f"{NAME}.cfg", configs={"no.such.config": "1"})),
            ("create partitions: fewer than there are", errors.InvalidPartitionsError,
             lambda: client.admin.create_partitions({ADMIN_TOPIC: 1})),
            ("describe topic: unknown", errors.UnknownTopicOrPartitionError, lambda: client.describe(f"{NAME}.unknown")),
            ("delete topic: unknown", errors.UnknownTopicOrPartitionError, lambda: client.admin.delete_topics([f"{NAME}.unknown"])),
            ("produce: a record too large for the topic", errors.MessageSizeTooLargeError, lambda: produce_one(topic, bytes(2000))),
            ("produce: a timestamp too far ahead", errors.InvalidTimestampError, lambda: produce_one(topic, b"v", now_ms() + 7_200_000)),
            ("fetch: an offset out of range", errors.OffsetOutOfRangeError, fetch_out_of_range)):
        cases.run(name, lambda: fails(type, expected, body))


record_cases()
admin_cases()
error_cases()
with closing(client.admin):
    cases.finish()
