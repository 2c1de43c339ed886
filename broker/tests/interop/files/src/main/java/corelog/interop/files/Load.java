package corelog.interop.files;

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Records for several segments in each topic: a topic a codec, and one whose times are the broker's. All content is text, so
 * that the printed form of a record says all of it.
 */
final class Load {
    static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");
    static final long TIME_MS = Long.parseLong(System.getenv("INTEROP_BASE_MS"));
    private static final int SEGMENT_BYTES = 1 << 20;
    private static final int RECORDS = 3_000;
    private static final int VALUE_BYTES_MAX = 2_400;
    private static final long SEED = 20_26;

    private Load() {}

    /** Producers are idempotent, as is Kafka's default, but for the topic without a codec. Topics may be there already. */
    static void fill(String bootstrap) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            for (String codec : CODECS) {
                create(admin, "files." + codec, Map.of());
                send(bootstrap, "files." + codec, codec, !codec.equals("none"));
            }
            create(admin, "files.append-time", Map.of("message.timestamp.type", "LogAppendTime"));
            send(bootstrap, "files.append-time", "lz4", true);
        }
    }

    private static void create(Admin admin, String topic, Map<String, String> configs) throws Exception {
        Map<String, String> all = new TreeMap<>(configs);
        all.put("segment.bytes", Integer.toString(SEGMENT_BYTES));
        if (!admin.listTopics().names().get().contains(topic)) {
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1).configs(all))).all().get();
        }
    }

    private static void send(String bootstrap, String topic, String codec, boolean idempotent) throws Exception {
        Random random = new Random(SEED + topic.hashCode());
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "compression.type", codec, "acks", "all",
            "enable.idempotence", idempotent, "linger.ms", 5, "batch.size", 60_000);
        try (KafkaProducer<byte[], byte[]> producer =
                 new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int i = 0; i < RECORDS; i++) {
                producer.send(record(topic, i, random));
            }
        }
    }

    private static ProducerRecord<byte[], byte[]> record(String topic, int number, Random random) {
        List<Header> headers = switch (number % 4) {
            case 0 -> List.of();
            case 1 -> List.of(new RecordHeader("h", utf8("v" + number)));
            case 2 -> List.of(new RecordHeader("null", null), new RecordHeader("h", new byte[0]));
            default -> List.of(new RecordHeader("h", utf8("first")), new RecordHeader("h", utf8("second")));
        };
        byte[] key = number % 7 == 0 ? null : utf8("key-" + number % 100);
        byte[] value = number % 11 == 0 ? null : text(random, random.nextInt(VALUE_BYTES_MAX));
        // Not in order: the time index has to keep the largest so far.
        long time = TIME_MS + number * 10L - random.nextInt(1_000);
        return new ProducerRecord<>(topic, 0, time, key, value, headers);
    }

    static byte[] text(Random random, int bytes) {
        byte[] text = new byte[bytes];
        for (int i = 0; i < bytes; i++) {
            text[i] = (byte) ('a' + random.nextInt(26));
        }
        return text;
    }

    static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
