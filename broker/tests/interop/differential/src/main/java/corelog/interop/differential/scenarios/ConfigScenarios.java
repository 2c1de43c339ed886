package corelog.interop.differential.scenarios;

import corelog.interop.differential.Exchange;
import corelog.interop.differential.Scenario;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.message.DescribeConfigsRequestData.DescribeConfigsResource;
import org.apache.kafka.common.message.DescribeConfigsRequestData;
import org.apache.kafka.common.message.DescribeConfigsResponseData;
import org.apache.kafka.common.message.ListConfigResourcesRequestData;
import org.apache.kafka.common.message.ListConfigResourcesResponseData;
import org.apache.kafka.common.protocol.ApiKeys;

/** DescribeConfigs and ListConfigResources. */
final class ConfigScenarios {
    static final byte TOPIC = 2;
    static final byte BROKER = 4;
    static final byte BROKER_LOGGER = 8;
    static final byte CLIENT_METRICS = 16;
    static final byte GROUP = 32;
    static final byte NOT_A_TYPE = 99;
    static final String NODE = "1";

    /** Broker configs that every broker must have, whatever else it is made of. */
    private static final List<String> COMMON_OF_BROKER = List.of("message.max.bytes", "num.partitions", "default.replication.factor",
        "auto.create.topics.enable", "compression.type", "log.retention.hours", "log.retention.ms", "log.segment.bytes",
        "log.cleanup.policy", "log.message.timestamp.type", "min.insync.replicas", "node.id", "delete.topic.enable",
        "max.incremental.fetch.session.cache.slots", "fetch.max.bytes", "producer.id.expiration.ms");

    /** Broker configs that say where it is. */
    private static final Set<String> ADDRESSES_OF_BROKER = Set.of("listeners", "advertised.listeners", "log.dirs",
        "controller.quorum.bootstrap.servers");

    private ConfigScenarios() {}

    static List<Scenario> list() {
        return List.of(
            Scenario.each("describe-configs-topic", ApiKeys.DESCRIBE_CONFIGS, ConfigScenarios::ofTopics),
            Scenario.each("describe-configs-broker", ApiKeys.DESCRIBE_CONFIGS, ConfigScenarios::ofBrokers),
            Scenario.each("describe-configs-other", ApiKeys.DESCRIBE_CONFIGS, ConfigScenarios::ofOthers),
            Scenario.once("describe-configs-broker-all", ApiKeys.DESCRIBE_CONFIGS, ConfigScenarios::wholeBroker),
            Scenario.each("list-config-resources", ApiKeys.LIST_CONFIG_RESOURCES, ConfigScenarios::listResources));
    }

    private static DescribeConfigsResource resource(byte type, String name, List<String> keys) {
        return new DescribeConfigsResource().setResourceType(type).setResourceName(name).setConfigurationKeys(keys);
    }

    private static DescribeConfigsRequestData request(short v, DescribeConfigsResource... resources) {
        DescribeConfigsRequestData request = new DescribeConfigsRequestData().setResources(List.of(resources)).setIncludeSynonyms(true);
        return v >= 3 ? request.setIncludeDocumentation(true) : request;
    }

    /** Configs stand in no particular order, and their documentation is each project's own words: only its presence counts. */
    private static void askSorted(Exchange x, String step, DescribeConfigsRequestData request) throws Exception {
        x.mask("documentation").askTrimmed(step, request, (DescribeConfigsResponseData answer) ->
            answer.results().forEach(result -> result.configs().sort(Comparator.comparing(config -> config.name()))));
    }

