package corelog.interop.differential.scenarios;

import corelog.interop.differential.Exchange;
import corelog.interop.differential.Scenario;
import java.io.IOException;
import java.util.Arrays;
import java.util.List;
import org.apache.kafka.common.message.CreateTopicsRequestData.CreatableReplicaAssignment;
import org.apache.kafka.common.message.CreateTopicsRequestData.CreatableTopic;
import org.apache.kafka.common.message.CreateTopicsRequestData.CreatableTopicConfig;
import org.apache.kafka.common.message.CreateTopicsRequestData;
import org.apache.kafka.common.protocol.ApiKeys;

/** CreateTopics: what is created and what is refused. */
final class CreateTopicsScenarios {
    private static final int NODE = 1;
    private static final int NO_SUCH_NODE = 77;

    private CreateTopicsScenarios() {}

    static List<Scenario> list() {
        return List.of(
            Scenario.each("create-topics", ApiKeys.CREATE_TOPICS, CreateTopicsScenarios::good),
            Scenario.each("create-topics-bad-names", ApiKeys.CREATE_TOPICS, CreateTopicsScenarios::badNames),
            Scenario.each("create-topics-bad-sizes", ApiKeys.CREATE_TOPICS, CreateTopicsScenarios::badSizes),
            Scenario.each("create-topics-assignments", ApiKeys.CREATE_TOPICS, CreateTopicsScenarios::assignments),
            Scenario.each("create-topics-configs", ApiKeys.CREATE_TOPICS, CreateTopicsScenarios::configs));
    }

    private static CreatableTopic topic(String name, int partitions, int replicas) {
        return new CreatableTopic().setName(name).setNumPartitions(partitions).setReplicationFactor((short) replicas);
    }

    private static CreatableTopic configured(String name, String... pairs) {
        CreatableTopic topic = topic(name, 1, 1);
        for (int i = 0; i < pairs.length; i += 2) {
            topic.configs().add(new CreatableTopicConfig().setName(pairs[i]).setValue(pairs[i + 1]));
        }
        return topic;
    }

    private static CreateTopicsRequestData request(CreatableTopic... topics) {
        CreateTopicsRequestData request = new CreateTopicsRequestData().setTimeoutMs(10_000);
        for (CreatableTopic topic : topics) {
            request.topics().mustAdd(topic);
        }
        return request;
    }

    private static void good(Exchange x, short v) throws Exception {
        x.ask("one partition", request(topic(x.name("one"), 1, 1)));
        x.ask("several topics", request(topic(x.name("b"), 2, 1), topic(x.name("a"), 3, 1), topic(x.name("c"), 1, 1)));
        x.ask("only validated", request(topic(x.name("validated"), 2, 1)).setValidateOnly(true));
        x.ask("after validation it can still be created", request(topic(x.name("validated"), 2, 1)));
        x.ask("no topics at all", request());
        x.ask("no timeout", request(topic(x.name("hasty"), 1, 1)).setTimeoutMs(0));
        if (v >= 4) {
            x.ask("the broker's defaults", request(topic(x.name("defaults"), -1, -1)));
        }
    }

    private static void badNames(Exchange x, short v) throws Exception {
        String taken = x.name("taken.name");
        x.setup().topic(taken, 1);
        refused(x, "exists", taken);
        refused(x, "collides", taken.replace('.', '_'));
        refused(x, "empty", "");
        refused(x, "a dot", ".");
        refused(x, "two dots", "..");
        refused(x, "a space", "a b");
        refused(x, "a slash", "a/b");
        refused(x, "not ASCII", "tøpic");
        refused(x, "one character too long", "x".repeat(250));
        refused(x, "the cluster's own log", "__cluster_metadata");
        x.ask("good and bad together", request(topic("a b", 1, 1), topic(x.name("good"), 1, 1), topic(taken, 1, 1)));
        CreateTopicsRequestData twice = request(topic(x.name("twice"), 1, 1));
        twice.topics().mustAdd(topic(x.name("twice"), 2, 1));
        twice.topics().mustAdd(topic(x.name("beside"), 1, 1));
        x.ask("twice in one request", twice);
        CreateTopicsRequestData colliding = request(topic(x.name("p.q"), 1, 1), topic(x.name("p_q"), 1, 1));
        x.ask("colliding within one request", colliding);
    }

