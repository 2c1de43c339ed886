package corelog.interop.files;

import corelog.interop.common.Cases;
import corelog.interop.common.Check;
import corelog.interop.differential.Connection;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.Predicate;
import java.util.stream.Stream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.SimpleRecord;

/**
 * The very same keyed batches to a real Kafka and to the broker under test, both of which then compact: what a consumer reads from
 * the beginning must be the same, record by record. Times are the producer's, so segments end at the same offsets in both.
 */
final class Compaction {
    private static final String RULES = "compact.rules";
    private static final String TOMBSTONES = "compact.tombstones";
    private static final String MAX_LAG = "compact.max-lag";
    private static final String MIN_LAG = "compact.min-lag";
    private static final String BOTH = "compact.with-delete";

    private static final String NOTHING_IS_DIRTY_ENOUGH = "1.0";
    private static final String ANYTHING_IS_DIRTY_ENOUGH = "0.01";
    private static final long DAY_MS = 86_400_000;
    private static final long BATCH_EVERY_MS = 100;
    /** Some twenty batches a segment. */
    private static final String SEGMENT_MS = "2000";
    private static final int KEYS = 40;
    private static final long SETTLED_MAX_MS = 60_000;

    /** One of the two, and the folder that it writes to. */
    private record Broker(String bootstrap, Path data) {}

    private final List<Broker> brokers;
    private final Cases cases = new Cases();
    /** The next sequence of both producers, by topic. */
    private final Map<String, int[]> sequences = new TreeMap<>();
    private final Map<String, Integer> sent = new TreeMap<>();

    private Compaction(List<Broker> brokers) {
        this.brokers = brokers;
    }

    /** Arguments: address and data folder of Kafka, and of the broker under test. Returns the exit code. */
    static int compare(List<String> args) throws Exception {
        Compaction compaction = new Compaction(List.of(new Broker(args.get(0), Path.of(args.get(1))),
            new Broker(args.get(2), Path.of(args.get(3)))));
        compaction.create();
        compaction.rules();
        compaction.tombstones();
        compaction.maxLag();
        compaction.minLag();
        compaction.withDelete();
        return compaction.cases.exitCode();
    }

    private void create() throws Exception {
        for (Broker broker : brokers) {
            try (Admin admin = admin(broker)) {
                admin.createTopics(List.of(
                    // Segments end by bytes.
                    topic(RULES, Map.of("segment.bytes", Integer.toString(1 << 20))),
                    topic(TOMBSTONES, Map.of("delete.retention.ms", "0", "segment.ms", SEGMENT_MS)),
                    // Segments end by this lag, too.
                    topic(MAX_LAG, Map.of("max.compaction.lag.ms", "3000")),
                    topic(MIN_LAG, Map.of("min.compaction.lag.ms", Long.toString(DAY_MS), "segment.ms", SEGMENT_MS)),
                    topic(BOTH, Map.of("cleanup.policy", "compact,delete", "retention.ms", Long.toString(2 * DAY_MS),
                        "segment.ms", SEGMENT_MS)))).all().get();
            }
        }
    }

    /** One round over a log that was never compacted, and one over what that left and more. */
    private void rules() {
        cases.run("compaction keeps of each key what Kafka keeps, in every codec", () -> {
            send(RULES, 400, 2_400, Load.TIME_MS, true);
            compactNow(RULES);
            sameOnceSettled(RULES, this::keysAreUnique);
        });
        cases.run("compaction of a log that was compacted before keeps what Kafka keeps", () -> {
            send(RULES, 400, 2_400, Load.TIME_MS + DAY_MS / 48, true);
            sameOnceSettled(RULES, this::keysAreUnique);
        });
    }

    /** A tombstone outlives the round that finds it, and not the next one after delete.retention.ms. */
    private void tombstones() {
        cases.run("tombstones stay for the round that meets them first, as in Kafka", () -> {
            send(TOMBSTONES, 100, 300, Load.TIME_MS, true);
            compactNow(TOMBSTONES);
            List<ConsumerRecord<byte[], byte[]>> records = sameOnceSettled(TOMBSTONES, this::keysAreUnique);
            Check.that(records.stream().anyMatch(record -> record.value() == null), "tombstones");
        });
        cases.run("tombstones go in a round after delete.retention.ms, as in Kafka", () -> {
            int before = sent.get(TOMBSTONES);
            send(TOMBSTONES, 100, 300, Load.TIME_MS + 600_000, false);
            sameOnceSettled(TOMBSTONES, view -> keysAreUnique(view)
                && view.records.stream().noneMatch(record -> record.value() == null && record.offset() < before - 200));
        });
    }