    private static void ofTopics(Exchange x, short v) throws Exception {
        String plain = x.name("plain");
        String own = x.name("own");
        x.setup().topic(plain, 1);
        x.setup().topic(own, 1, Map.of("retention.ms", "1234567", "cleanup.policy", "compact"));
        askSorted(x, "all defaults", request(v, resource(TOPIC, plain, null)));
        askSorted(x, "with its own", request(v, resource(TOPIC, own, null)));
        askSorted(x, "without synonyms", request(v, resource(TOPIC, own, null)).setIncludeSynonyms(false));
        askSorted(x, "two keys", request(v, resource(TOPIC, own, List.of("retention.ms", "segment.bytes"))));
        askSorted(x, "an unknown key", request(v, resource(TOPIC, own, List.of("no.such.config"))));
        askSorted(x, "no keys", request(v, resource(TOPIC, own, List.of())));
        askSorted(x, "an unknown topic", request(v, resource(TOPIC, x.name("unknown"), null)));
        askSorted(x, "an illegal name", request(v, resource(TOPIC, "no spaces!", null)));
        askSorted(x, "an empty name", request(v, resource(TOPIC, "", null)));
        askSorted(x, "two topics, in the order asked", request(v, resource(TOPIC, own, List.of("retention.ms")),
            resource(TOPIC, plain, List.of("retention.ms"))));
        askSorted(x, "a topic twice", request(v, resource(TOPIC, own, List.of("retention.ms")), resource(TOPIC, own, List.of("segment.ms"))));
    }

    private static void ofBrokers(Exchange x, short v) throws Exception {
        askSorted(x, "the common ones", request(v, resource(BROKER, NODE, COMMON_OF_BROKER)));
        askSorted(x, "an unknown key", request(v, resource(BROKER, NODE, List.of("no.such.config"))));
        askSorted(x, "the cluster's default", request(v, resource(BROKER, "", List.of("message.max.bytes"))));
        askSorted(x, "another broker", request(v, resource(BROKER, "77", null)));
        askSorted(x, "not a number", request(v, resource(BROKER, "one", null)));
    }

    private static void wholeBroker(Exchange x, short v) throws Exception {
        x.mask("documentation").askTrimmed("every config", request(v, resource(BROKER, NODE, null)), (DescribeConfigsResponseData answer) ->
            answer.results().forEach(result -> {
                result.configs().removeIf(config -> ADDRESSES_OF_BROKER.contains(config.name()));
                result.configs().sort(Comparator.comparing(config -> config.name()));
            }));
    }

    private static void ofOthers(Exchange x, short v) throws Exception {
        askSorted(x, "no type", request(v, resource((byte) 0, "x", null)));
        askSorted(x, "no such type", request(v, resource(NOT_A_TYPE, "x", null)));
        askSorted(x, "loggers of another broker", request(v, resource(BROKER_LOGGER, "77", null)));
        askSorted(x, "loggers of nobody", request(v, resource(BROKER_LOGGER, "", null)));
        askSorted(x, "client metrics without a name", request(v, resource(CLIENT_METRICS, "", null)));
        askSorted(x, "client metrics", request(v, resource(CLIENT_METRICS, "m", null)));
        askSorted(x, "a group without a name", request(v, resource(GROUP, "", null)));
        askSorted(x, "no resources", request(v));
    }

    private static void listResources(Exchange x, short v) throws Exception {
        x.setup().topic(x.name("topic"), 1, Map.of("retention.ms", "5000000"));
        x.setup().topic(x.name("without-own-configs"), 1);
        listOwn(x, "whatever there is", List.of());
        if (v >= 1) {
            listOwn(x, "topics", List.of(TOPIC));
            listOwn(x, "brokers", List.of(BROKER));
            listOwn(x, "loggers", List.of(BROKER_LOGGER));
            listOwn(x, "client metrics", List.of(CLIENT_METRICS));
            listOwn(x, "topics and brokers", List.of(TOPIC, BROKER));
            listOwn(x, "no such type", List.of(NOT_A_TYPE));
        }
    }

    private static void listOwn(Exchange x, String step, List<Byte> types) throws Exception {
        ListConfigResourcesRequestData request = new ListConfigResourcesRequestData();
        if (x.version() >= 1) {
            request.setResourceTypes(new ArrayList<>(types));
        }
        x.askTrimmed(step, request, (ListConfigResourcesResponseData answer) -> {
            answer.configResources().removeIf(found -> found.resourceType() == TOPIC && !found.resourceName().startsWith(x.name("")));
            answer.configResources().sort(Comparator.comparing(found -> found.resourceType() + found.resourceName()));
        });
    }
}
