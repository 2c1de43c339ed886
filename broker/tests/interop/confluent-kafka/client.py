"""confluent-kafka as the cases use it.

Holds: producers, assigned consumers and the admin client with the settings of this suite. Never touches: expectations.
"""
import time
from contextlib import contextmanager

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from interop import BOOTSTRAP, READ_S_MAX, Record, eventually

NAME = "confluent-kafka"
# librdkafka wants a group's name even where only assignment is used; nothing is ever committed to it.
UNUSED_GROUP = "unused"


class Client:
    def __init__(self):
        self.admin = AdminClient({"bootstrap.servers": BOOTSTRAP})

    def create(self, topic, partitions=1, configs=None):
        self.admin.create_topics([NewTopic(topic, partitions, 1, config=configs or {})])[topic].result()
        eventually(lambda: self.describe(topic))

    def describe(self, topic):
        return self.admin.describe_topics(TopicCollection([topic]), request_timeout=10)[topic].result()

    def producer(self, settings):
        return Producer({"bootstrap.servers": BOOTSTRAP, "linger.ms": 5, "message.timeout.ms": 15000, **settings})

    def send(self, topic, records, settings, partition=0):
        """Produces in order and waits for every delivery report; the first error is raised."""
        errors = []
        producer = self.producer(settings)
        for record in records:
            producer.produce(topic, key=record.key, value=record.value, headers=list(record.headers), partition=partition,
                             timestamp=record.timestamp, on_delivery=lambda error, _: error and errors.append(error))
        if producer.flush(20):
            raise AssertionError("records left in the queue after 20 s")
        if errors:
            raise KafkaException(errors[0])

    @contextmanager
    def consumer(self, settings=None):
        consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": UNUSED_GROUP, "enable.auto.commit": False,
                             "enable.auto.offset.store": False, "auto.offset.reset": "earliest", "check.crcs": True,
                             **(settings or {})})
        try:
            yield consumer
        finally:
            consumer.close()

    def read(self, topic, count, offset=OFFSET_BEGINNING) -> list[Record]:
        """Reads partition 0 until `count` records came, then looks once more for one too many."""
        records = []
        with self.consumer() as consumer:
            consumer.assign([TopicPartition(topic, 0, offset)])
            deadline = time.monotonic() + READ_S_MAX
            while len(records) < count and time.monotonic() < deadline:
                records.extend(map(record_of, consumer.consume(count, timeout=0.2)))
            records.extend(map(record_of, consumer.consume(1, timeout=0.05)))
        return records


def record_of(message) -> Record:
    if message.error():
        raise KafkaException(message.error())
    return Record(message.key(), message.value(), tuple(message.headers() or ()), message.timestamp()[1])