    private void maxLag() {
        cases.run("max.compaction.lag.ms ends segments and compacts what is not dirty enough, as in Kafka", () -> {
            send(MAX_LAG, 150, 300, Load.TIME_MS, true);
            sameOnceSettled(MAX_LAG, this::keysAreUnique);
        });
    }

    private void minLag() {
        cases.run("min.compaction.lag.ms spares what Kafka spares", () -> {
            send(MIN_LAG, 100, 300, Load.TIME_MS - 2 * DAY_MS, true);
            int old = sent.get(MIN_LAG);
            send(MIN_LAG, 100, 300, Load.TIME_MS, true);
            compactNow(MIN_LAG);
            List<ConsumerRecord<byte[], byte[]>> records =
                sameOnceSettled(MIN_LAG, view -> keysAreUnique(view.records, Math.min(old, view.activeBase)));
            Check.equal((long) (sent.get(MIN_LAG) - old), records.stream().filter(record -> record.offset() >= old).count(),
                "records that are too young");
        });
    }

    private void withDelete() {
        cases.run("compact,delete: what is too old goes, as in Kafka", () -> {
            send(BOTH, 100, 300, Load.TIME_MS - 5 * DAY_MS, true);
            int old = sent.get(BOTH);
            send(BOTH, 100, 300, Load.TIME_MS, true);
            sameOnceSettled(BOTH, view -> view.start == old);
        });
        cases.run("compact,delete: the rest is compacted, as in Kafka", () -> {
            compactNow(BOTH);
            sameOnceSettled(BOTH, this::keysAreUnique);
        });
    }

    // ---- what is sent ----

    private static Admin admin(Broker broker) {
        return Admin.create(Map.of("bootstrap.servers", broker.bootstrap));
    }

    private static NewTopic topic(String name, Map<String, String> own) {
        Map<String, String> all = new TreeMap<>(Map.of("cleanup.policy", "compact", "min.cleanable.dirty.ratio", NOTHING_IS_DIRTY_ENOUGH));
        all.putAll(own);
        return new NewTopic(name, 1, (short) 1).configs(all);
    }

