package corelog.interop.clients;

import corelog.interop.common.Cases;
import corelog.interop.common.Check;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsResult;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.ListConfigResourcesOptions;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/** The admin calls and what they must have done. */
final class AdminCases {
    private static final String TOPIC = "java.admin";
    private static final ConfigResource TOPIC_CONFIG = new ConfigResource(ConfigResource.Type.TOPIC, TOPIC);

    private final Broker broker;
    private final Cases cases;

    AdminCases(Broker broker, Cases cases) {
        this.broker = broker;
        this.cases = cases;
    }

    void run() {
        cases.run("create topics answers id, partitions and configs", this::createTopic);
        cases.run("describe topics by name and by id", this::describeTopic);
        cases.run("describe cluster names one node, which is the controller", this::describeCluster);
        cases.run("describe configs: values and sources", this::describeConfigs);
        cases.run("alter configs incrementally: set, append, subtract, delete", this::alterConfigs);
        cases.run("list config resources names the topic with its own configs", this::listConfigResources);
        cases.run("create partitions adds empty partitions", this::createPartitions);
        cases.run("delete records moves the beginning", this::deleteRecords);
        cases.run("describe log dirs shows the topic's sizes", this::describeLogDirs);
        cases.run("describe producers shows an idempotent producer", this::describeProducers);
        cases.run("describe features names metadata.version", this::describeFeatures);
        cases.run("delete topics by name and by id", this::deleteTopics);
        cases.run("a topic created again has a new id and no old record", this::recreateTopic);
    }

    private void createTopic() throws Exception {
        CreateTopicsResult result = broker.admin.createTopics(
            List.of(new NewTopic(TOPIC, 3, (short) 1).configs(Map.of("retention.ms", "7200000"))));
        Check.equal(3, result.numPartitions(TOPIC).get(), "partitions");
        Check.equal(1, result.replicationFactor(TOPIC).get(), "replication factor");
        Check.that(!result.topicId(TOPIC).get().equals(Uuid.ZERO_UUID), "a topic id");
        Check.equal("7200000", result.config(TOPIC).get().get("retention.ms").value(), "config given back");
        Check.eventually(() -> broker.describe(TOPIC));
    }

    private void describeTopic() throws Exception {
        TopicDescription byName = broker.describe(TOPIC);
        Check.equal(TOPIC, byName.name(), "name");
        Check.equal(false, byName.isInternal(), "internal");
        Check.equal(List.of(0, 1, 2), byName.partitions().stream().map(p -> p.partition()).toList(), "partitions");
        byName.partitions().forEach(partition -> {
            Check.equal(1, partition.leader().id(), "leader");
            Check.equal(List.of(1), partition.replicas().stream().map(Node::id).toList(), "replicas");
            Check.equal(List.of(1), partition.isr().stream().map(Node::id).toList(), "in-sync replicas");
        });
        TopicDescription byId = broker.admin.describeTopics(TopicCollection.ofTopicIds(List.of(byName.topicId())))
            .allTopicIds().get().get(byName.topicId());
        // Only the call by name (DescribeTopicPartitions) tells the eligible leaders: all else must be the same.
        Check.equal(withoutEligibleLeaders(byName), withoutEligibleLeaders(byId), "description by id");
        Check.that(broker.admin.listTopics().names().get().contains(TOPIC), "the topic in the list");
    }

    private static TopicDescription withoutEligibleLeaders(TopicDescription topic) {
        List<TopicPartitionInfo> partitions = topic.partitions().stream()
            .map(p -> new TopicPartitionInfo(p.partition(), p.leader(), p.replicas(), p.isr())).toList();
        return new TopicDescription(topic.name(), topic.isInternal(), partitions, topic.authorizedOperations(), topic.topicId());
    }

    private void describeCluster() throws Exception {
        DescribeClusterResult cluster = broker.admin.describeCluster();
        Check.equal(List.of(1), cluster.nodes().get().stream().map(Node::id).toList(), "nodes");
        Check.equal(1, cluster.controller().get().id(), "controller");
        Check.equal(22, cluster.clusterId().get().length(), "length of the cluster id");
    }

    private ConfigEntry config(ConfigResource resource, String name) throws Exception {
        return broker.admin.describeConfigs(List.of(resource)).all().get().get(resource).get(name);
    }

    private void describeConfigs() throws Exception {
        ConfigEntry own = config(TOPIC_CONFIG, "retention.ms");
        Check.equal("7200000", own.value(), "retention.ms");
        Check.equal(ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, own.source(), "source of retention.ms");
        ConfigEntry byDefault = config(TOPIC_CONFIG, "max.message.bytes");
        Check.equal("1048588", byDefault.value(), "max.message.bytes");
        Check.equal(ConfigEntry.ConfigSource.DEFAULT_CONFIG, byDefault.source(), "source of max.message.bytes");
        ConfigEntry ofBroker = config(new ConfigResource(ConfigResource.Type.BROKER, "1"), "message.max.bytes");
        Check.equal("1048588", ofBroker.value(), "message.max.bytes of the broker");
    }

    private void alter(ConfigResource resource, String name, String value, OpType operation) throws Exception {
        Collection<AlterConfigOp> operations = List.of(new AlterConfigOp(new ConfigEntry(name, value), operation));
        broker.admin.incrementalAlterConfigs(Map.of(resource, operations)).all().get();
    }

