package corelog.interop.differential.scenarios;

import corelog.interop.differential.Exchange;
import corelog.interop.differential.Scenario;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.CreatePartitionsRequestData;
import org.apache.kafka.common.message.CreatePartitionsRequestData.CreatePartitionsAssignment;
import org.apache.kafka.common.message.CreatePartitionsRequestData.CreatePartitionsTopic;
import org.apache.kafka.common.message.DeleteTopicsRequestData;
import org.apache.kafka.common.message.DeleteTopicsRequestData.DeleteTopicState;
import org.apache.kafka.common.protocol.ApiKeys;

/** DeleteTopics and CreatePartitions. */
final class TopicChangeScenarios {
    private static final Uuid UNKNOWN_ID = new Uuid(0x1234, 0x5678);

    private TopicChangeScenarios() {}

    static List<Scenario> list() {
        return List.of(
            Scenario.each("delete-topics", ApiKeys.DELETE_TOPICS, TopicChangeScenarios::deleteByName),
            Scenario.since(6, "delete-topics-by-id", ApiKeys.DELETE_TOPICS, TopicChangeScenarios::deleteById),
            Scenario.each("create-partitions", ApiKeys.CREATE_PARTITIONS, TopicChangeScenarios::createPartitions));
    }

    private static DeleteTopicsRequestData named(short v, String... names) {
        DeleteTopicsRequestData request = new DeleteTopicsRequestData().setTimeoutMs(10_000);
        if (v < 6) {
            return request.setTopicNames(List.of(names));
        }
        for (String name : names) {
            request.topics().add(new DeleteTopicState().setName(name));
        }
        return request;
    }

    private static void deleteByName(Exchange x, short v) throws Exception {
        for (String suffix : List.of("a", "b", "c", "d")) {
            x.setup().topic(x.name(suffix), 2);
        }
        x.ask("a topic", named(v, x.name("a")));
        x.setup().awaitGone(x.name("a"));
        x.ask("it is gone", named(v, x.name("a")));
        x.unordered("responses").ask("known and unknown", named(v, x.name("unknown"), x.name("b")));
        x.ask("a topic twice", named(v, x.name("c"), x.name("c")));
        x.ask("an illegal name", named(v, "no spaces!"));
        x.ask("no topics", named(v));
        x.ask("no timeout", named(v, x.name("d")).setTimeoutMs(0));
    }

    private static DeleteTopicsRequestData states(DeleteTopicState... states) {
        return new DeleteTopicsRequestData().setTimeoutMs(10_000).setTopics(List.of(states));
    }

    private static void deleteById(Exchange x, short v) throws Exception {
        Uuid a = x.setup().topic(x.name("a"), 1);
        Uuid b = x.setup().topic(x.name("b"), 1);
        x.ask("a known id", states(new DeleteTopicState().setName(null).setTopicId(a)));
        x.setup().awaitGone(x.name("a"));
        x.ask("it is gone", states(new DeleteTopicState().setName(null).setTopicId(a)));
        x.ask("an unknown id", states(new DeleteTopicState().setName(null).setTopicId(UNKNOWN_ID)));
        x.ask("id and name together", states(new DeleteTopicState().setName(x.name("b")).setTopicId(b)));
        x.ask("neither", states(new DeleteTopicState().setName(null)));
        x.unordered("responses").ask("by id and by name", states(new DeleteTopicState().setName(null).setTopicId(b), new DeleteTopicState().setName(x.name("b"))));
    }

    private static CreatePartitionsTopic grown(String name, int count, int... brokers) {
        CreatePartitionsTopic topic = new CreatePartitionsTopic().setName(name).setCount(count).setAssignments(null);
        if (brokers.length > 0) {
            List<CreatePartitionsAssignment> assignments = new ArrayList<>();
            for (int broker : brokers) {
                assignments.add(new CreatePartitionsAssignment().setBrokerIds(List.of(broker)));
            }
            topic.setAssignments(assignments);
        }
        return topic;
    }

    private static CreatePartitionsRequestData request(CreatePartitionsTopic... topics) {
        CreatePartitionsRequestData request = new CreatePartitionsRequestData().setTimeoutMs(10_000);
        for (CreatePartitionsTopic topic : topics) {
            request.topics().mustAdd(topic);
        }
        return request;
    }

    private static void createPartitions(Exchange x, short v) throws Exception {
        String topic = x.name("topic");
        x.setup().topic(topic, 2);
        x.ask("only validated", request(grown(topic, 4)).setValidateOnly(true));
        x.ask("from two to three", request(grown(topic, 3)));
        x.setup().awaitServing(topic, 3);
        x.ask("by hand", request(grown(topic, 5, 1, 1)));
        x.setup().awaitServing(topic, 5);
        x.ask("as many as there are", request(grown(topic, 5)));
        x.ask("fewer", request(grown(topic, 1)));
        x.ask("none", request(grown(topic, 0)));
        x.ask("negative", request(grown(topic, -1)));
        x.ask("an unknown topic", request(grown(x.name("unknown"), 3)));
        x.ask("an illegal name", request(grown("no spaces!", 3)));
        x.ask("a broker that is not there", request(grown(topic, 6, 77)));
        x.ask("too few assignments", request(grown(topic, 8, 1)));
        x.ask("too many assignments", request(grown(topic, 6, 1, 1)));
        CreatePartitionsRequestData twice = request(grown(topic, 6));
        twice.topics().mustAdd(grown(topic, 7));
        x.ask("a topic twice", twice);
        x.ask("good and bad together", request(grown(x.name("unknown"), 3), grown(topic, 6)));
        x.ask("no topics", request());
    }
}
