package corelog.interop.differential;

import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.CreateTopicsRequestData;
import org.apache.kafka.common.message.CreateTopicsRequestData.CreatableTopic;
import org.apache.kafka.common.message.CreateTopicsRequestData.CreatableTopicConfig;
import org.apache.kafka.common.message.CreateTopicsResponseData;
import org.apache.kafka.common.message.InitProducerIdRequestData;
import org.apache.kafka.common.message.InitProducerIdResponseData;
import org.apache.kafka.common.message.ListOffsetsRequestData;
import org.apache.kafka.common.message.ListOffsetsRequestData.ListOffsetsPartition;
import org.apache.kafka.common.message.ListOffsetsRequestData.ListOffsetsTopic;
import org.apache.kafka.common.message.ListOffsetsResponseData;
import org.apache.kafka.common.message.MetadataRequestData;
import org.apache.kafka.common.message.MetadataRequestData.MetadataRequestTopic;
import org.apache.kafka.common.message.MetadataResponseData;
import org.apache.kafka.common.message.MetadataResponseData.MetadataResponseTopic;
import org.apache.kafka.common.message.ProduceRequestData;
import org.apache.kafka.common.message.ProduceRequestData.PartitionProduceData;
import org.apache.kafka.common.message.ProduceRequestData.TopicProduceData;
import org.apache.kafka.common.message.ProduceResponseData;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.BaseRecords;

/** Preparation of a case: topics, records, producer ids. Not compared, so it must succeed or the case fails. */
public final class Setup {
    private static final long SETTLE_MS_MAX = 10_000;
    private static final long LATEST = -1;

    private final Exchange x;

    Setup(Exchange x) {
        this.x = x;
    }

    /** Something that becomes true a moment after it was asked for. */
    @FunctionalInterface
    public interface Condition {
        boolean holds() throws IOException;
    }

    /** Creates a topic and waits until its partitions serve; returns its id. */
    public Uuid topic(String name, int partitions, Map<String, String> configs) throws Exception {
        CreatableTopic topic = new CreatableTopic().setName(name).setNumPartitions(partitions).setReplicationFactor((short) 1);
        configs.forEach((key, value) -> topic.configs().add(new CreatableTopicConfig().setName(key).setValue(value)));
        CreateTopicsRequestData request = new CreateTopicsRequestData().setTimeoutMs(10_000);
        request.topics().add(topic);
        CreateTopicsResponseData response = x.call(ApiKeys.CREATE_TOPICS, request);
        var result = response.topics().find(name);
        must(result.errorCode(), "create topic " + name + ": " + result.errorMessage());
        awaitServing(name, partitions);
        x.learn(result.topicId(), name);
        return result.topicId();
    }

    public Uuid topic(String name, int partitions) throws Exception {
        return topic(name, partitions, Map.of());
    }

    /** Waits until each partition of a topic answers for its end: a controller answers before the broker has followed. */
    public void awaitServing(String topic, int partitions) throws Exception {
        await("partitions of " + topic + " to serve", () -> {
            for (int partition = 0; partition < partitions; partition++) {
                if (endOffset(topic, partition) < 0) {
                    return false;
                }
            }
            return true;
        });
    }

    /** Waits until Metadata no longer knows a topic. */
    public void awaitGone(String topic) throws Exception {
        await(topic + " to be gone", () -> describe(topic).errorCode() == Errors.UNKNOWN_TOPIC_OR_PARTITION.code());
    }

    public void await(String what, Condition condition) throws Exception {
        long deadline = System.nanoTime() + SETTLE_MS_MAX * 1_000_000;
        while (!condition.holds()) {
            if (System.nanoTime() > deadline) {
                throw new IOException("waited in vain for " + what);
            }
            Thread.sleep(5);
        }
    }

    public MetadataResponseTopic describe(String topic) throws IOException {
        MetadataRequestData request = new MetadataRequestData().setAllowAutoTopicCreation(false)
            .setTopics(List.of(new MetadataRequestTopic().setName(topic)));
        MetadataResponseData response = x.call(ApiKeys.METADATA, request);
        return response.topics().find(topic);
    }

    /** The log end offset, or -1 while the partition does not serve. */
    public long endOffset(String topic, int partition) throws IOException {
        ListOffsetsPartition asked = new ListOffsetsPartition().setPartitionIndex(partition).setTimestamp(LATEST);
        ListOffsetsRequestData request = new ListOffsetsRequestData().setReplicaId(-1)
            .setTopics(List.of(new ListOffsetsTopic().setName(topic).setPartitions(List.of(asked))));
        ListOffsetsResponseData response = x.call(ApiKeys.LIST_OFFSETS, request);
        var answered = response.topics().get(0).partitions().get(0);
        return answered.errorCode() == 0 ? answered.offset() : -1;
    }

    /** Appends records with acks=all. */
    public void produce(Uuid topicId, int partition, BaseRecords records) throws IOException {
        ProduceRequestData request = new ProduceRequestData().setAcks((short) -1).setTimeoutMs(10_000);
        TopicProduceData topic = new TopicProduceData().setTopicId(topicId);
        topic.partitionData().add(new PartitionProduceData().setIndex(partition).setRecords(records));
        request.topicData().add(topic);
        ProduceResponseData response = x.call(ApiKeys.PRODUCE, request);
        var answered = response.responses().iterator().next().partitionResponses().get(0);
        must(answered.errorCode(), "produce: " + answered.errorMessage());
    }

    /** A fresh producer id; Kafka answers "load in progress" while it is fetching a block of them. */
    public long producerId() throws Exception {
        InitProducerIdRequestData request = new InitProducerIdRequestData().setTransactionalId(null).setTransactionTimeoutMs(60_000);
        AtomicReference<InitProducerIdResponseData> given = new AtomicReference<>();
        await("a producer id", () -> {
            given.set(x.call(ApiKeys.INIT_PRODUCER_ID, request));
            return given.get().errorCode() != Errors.COORDINATOR_LOAD_IN_PROGRESS.code();
        });
        must(given.get().errorCode(), "init producer id");
        return given.get().producerId();
    }

    private static void must(short errorCode, String what) throws IOException {
        if (errorCode != 0) {
            throw new IOException("preparation failed with error " + errorCode + ": " + what);
        }
    }
}
