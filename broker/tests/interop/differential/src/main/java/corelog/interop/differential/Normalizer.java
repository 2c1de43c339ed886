package corelog.interop.differential;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.fasterxml.jackson.databind.node.TextNode;
import java.net.InetSocketAddress;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.Uuid;

/**
 * Rewrites what must differ between two brokers into words that must not: ids, ports, folders, sizes of volumes, sessions.
 * Only real values are rewritten: an absent one (-1, null, the zero id, 0 where it means none) stays, so that present and absent still differ.
 */
final class Normalizer {
    /** Fields that are whatever the node they come from makes of them. */
    private static final Set<String> NODE_SPECIFIC = Set.of("clusterId", "sessionId", "finalizedFeaturesEpoch", "logDir",
        "totalBytes", "usableBytes", "logAppendTimeMs", "lastTimestamp");

    private final int port;
    private final Set<String> masked = new HashSet<>(NODE_SPECIFIC);
    private final Map<String, String> ids = new LinkedHashMap<>();
    private final Map<Long, String> producers = new HashMap<>();

    Normalizer(InetSocketAddress address) {
        port = address.getPort();
    }

    void mask(String... fields) {
        masked.addAll(List.of(fields));
    }

    void learn(Uuid id, String name) {
        ids.put(id.toString(), "<id of " + name + ">");
    }

    JsonNode apply(JsonNode node) {
        return rewrite("", node);
    }

    private JsonNode rewrite(String field, JsonNode node) {
        if (node instanceof ObjectNode object) {
            learnFrom(object);
            ObjectNode copy = JsonNodeFactory.instance.objectNode();
            object.properties().forEach(entry -> copy.set(entry.getKey(), rewrite(entry.getKey(), entry.getValue())));
            return copy;
        }
        if (node instanceof ArrayNode array) {
            ArrayNode copy = JsonNodeFactory.instance.arrayNode();
            array.forEach(element -> copy.add(rewrite(field, element)));
            return copy;
        }
        if (masked.contains(field)) {
            return absent(node) ? node : text("<" + field + ">");
        }
        return switch (field) {
            case "topicId" -> id(node);
            case "producerId" -> node.asLong() < 0 ? node : producer(node.asLong());
            case "port" -> node.asInt() == port ? text("<port>") : node;
            default -> node.isTextual() ? text(withoutIds(node.asText())) : node;
        };
    }

    /** An answer that holds a topic's name beside its id names the id; another id under the same name is told apart. */
    private void learnFrom(ObjectNode object) {
        String id = object.path("topicId").asText();
        String name = object.path("name").asText("");
        if (id.isEmpty() || name.isEmpty() || object.path("name").isNull() || id.equals(Uuid.ZERO_UUID.toString()) || ids.containsKey(id)) {
            return;
        }
        String label = "<id of " + name;
        long others = ids.values().stream().filter(known -> known.startsWith(label + ">") || known.startsWith(label + ", ")).count();
        ids.put(id, others == 0 ? label + ">" : label + ", " + (others + 1) + ">");
    }

    private static boolean absent(JsonNode node) {
        return node.isNull() || node.isNumber() && node.asLong() <= 0 || node.isTextual() && node.asText().isEmpty();
    }

    private JsonNode id(JsonNode node) {
        if (node.asText().equals(Uuid.ZERO_UUID.toString())) {
            return node;
        }
        return text(ids.computeIfAbsent(node.asText(), unknown -> "<id " + (ids.size() + 1) + ">"));
    }

    private JsonNode producer(long producerId) {
        return text(producers.computeIfAbsent(producerId, unknown -> "<producer " + (producers.size() + 1) + ">"));
    }

    private String withoutIds(String message) {
        String result = message;
        for (Map.Entry<String, String> id : ids.entrySet()) {
            result = result.replace(id.getKey(), id.getValue());
        }
        for (Map.Entry<Long, String> producer : producers.entrySet()) {
            result = result.replaceAll("(?<=producer[ Ii][dD]? ?[=:]? ?)" + producer.getKey() + "\\b", producer.getValue());
        }
        return result;
    }

    private static TextNode text(String value) {
        return JsonNodeFactory.instance.textNode(value);
    }
}
