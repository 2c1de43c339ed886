package corelog.interop.files;

import java.io.IOException;
import java.io.PrintWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * All that a broker serves, as text that can be compared: a line a record (partition, offset, type and value of its time, key,
 * value, headers; bytes as hex), and before them the partitions' bounds, the topics' ids and own configurations, and the broker's.
 */
final class Reader {
    private static final Duration READ_MAX = Duration.ofSeconds(60);
    /** So little that transactions begin and end in other answers. */
    private static final int COMMITTED_FETCH_BYTES = 50_000;

    private static final String BROKER_ID = "1";
    private static final Set<ConfigEntry.ConfigSource> DYNAMIC_OF_A_TOPIC = Set.of(ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG);
    private static final Set<ConfigEntry.ConfigSource> DYNAMIC_OF_A_BROKER =
        Set.of(ConfigEntry.ConfigSource.DYNAMIC_BROKER_CONFIG, ConfigEntry.ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG);

    private Reader() {}

    static void readAll(String bootstrap, Path into) throws Exception {
        try (PrintWriter out = new PrintWriter(Files.newBufferedWriter(into));
             Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
             KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap)) {
            ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, BROKER_ID);
            out.println("broker " + BROKER_ID + " " + configs(admin, broker, DYNAMIC_OF_A_BROKER));
            List<TopicPartition> partitions = new ArrayList<>();
            for (TopicDescription topic : topics(admin)) {
                out.println("topic " + topic.name() + " " + topic.topicId() + " "
                    + configs(admin, new ConfigResource(ConfigResource.Type.TOPIC, topic.name()), DYNAMIC_OF_A_TOPIC));
                topic.partitions().forEach(p -> partitions.add(new TopicPartition(topic.name(), p.partition())));
            }
            Map<TopicPartition, Long> starts = consumer.beginningOffsets(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            for (TopicPartition partition : partitions) {
                out.println("bounds " + partition + " " + starts.get(partition) + " " + ends.get(partition));
            }
            for (TopicPartition partition : partitions) {
                for (ConsumerRecord<byte[], byte[]> record : read(consumer, partition, ends.get(partition))) {
                    out.println(line(record));
                }
            }
            try (KafkaConsumer<byte[], byte[]> committed = consumer(bootstrap, "read_committed", COMMITTED_FETCH_BYTES)) {
                for (TopicPartition partition : partitions) {
                    for (ConsumerRecord<byte[], byte[]> record : read(committed, partition, ends.get(partition))) {
                        out.println("committed " + line(record));
                    }
                }
            }
        }
    }

    private static List<TopicDescription> topics(Admin admin) throws Exception {
        TreeSet<String> names = new TreeSet<>(admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get());
        List<TopicDescription> all = new ArrayList<>(admin.describeTopics(names).allTopicNames().get().values());
        all.sort(Comparator.comparing(TopicDescription::name));
        return all;
    }

    /** What is set for the topic or the broker while it runs. */
    private static TreeMap<String, String> configs(Admin admin, ConfigResource resource, Set<ConfigEntry.ConfigSource> sources)
            throws Exception {
        TreeMap<String, String> own = new TreeMap<>();
        for (ConfigEntry entry : admin.describeConfigs(List.of(resource)).all().get().get(resource).entries()) {
            if (sources.contains(entry.source())) {
                own.put(entry.name(), entry.value());
            }
        }
        return own;
    }

    static KafkaConsumer<byte[], byte[]> consumer(String bootstrap) {
        return consumer(bootstrap, "read_uncommitted", 4 << 20);
    }

    private static KafkaConsumer<byte[], byte[]> consumer(String bootstrap, String isolation, int fetchBytes) {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "auto.offset.reset", "none", "check.crcs", true,
            "max.partition.fetch.bytes", fetchBytes, "isolation.level", isolation);
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** All records of a partition, from its beginning. */
    static List<ConsumerRecord<byte[], byte[]>> read(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition, long end)
            throws IOException {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        consumer.assign(List.of(partition));
        consumer.seekToBeginning(List.of(partition));
        long deadline = System.nanoTime() + READ_MAX.toNanos();
        while (consumer.position(partition) < end) {
            consumer.poll(Duration.ofMillis(200)).forEach(records::add);
            if (System.nanoTime() > deadline) {
                throw new IOException(partition + " ends at " + consumer.position(partition) + " instead of " + end);
            }
        }
        return records;
    }

    static String line(ConsumerRecord<byte[], byte[]> record) {
        StringBuilder headers = new StringBuilder();
        for (Header header : record.headers()) {
            headers.append(headers.isEmpty() ? "" : ",").append(header.key()).append('=').append(hex(header.value()));
        }
        return "record " + record.topic() + "-" + record.partition() + " " + record.offset() + " " + record.timestampType().name
            + " " + record.timestamp() + " " + hex(record.key()) + " " + hex(record.value()) + " [" + headers + "]";
    }

    private static String hex(byte[] bytes) {
        return bytes == null ? "null" : "x" + HexFormat.of().formatHex(bytes);
    }
}
