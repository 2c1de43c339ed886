package corelog.interop.common;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;

/** The records that every suite writes and reads back: fixtures/records.json. */
public final class Fixtures {
    private static final String WITHOUT = ".without.";

    private Fixtures() {}

    /** One record of the file with its absolute time. */
    public record Fixture(String name, Set<String> traits, long timestamp, byte[] key, byte[] value, List<Header> headers) {
        /** The same, ready to be sent. */
        public ProducerRecord<byte[], byte[]> to(String topic, Integer partition) {
            return new ProducerRecord<>(topic, partition, timestamp, key, value, headers);
        }
    }

    /** All of them, in file order. */
    public static List<Fixture> load() {
        long baseMs = Long.parseLong(System.getenv("INTEROP_BASE_MS"));
        List<Fixture> fixtures = new ArrayList<>();
        for (JsonNode node : read().get("records")) {
            fixtures.add(new Fixture(node.get("name").asText(), traits(node), baseMs + node.get("at").asLong(),
                bytes(node.get("key")), repeated(bytes(node.get("value")), node.path("repeat").asInt(1)), headers(node.get("headers"))));
        }
        return fixtures;
    }

    /** What a cross topic must hold: its name says what its writer had to leave out. */
    public static List<Fixture> expectedIn(String topic) {
        int without = topic.indexOf(WITHOUT);
        List<String> traits = without < 0 ? List.of() : List.of(topic.substring(without + WITHOUT.length()).split("\\."));
        return load().stream().filter(fixture -> Collections.disjoint(fixture.traits, traits)).toList();
    }

    private static JsonNode read() {
        try {
            return new ObjectMapper().readTree(Path.of(System.getenv("INTEROP_FIXTURES"), "records.json").toFile());
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static byte[] bytes(JsonNode node) {
        return node.isNull() ? null : Base64.getDecoder().decode(node.asText());
    }

    private static Set<String> traits(JsonNode node) {
        Set<String> traits = new HashSet<>();
        node.path("traits").forEach(trait -> traits.add(trait.asText()));
        return traits;
    }

    private static List<Header> headers(JsonNode nodes) {
        List<Header> headers = new ArrayList<>();
        for (JsonNode pair : nodes) {
            headers.add(new RecordHeader(pair.get(0).asText(), bytes(pair.get(1))));
        }
        return headers;
    }

    private static byte[] repeated(byte[] value, int times) {
        if (value == null || times == 1) {
            return value;
        }
        byte[] all = new byte[value.length * times];
        for (int i = 0; i < times; i++) {
            System.arraycopy(value, 0, all, i * value.length, value.length);
        }
        return all;
    }
}