    private static void refused(Exchange x, String step, String name) throws IOException {
        x.ask(step, request(topic(name, 1, 1)));
    }

    private static void badSizes(Exchange x, short v) throws Exception {
        x.ask("no partitions", request(topic(x.name("t"), 0, 1)));
        x.ask("negative partitions", request(topic(x.name("t"), -2, 1)));
        x.ask("no replicas", request(topic(x.name("t"), 1, 0)));
        x.ask("negative replicas", request(topic(x.name("t"), 1, -2)));
        x.ask("more replicas than brokers", request(topic(x.name("t"), 1, 3)));
        x.ask("more partitions than one request may have", request(topic(x.name("t"), 10_001, 1)));
        x.ask("none of these made the topic", request(topic(x.name("t"), 1, 1)));
    }

    private static CreatableTopic assigned(String name, int[]... replicas) {
        CreatableTopic topic = topic(name, -1, -1);
        for (int partition = 0; partition < replicas.length; partition++) {
            add(topic, partition, replicas[partition]);
        }
        return topic;
    }

    private static void add(CreatableTopic topic, int partition, int... replicas) {
        List<Integer> brokers = Arrays.stream(replicas).boxed().toList();
        topic.assignments().mustAdd(new CreatableReplicaAssignment().setPartitionIndex(partition).setBrokerIds(brokers));
    }

    private static void assignments(Exchange x, short v) throws Exception {
        x.ask("by hand", request(assigned(x.name("by-hand"), new int[] {NODE}, new int[] {NODE})));
        x.ask("a broker that is not there", request(assigned(x.name("t"), new int[] {NO_SUCH_NODE})));
        x.ask("a broker twice", request(assigned(x.name("t"), new int[] {NODE, NODE})));
        x.ask("an empty replica list", request(assigned(x.name("t"), new int[] {})));
        x.ask("assignments and a count", request(assigned(x.name("t"), new int[] {NODE}).setNumPartitions(1)));
        x.ask("assignments and a replication factor", request(assigned(x.name("t"), new int[] {NODE}).setReplicationFactor((short) 1)));
        CreatableTopic gap = topic(x.name("t"), -1, -1);
        add(gap, 0, NODE);
        add(gap, 2, NODE);
        x.ask("a gap between partitions", request(gap));
        CreatableTopic uneven = topic(x.name("t"), -1, -1);
        add(uneven, 0, NODE);
        add(uneven, 1, NODE, NO_SUCH_NODE);
        x.ask("uneven replica lists", request(uneven));
    }

    private static void configs(Exchange x, short v) throws Exception {
        x.ask("legal ones", request(configured(x.name("legal"), "retention.ms", "1000000", "cleanup.policy", "compact,delete",
            "compression.type", "zstd")));
        bad(x, "an unknown name", "no.such.config", "1");
        bad(x, "not a number", "retention.ms", "soon");
        bad(x, "below the least", "retention.ms", "-2");
        bad(x, "too small a segment", "segment.bytes", "13");
        bad(x, "not in the list", "cleanup.policy", "shred");
        bad(x, "an unknown compression", "compression.type", "brotli");
        bad(x, "not a boolean", "preallocate", "maybe");
        bad(x, "a null value", "retention.ms", null);
        bad(x, "an empty value", "retention.ms", "");
        bad(x, "an unknown timestamp type", "message.timestamp.type", "Yesterday");
        bad(x, "a ratio above one", "min.cleanable.dirty.ratio", "1.5");
        bad(x, "no in-sync replicas", "min.insync.replicas", "0");
        bad(x, "local retention beyond the whole", "local.retention.bytes", "10", "retention.bytes", "5");
        bad(x, "an empty name", "", "1");
        x.ask("white space around a value", request(configured(x.name("spaces"), "retention.ms", " 5000 ")));
    }

    private static void bad(Exchange x, String step, String... pairs) throws IOException {
        x.ask(step, request(configured(x.name("bad"), pairs)));
    }
}
