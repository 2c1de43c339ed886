package corelog.interop.differential;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.common.message.FetchResponseData;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.record.Records;

/** Answers as JSON, by Kafka's own generated converters; record batches are spelled out. */
final class Answers {
    private static final Map<Class<?>, Method> CONVERTERS = new ConcurrentHashMap<>();

    private Answers() {}

    static JsonNode toJson(Connection.Answer answer) {
        JsonNode json = convert(answer.body(), answer.version());
        if (answer.body() instanceof FetchResponseData fetch) {
            spellOutRecords(fetch, json);
        }
        if (answer.encodingFault() != null) {
            ((ObjectNode) json).put("encodingFault", answer.encodingFault());
        }
        return json;
    }

    private static JsonNode convert(ApiMessage body, short version) {
        try {
            return (JsonNode) CONVERTERS.computeIfAbsent(body.getClass(), Answers::converter).invoke(null, body, version, false);
        } catch (IllegalAccessException | InvocationTargetException e) {
            throw new IllegalStateException("no JSON for " + body.getClass(), e);
        }
    }

    private static Method converter(Class<?> message) {
        try {
            return Class.forName(message.getName() + "JsonConverter").getMethod("write", message, short.class, boolean.class);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException("no JSON converter for " + message, e);
        }
    }

    private static void spellOutRecords(FetchResponseData fetch, JsonNode json) {
        for (int t = 0; t < fetch.responses().size(); t++) {
            var partitions = fetch.responses().get(t).partitions();
            for (int p = 0; p < partitions.size(); p++) {
                ObjectNode partition = (ObjectNode) json.get("responses").get(t).get("partitions").get(p);
                partition.set("batches", Batches.describe((Records) partitions.get(p).records()));
            }
        }
    }
}
