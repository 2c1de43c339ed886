package corelog.interop.clients;

import corelog.interop.common.Cases;
import corelog.interop.common.Check;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.InvalidReplicationFactorException;
import org.apache.kafka.common.errors.InvalidTimestampException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicIdException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/** What is refused, with the exception (and, where users read it, the message) that Kafka gives. */
final class ErrorCases {
    private static final String TOPIC = "java.errors";
    private static final long HOUR_MS = 3_600_000;

    private final Broker broker;
    private final Cases cases;

    ErrorCases(Broker broker, Cases cases) {
        this.broker = broker;
        this.cases = cases;
    }

    void run() {
        cases.run("a topic is created for the error cases", () -> broker.createTopic(TOPIC, 2, Map.of("max.message.bytes", "1000")));
        cases.run("create topic: it exists already", () -> Check.fails(TopicExistsException.class,
            "Topic 'java.errors' already exists.", () -> broker.createTopic(TOPIC, 1, Map.of())));
        cases.run("create topic: an illegal name", () -> Check.fails(InvalidTopicException.class,
            () -> broker.createTopic("no spaces!", 1, Map.of())));
        cases.run("create topic: a name that collides in metrics", () -> Check.fails(InvalidTopicException.class,
            () -> broker.createTopic("java_errors", 1, Map.of())));
        cases.run("create topic: no partitions", () -> Check.fails(InvalidPartitionsException.class,
            () -> broker.createTopic("java.errors.none", 0, Map.of())));
        cases.run("create topic: more replicas than brokers", () -> Check.fails(InvalidReplicationFactorException.class,
            () -> broker.admin.createTopics(List.of(new NewTopic("java.errors.rf", 1, (short) 3))).all().get()));
        cases.run("create topic: an unknown config", () -> Check.fails(InvalidConfigurationException.class,
            () -> broker.createTopic("java.errors.config", 1, Map.of("no.such.config", "1"))));
        cases.run("create topic: a value out of range", () -> Check.fails(InvalidConfigurationException.class,
            () -> broker.createTopic("java.errors.config", 1, Map.of("segment.bytes", "-5"))));
        cases.run("create partitions: fewer than there are", () -> Check.fails(InvalidPartitionsException.class,
            () -> broker.admin.createPartitions(Map.of(TOPIC, NewPartitions.increaseTo(1))).all().get()));
        cases.run("alter configs: an unknown name", () -> Check.fails(InvalidConfigurationException.class,
            () -> alter("no.such.config", "1")));
        cases.run("alter configs: a value that does not parse", () -> Check.fails(InvalidConfigurationException.class,
            () -> alter("retention.ms", "soon")));
        cases.run("describe topic: unknown name", () -> Check.fails(UnknownTopicOrPartitionException.class,
            () -> broker.admin.describeTopics(List.of("java.unknown")).allTopicNames().get()));
        cases.run("describe topic: unknown id", () -> Check.fails(UnknownTopicIdException.class,
            () -> broker.admin.describeTopics(TopicCollection.ofTopicIds(List.of(Uuid.randomUuid()))).allTopicIds().get()));
        cases.run("delete topic: unknown name", () -> Check.fails(UnknownTopicOrPartitionException.class,
            () -> broker.admin.deleteTopics(List.of("java.unknown")).all().get()));
        cases.run("delete topic: unknown id", () -> Check.fails(UnknownTopicIdException.class,
            () -> broker.admin.deleteTopics(TopicCollection.ofTopicIds(List.of(Uuid.randomUuid()))).all().get()));
        cases.run("delete records: beyond the end", this::deleteRecordsBeyondTheEnd);
        cases.run("list offsets: unknown topic", () -> Check.fails(UnknownTopicOrPartitionException.class,
            this::listOffsetsOfUnknownTopic));
        cases.run("produce: a record too large for the topic", () -> Check.fails(RecordTooLargeException.class,
            "The request included a message larger than the max message size the server will accept.",
            () -> produce(new ProducerRecord<>(TOPIC, 0, null, new byte[2_000]))));
        cases.run("produce: a timestamp too far ahead", () -> Check.fails(InvalidTimestampException.class,
            () -> produce(new ProducerRecord<>(TOPIC, 0, System.currentTimeMillis() + 2 * HOUR_MS, null, new byte[1]))));
        cases.run("produce: an illegal topic name", () -> Check.fails(InvalidTopicException.class,
            () -> produce(new ProducerRecord<>("no spaces!", 0, null, new byte[1]))));
        cases.run("produce: a partition that is not there", () -> Check.fails(TimeoutException.class,
            () -> broker.send(Map.of("max.block.ms", 1_000), List.of(new ProducerRecord<>(TOPIC, 99, null, new byte[1])))));
        cases.run("fetch: an offset out of range", () -> Check.fails(OffsetOutOfRangeException.class, this::fetchOutOfRange));
    }

    private void alter(String name, String value) throws Exception {
        Collection<AlterConfigOp> operations = List.of(new AlterConfigOp(new ConfigEntry(name, value), OpType.SET));
        broker.admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.TOPIC, TOPIC), operations)).all().get();
    }

    private void produce(ProducerRecord<byte[], byte[]> record) throws Exception {
        broker.send(Map.of(), List.of(record));
    }

    private void deleteRecordsBeyondTheEnd() {
        Check.fails(org.apache.kafka.common.errors.OffsetOutOfRangeException.class,
            () -> broker.admin.deleteRecords(Map.of(new TopicPartition(TOPIC, 1), RecordsToDelete.beforeOffset(5))).all().get());
    }

    private void listOffsetsOfUnknownTopic() throws Exception {
        TopicPartition unknown = new TopicPartition("java.unknown", 0);
        broker.admin.listOffsets(Map.of(unknown, OffsetSpec.latest())).partitionResult(unknown).get();
    }

    private void fetchOutOfRange() {
        TopicPartition partition = new TopicPartition(TOPIC, 1);
        try (Consumer<byte[], byte[]> consumer = broker.consumer(Map.of())) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 1_000);
            Broker.poll(consumer, 1);
        }
    }
}