    private void alterConfigs() throws Exception {
        alterAndCheck("segment.bytes", "2097152", OpType.SET, "2097152", ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG);
        alterAndCheck("cleanup.policy", "compact", OpType.APPEND, "delete,compact", ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG);
        alterAndCheck("cleanup.policy", "compact", OpType.SUBTRACT, "delete", ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG);
        alterAndCheck("segment.bytes", "", OpType.DELETE, "1073741824", ConfigEntry.ConfigSource.DEFAULT_CONFIG);
    }

    private void alterAndCheck(String name, String value, OpType operation, String after, ConfigEntry.ConfigSource source)
            throws Exception {
        alter(TOPIC_CONFIG, name, value, operation);
        Check.eventually(() -> {
            ConfigEntry entry = config(TOPIC_CONFIG, name);
            Check.equal(after, entry.value(), name + " after " + operation);
            Check.equal(source, entry.source(), "source of " + name + " after " + operation);
        });
    }

    private void listConfigResources() throws Exception {
        Collection<ConfigResource> resources = broker.admin.listConfigResources(Set.of(ConfigResource.Type.TOPIC),
            new ListConfigResourcesOptions()).all().get();
        Check.that(resources.contains(TOPIC_CONFIG), "the topic among " + resources);
    }

    private void createPartitions() throws Exception {
        broker.admin.createPartitions(Map.of(TOPIC, NewPartitions.increaseTo(5))).all().get();
        Check.eventually(() -> Check.equal(5, broker.describe(TOPIC).partitions().size(), "partitions"));
        write(TOPIC, 4, 3);
        Check.equal(3, broker.readAll(TOPIC, 5, 3, Map.of()).size(), "records in the new partition");
    }

    private void write(String topic, int partition, int count) throws Exception {
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        IntStream.range(0, count).forEach(i ->
            records.add(new ProducerRecord<>(topic, partition, null, ("record " + i).getBytes(StandardCharsets.UTF_8))));
        broker.send(Map.of(), records);
    }

    private void deleteRecords() throws Exception {
        TopicPartition partition = new TopicPartition("java.delete-records", 0);
        broker.createTopic(partition.topic(), 1, Map.of());
        write(partition.topic(), 0, 10);
        Check.equal(4L, deleteBefore(partition, 4), "low watermark");
        List<ConsumerRecord<byte[], byte[]>> rest = broker.readAll(partition.topic(), 1, 6, Map.of());
        Check.equal(List.of(4L, 5L, 6L, 7L, 8L, 9L), rest.stream().map(ConsumerRecord::offset).toList(), "offsets left");
        Check.equal(10L, deleteBefore(partition, -1), "low watermark after deleting all");
        Check.equal(10L, broker.admin.listOffsets(Map.of(partition, OffsetSpec.earliest())).partitionResult(partition).get().offset(),
            "earliest after deleting all");
    }

    private long deleteBefore(TopicPartition partition, long offset) throws Exception {
        return broker.admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(offset)))
            .lowWatermarks().get(partition).get().lowWatermark();
    }

    private void describeLogDirs() throws Exception {
        Map<String, LogDirDescription> dirs = broker.admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1);
        Check.equal(1, dirs.size(), "folders");
        LogDirDescription dir = dirs.values().iterator().next();
        Check.equal(null, dir.error(), "error");
        Check.that(dir.totalBytes().orElse(0) > 0, "the volume's size");
        Check.that(dir.replicaInfos().get(new TopicPartition("java.idempotent", 0)).size() > 0, "the size of a partition with records");
        Check.equal(0L, dir.replicaInfos().get(new TopicPartition(TOPIC, 0)).size(), "size of an empty partition");
    }

    private void describeProducers() throws Exception {
        TopicPartition partition = new TopicPartition("java.idempotent", 0);
        var states = broker.admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers();
        Check.equal(1, states.size(), "producers");
        Check.equal(1_999, states.get(0).lastSequence(), "last sequence");
        Check.equal(0, states.get(0).producerEpoch(), "producer epoch");
    }

    private void describeFeatures() throws Exception {
        var features = broker.admin.describeFeatures().featureMetadata().get();
        Check.that(features.finalizedFeatures().containsKey("metadata.version"), "metadata.version finalized");
        Check.that(features.supportedFeatures().containsKey("metadata.version"), "metadata.version supported");
    }

    private void deleteTopics() throws Exception {
        broker.createTopic("java.gone.by-name", 1, Map.of());
        broker.createTopic("java.gone.by-id", 1, Map.of());
        Uuid id = broker.describe("java.gone.by-id").topicId();
        broker.admin.deleteTopics(List.of("java.gone.by-name")).all().get();
        broker.admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all().get();
        for (String gone : List.of("java.gone.by-name", "java.gone.by-id")) {
            Check.eventually(() -> Check.fails(UnknownTopicOrPartitionException.class, () -> broker.describe(gone)));
        }
    }

    private void recreateTopic() throws Exception {
        String topic = "java.recreated";
        broker.createTopic(topic, 1, Map.of());
        write(topic, 0, 5);
        Uuid before = broker.describe(topic).topicId();
        broker.admin.deleteTopics(List.of(topic)).all().get();
        broker.createTopic(topic, 1, Map.of());
        Check.eventually(() -> Check.that(!broker.describe(topic).topicId().equals(before), "a new topic id"));
        write(topic, 0, 2);
        Check.equal(List.of(0L, 1L), broker.readAll(topic, 1, 2, Map.of()).stream().map(ConsumerRecord::offset).toList(), "offsets");
    }
}
