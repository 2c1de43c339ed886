"""kafka-python as the cases use it.

Holds: producers, assigned consumers and the admin client with the settings of this suite. Never touches: expectations.
"""
import time
from contextlib import closing

from interop import BOOTSTRAP, READ_S_MAX, Record, eventually
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import for_code

NAME = "kafka-python"
NO_ERROR = 0


class Client:
    def __init__(self):
        self.admin = KafkaAdminClient(bootstrap_servers=BOOTSTRAP)

    def create(self, topic, partitions=1, configs=None, replicas=1):
        self.admin.create_topics({topic: {"num_partitions": partitions, "replication_factor": replicas, "configs": configs or {}}})
        eventually(lambda: self.describe(topic))

    def describe(self, topic):
        """The topic's metadata; an error in it is raised, and so is a partition that has none to lead it yet."""
        described = self.admin.describe_topics([topic])[0]
        for part in [described, *described["partitions"]]:
            if part["error_code"] != NO_ERROR:
                raise for_code(part["error_code"])()
        return described

    def producer(self, **settings):
        return KafkaProducer(bootstrap_servers=BOOTSTRAP, linger_ms=5, max_block_ms=5000, delivery_timeout_ms=15000,
                             request_timeout_ms=10000, **settings)

    def send(self, topic, records, partition=0, **settings):
        """Produces in order and waits for every acknowledgement; the first error is raised."""
        with closing(self.producer(**settings)) as producer:
            sent = [producer.send(topic, key=record.key, value=record.value, headers=list(record.headers), partition=partition,
                                  timestamp_ms=record.timestamp) for record in records]
            producer.flush(20)
            for future in sent:
                future.get(20)

    def consumer(self, **settings):
        """Has no group: assignment only."""
        return closing(KafkaConsumer(bootstrap_servers=BOOTSTRAP, group_id=None, enable_auto_commit=False, check_crcs=True,
                                     **{"auto_offset_reset": "earliest", **settings}))

    def read(self, topic, count, offset=None) -> list[Record]:
        """Reads partition 0 until `count` records came, then looks once more for one too many."""
        partition = TopicPartition(topic, 0)
        records = []
        with self.consumer() as consumer:
            consumer.assign([partition])
            if offset is None:
                consumer.seek_to_beginning(partition)
            else:
                consumer.seek(partition, offset)
            deadline = time.monotonic() + READ_S_MAX
            while len(records) < count and time.monotonic() < deadline:
                records.extend(polled(consumer, 200))
            records.extend(polled(consumer, 50))
        return records


def polled(consumer, timeout_ms) -> list[Record]:
    return [Record(record.key, record.value, tuple(record.headers), record.timestamp)
            for records in consumer.poll(timeout_ms).values() for record in records]
