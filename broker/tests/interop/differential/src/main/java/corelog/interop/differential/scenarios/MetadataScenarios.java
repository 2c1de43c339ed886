package corelog.interop.differential.scenarios;

import corelog.interop.differential.Exchange;
import corelog.interop.differential.Scenario;
import corelog.interop.differential.Setup;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.MetadataRequestData;
import org.apache.kafka.common.message.MetadataRequestData.MetadataRequestTopic;
import org.apache.kafka.common.message.MetadataResponseData;
import org.apache.kafka.common.protocol.ApiKeys;

/** Metadata by name, by id, of all topics, of none, with and without automatic creation. */
final class MetadataScenarios {
    private static final Uuid UNKNOWN_ID = new Uuid(0x1234, 0x5678);

    private MetadataScenarios() {}

    static List<Scenario> list() {
        return List.of(
            Scenario.each("metadata", ApiKeys.METADATA, MetadataScenarios::byName),
            Scenario.each("metadata-auto-create", ApiKeys.METADATA, MetadataScenarios::autoCreate),
            Scenario.since(10, "metadata-by-id", ApiKeys.METADATA, MetadataScenarios::byId));
    }

    private static void byName(Exchange x, short v) throws Exception {
        Setup setup = x.setup();
        String one = x.name("one");
        String three = x.name("three");
        x.unordered("topics", "partitions");
        setup.topic(one, 1);
        setup.topic(three, 3);
        x.ask("one topic", named(v, false, one));
        x.ask("two topics", named(v, false, three, one));
        x.ask("a topic twice", named(v, false, one, one));
        if (v >= 4) {
            x.ask("unknown and known", named(v, false, x.name("unknown"), one));
            x.ask("illegal names", named(v, false, "no spaces!", "", ".", "..", "x".repeat(250)));
        }
        x.askTrimmed("all topics", all(v), (MetadataResponseData answer) ->
            answer.topics().removeIf(topic -> topic.name() == null || !topic.name().startsWith(x.name(""))));
        if (v >= 1) {
            x.ask("no topics", named(v, false));
        }
        if (v >= 8) {
            MetadataRequestData authorized = named(v, false, one).setIncludeTopicAuthorizedOperations(true);
            x.ask("with authorized operations", v <= 10 ? authorized.setIncludeClusterAuthorizedOperations(true) : authorized);
        }
    }

    /** Version 0 asks for all topics with an empty list, later ones with null. */
    private static MetadataRequestData all(short v) {
        return v == 0 ? named(v, false) : new MetadataRequestData().setTopics(null);
    }

    private static void autoCreate(Exchange x, short v) throws Exception {
        String fresh = x.name("fresh");
        if (v >= 4) {
            x.ask("creation not allowed", named(v, false, fresh));
        }
        x.ask("created by being asked for", named(v, true, fresh));
        x.setup().awaitServing(fresh, 1);
        x.learn(x.setup().describe(fresh).topicId(), fresh);
        x.ask("then it is there", named(v, true, fresh));
        x.ask("an illegal name is not created", named(v, true, "no spaces!"));
        x.ask("a colliding name is not created", named(v, true, fresh.replace('.', '_')));
    }

    private static void byId(Exchange x, short v) throws Exception {
        String topic = x.name("topic");
        x.unordered("topics", "partitions");
        Uuid id = x.setup().topic(topic, 2);
        x.ask("a known id", identified(id));
        x.ask("an unknown id", identified(UNKNOWN_ID));
        x.ask("known and unknown", identified(UNKNOWN_ID, id));
        MetadataRequestData both = named(v, false, topic);
        both.topics().get(0).setTopicId(id);
        x.ask("id and name together", both);
        MetadataRequestData neither = new MetadataRequestData().setAllowAutoTopicCreation(false);
        neither.topics().add(new MetadataRequestTopic().setName(null));
        x.ask("neither id nor name", neither);
    }

    private static MetadataRequestData named(short v, boolean autoCreate, String... names) {
        MetadataRequestData request = new MetadataRequestData();
        if (v >= 4) {
            request.setAllowAutoTopicCreation(autoCreate);
        }
        List<MetadataRequestTopic> topics = new ArrayList<>();
        for (String name : names) {
            topics.add(new MetadataRequestTopic().setName(name));
        }
        return request.setTopics(topics);
    }

    private static MetadataRequestData identified(Uuid... ids) {
        MetadataRequestData request = new MetadataRequestData().setAllowAutoTopicCreation(false);
        for (Uuid id : ids) {
            request.topics().add(new MetadataRequestTopic().setTopicId(id).setName(null));
        }
        return request;
    }
}