    private void compactNow(String topic) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        ConfigEntry ratio = new ConfigEntry("min.cleanable.dirty.ratio", ANYTHING_IS_DIRTY_ENOUGH);
        for (Broker broker : brokers) {
            try (Admin admin = admin(broker)) {
                admin.incrementalAlterConfigs(Map.of(resource, List.of(new AlterConfigOp(ratio, AlterConfigOp.OpType.SET)))).all().get();
            }
        }
    }

    private void send(String topic, int batches, int valueBytesMax, long fromMs, boolean withTombstones) throws Exception {
        Random random = new Random(topic.hashCode() + fromMs);
        int[] next = sequences.computeIfAbsent(topic, none -> new int[2]);
        List<MemoryRecords> all = new ArrayList<>();
        int records = 0;
        for (int number = 0; number < batches; number++) {
            SimpleRecord[] batch = new SimpleRecord[1 + random.nextInt(10)];
            for (int i = 0; i < batch.length; i++) {
                batch[i] = record(number, fromMs, valueBytesMax, withTombstones, random);
            }
            records += batch.length;
            all.add(batch(number, next, batch));
        }
        sent.merge(topic, records, Integer::sum);
        for (Broker broker : brokers) {
            try (Connection connection = RawProducer.connect(broker.bootstrap)) {
                for (MemoryRecords batch : all) {
                    RawProducer.produce(connection, topic, batch);
                }
            }
        }
    }

    private static SimpleRecord record(int number, long fromMs, int valueBytesMax, boolean withTombstones, Random random) {
        Header[] headers = switch (random.nextInt(3)) {
            case 0 -> new Header[0];
            case 1 -> new Header[] {new RecordHeader("h", Load.utf8("v" + number))};
            default -> new Header[] {new RecordHeader("h", Load.utf8("first")), new RecordHeader("n", null), new RecordHeader("h", new byte[0])};
        };
        byte[] value = withTombstones && random.nextInt(5) == 0 ? null : Load.text(random, random.nextInt(valueBytesMax));
        // Not in order within a batch, and rising from one to the next.
        long time = fromMs + number * BATCH_EVERY_MS + random.nextInt((int) BATCH_EVERY_MS);
        return new SimpleRecord(time, Load.utf8("key-" + random.nextInt(KEYS)), value, headers);
    }

    /** Every third without a producer id; the others of two producers in turn. */
    private static MemoryRecords batch(int number, int[] sequences, SimpleRecord[] records) {
        var codec = RawProducer.CODECS.get(number % RawProducer.CODECS.size());
        int producer = number % 3;
        if (producer == 2) {
            return MemoryRecords.withRecords(codec, records);
        }
        int sequence = sequences[producer];
        sequences[producer] += records.length;
        return MemoryRecords.withIdempotentRecords(codec, 8_000 + producer, (short) 0, sequence, records);
    }

    // ---- what is read ----

    /** What one of them serves, and where its active segment begins. */
    private record View(long start, long end, long activeBase, List<ConsumerRecord<byte[], byte[]>> records) {}

    private boolean keysAreUnique(View view) {
        return keysAreUnique(view.records, view.activeBase);
    }

    private static boolean keysAreUnique(List<ConsumerRecord<byte[], byte[]>> records, long below) {
        Set<String> keys = new HashSet<>();
        return below > 0 && records.stream().filter(record -> record.offset() < below).allMatch(record -> keys.add(new String(record.key())));
    }

    /** Waits until both have come so far, and compares them. Returns what was read. */
    private List<ConsumerRecord<byte[], byte[]>> sameOnceSettled(String topic, Predicate<View> settled) throws Exception {
        View expected = settled(brokers.get(0), topic, settled, "Kafka");
        View found = settled(brokers.get(1), topic, settled, "the broker under test");
        Check.equal(expected.start, found.start, "log start");
        Check.equal(expected.end, found.end, "log end");
        Check.equal(expected.activeBase, found.activeBase, "base of the active segment");
        for (int i = 0; i < Math.min(expected.records.size(), found.records.size()); i++) {
            Check.equal(Reader.line(expected.records.get(i)), Reader.line(found.records.get(i)), "record " + i);
        }
        Check.equal(expected.records.size(), found.records.size(), "records");
        cases.comment(topic + ": of " + sent.get(topic) + " records " + found.records.size() + " are left, "
            + found.records.stream().filter(record -> record.value() == null).count() + " tombstones among them");
        return found.records;
    }

    private static View settled(Broker broker, String topic, Predicate<View> settled, String who) throws Exception {
        TopicPartition partition = new TopicPartition(topic, 0);
        long deadline = System.currentTimeMillis() + SETTLED_MAX_MS;
        try (KafkaConsumer<byte[], byte[]> consumer = Reader.consumer(broker.bootstrap)) {
            while (true) {
                long start = consumer.beginningOffsets(List.of(partition)).get(partition);
                long end = consumer.endOffsets(List.of(partition)).get(partition);
                View view = new View(start, end, activeBase(broker.data.resolve(partition.toString())),
                    Reader.read(consumer, partition, end));
                if (settled.test(view)) {
                    return view;
                }
                if (System.currentTimeMillis() > deadline) {
                    throw new AssertionError(who + " has not come so far: " + topic + " from " + start + " to " + end + ", "
                        + view.records.size() + " records, active segment at " + view.activeBase);
                }
                Thread.sleep(200);
            }
        }
    }

    private static long activeBase(Path folder) throws IOException {
        try (Stream<Path> files = Files.list(folder)) {
            return files.map(file -> file.getFileName().toString()).filter(name -> name.endsWith(".log"))
                .mapToLong(name -> Long.parseLong(name.substring(0, name.length() - ".log".length()))).max().orElse(0);
        }
    }
}
