package corelog.interop.differential.scenarios;

import corelog.interop.differential.Exchange;
import corelog.interop.differential.Scenario;
import java.util.Comparator;
import java.util.List;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.DescribeClusterRequestData;
import org.apache.kafka.common.message.DescribeLogDirsRequestData.DescribableLogDirTopic;
import org.apache.kafka.common.message.DescribeLogDirsRequestData;
import org.apache.kafka.common.message.DescribeLogDirsResponseData;
import org.apache.kafka.common.message.DescribeProducersRequestData.TopicRequest;
import org.apache.kafka.common.message.DescribeProducersRequestData;
import org.apache.kafka.common.message.DescribeTopicPartitionsRequestData.Cursor;
import org.apache.kafka.common.message.DescribeTopicPartitionsRequestData;
import org.apache.kafka.common.protocol.ApiKeys;

/** DescribeCluster, DescribeTopicPartitions, DescribeLogDirs, DescribeProducers. */
final class DescribeScenarios {
    private DescribeScenarios() {}

    static List<Scenario> list() {
        return List.of(
            Scenario.each("describe-cluster", ApiKeys.DESCRIBE_CLUSTER, DescribeScenarios::cluster),
            Scenario.each("describe-topic-partitions", ApiKeys.DESCRIBE_TOPIC_PARTITIONS, DescribeScenarios::topicPartitions),
            Scenario.each("describe-log-dirs", ApiKeys.DESCRIBE_LOG_DIRS, DescribeScenarios::logDirs),
            Scenario.each("describe-producers", ApiKeys.DESCRIBE_PRODUCERS, DescribeScenarios::producers));
    }

    private static void cluster(Exchange x, short v) throws Exception {
        x.ask("plain", new DescribeClusterRequestData());
        x.ask("with authorized operations", new DescribeClusterRequestData().setIncludeClusterAuthorizedOperations(true));
        if (v >= 1) {
            x.ask("asked for controllers", new DescribeClusterRequestData().setEndpointType((byte) 2));
            x.ask("asked for an unknown kind", new DescribeClusterRequestData().setEndpointType((byte) 9));
        }
        if (v >= 2) {
            x.ask("with fenced brokers", new DescribeClusterRequestData().setIncludeFencedBrokers(true));
        }
    }

    private static DescribeTopicPartitionsRequestData topics(int limit, String... names) {
        DescribeTopicPartitionsRequestData request = new DescribeTopicPartitionsRequestData().setResponsePartitionLimit(limit);
        for (String name : names) {
            request.topics().add(new DescribeTopicPartitionsRequestData.TopicRequest().setName(name));
        }
        return request;
    }

    private static Cursor from(String topic, int partition) {
        return new Cursor().setTopicName(topic).setPartitionIndex(partition);
    }

    private static void topicPartitions(Exchange x, short v) throws Exception {
        String a = x.name("a");
        String b = x.name("b");
        x.setup().topic(a, 3);
        x.setup().topic(b, 2);
        x.ask("one topic", topics(2_000, a));
        x.ask("two topics", topics(2_000, b, a));
        x.ask("a topic twice", topics(2_000, a, a));
        x.ask("unknown and known", topics(2_000, x.name("unknown"), a));
        x.ask("illegal names", topics(2_000, "no spaces!", ""));
        x.ask("cut short in the first topic", topics(2, a, b));
        x.ask("cut short between topics", topics(3, a, b));
        x.ask("on from a cursor", topics(2, a, b).setCursor(from(a, 2)));
        x.ask("on from the second topic", topics(2_000, a, b).setCursor(from(b, 1)));
        x.ask("a cursor past the last partition", topics(2_000, a, b).setCursor(from(a, 9)));
        x.ask("a cursor at a topic that was not asked for", topics(2_000, b).setCursor(from(a, 0)));
        x.ask("a cursor at an unknown topic", topics(2_000, a, x.name("zzz")).setCursor(from(x.name("zzz"), 0)));
        x.ask("a negative cursor", topics(2_000, a).setCursor(from(a, -1)));
        x.ask("a limit of zero", topics(0, a));
        x.ask("a negative limit", topics(-1, a));
    }

    private static DescribeLogDirsRequestData dirs(String topic, Integer... partitions) {
        DescribeLogDirsRequestData request = new DescribeLogDirsRequestData();
        request.topics().mustAdd(new DescribableLogDirTopic().setTopic(topic).setPartitions(List.of(partitions)));
        return request;
    }

    private static void logDirs(Exchange x, short v) throws Exception {
        String topic = x.name("topic");
        Uuid id = x.setup().topic(topic, 2);
        x.setup().produce(id, 0, Batch.plain(3));
        x.ask("a partition with records", dirs(topic, 0));
        x.ask("both partitions", dirs(topic, 0, 1));
        x.ask("a partition that is not there", dirs(topic, 9));
        x.ask("an unknown topic", dirs(x.name("unknown"), 0));
        x.ask("an illegal name", dirs("no spaces!", 0));
        x.ask("no topics", new DescribeLogDirsRequestData());
        x.askTrimmed("all topics", new DescribeLogDirsRequestData().setTopics(null), (DescribeLogDirsResponseData answer) ->
            answer.results().forEach(dir -> {
                dir.topics().removeIf(found -> !found.name().equals(topic));
                dir.topics().forEach(found ->
                    found.partitions().sort(Comparator.comparingInt(partition -> partition.partitionIndex())));
            }));
    }

    private static DescribeProducersRequestData producersOf(String topic, Integer... partitions) {
        return new DescribeProducersRequestData().setTopics(List.of(new TopicRequest().setName(topic).setPartitionIndexes(List.of(partitions))));
    }

    private static void producers(Exchange x, short v) throws Exception {
        String topic = x.name("topic");
        Uuid id = x.setup().topic(topic, 2);
        long producer = x.setup().producerId();
        x.ask("none so far", producersOf(topic, 0));
        x.setup().produce(id, 0, Batch.idempotent(producer, 0, 0, 3));
        x.setup().produce(id, 0, Batch.idempotent(producer, 0, 3, 4));
        x.ask("one, after two batches", producersOf(topic, 0));
        x.setup().produce(id, 0, Batch.idempotent(producer, 1, 0, 2));
        x.ask("the same with its next epoch", producersOf(topic, 0));
        x.ask("two partitions", producersOf(topic, 0, 1));
        x.ask("a partition that is not there", producersOf(topic, 9));
        x.ask("an unknown topic", producersOf(x.name("unknown"), 0));
        x.ask("an illegal name", producersOf("no spaces!", 0));
        x.ask("no topics", new DescribeProducersRequestData());
    }
}
