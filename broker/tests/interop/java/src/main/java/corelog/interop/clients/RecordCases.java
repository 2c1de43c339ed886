package corelog.interop.clients;

import corelog.interop.common.Cases;
import corelog.interop.common.Check;
import corelog.interop.common.Fixtures.Fixture;
import corelog.interop.common.Fixtures;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.function.IntFunction;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.TimestampType;

/** What goes in comes out: every compression, every acks, keyed and not, and what other suites wrote. */
final class RecordCases {
    private static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");

    private final Broker broker;
    private final Cases cases;
    private final List<Fixture> fixtures = Fixtures.load();

    RecordCases(Broker broker, Cases cases) {
        this.broker = broker;
        this.cases = cases;
    }

    void run() {
        for (String codec : CODECS) {
            cases.run("records come back identical, compression " + codec,
                () -> roundTrip("cross.java." + codec, Map.of("compression.type", codec)));
        }
        for (String acks : List.of("0", "1", "all")) {
            cases.run("records come back identical, acks " + acks + " without idempotence",
                () -> roundTrip("java.acks." + acks, Map.of("acks", acks, "enable.idempotence", false,
                    "max.in.flight.requests.per.connection", 1)));
        }
        cases.run("an idempotent producer's pipelined batches arrive once and in order", this::idempotentPipeline);
        cases.run("keyed records keep their key's partition and order", this::keyedPartitions);
        cases.run("a topic with its own compression re-compresses what it is sent", this::brokerCompression);
        cases.run("a topic with LogAppendTime stamps its own time", this::logAppendTime);
        cases.run("read_committed sees records that are in no transaction", this::readCommitted);
        cases.run("a producer creates the topic it names", this::autoCreate);
        cases.run("records that other clients wrote are identical", this::readCrossTopics);
    }

    private List<ProducerRecord<byte[], byte[]>> fixtureRecords(String topic) {
        return fixtures.stream().map(fixture -> fixture.to(topic, 0)).toList();
    }

    private void roundTrip(String topic, Map<String, Object> settings) throws Exception {
        broker.createTopic(topic, 1, Map.of());
        broker.send(settings, fixtureRecords(topic));
        checkFixtures(topic, Map.of());
    }

    private void checkFixtures(String topic, Map<String, Object> settings) {
        List<Fixture> expected = Fixtures.expectedIn(topic);
        List<ConsumerRecord<byte[], byte[]>> read = broker.readAll(topic, 1, expected.size(), settings);
        Check.equal(expected.size(), read.size(), "records read from " + topic);
        for (int i = 0; i < read.size(); i++) {
            Fixture wrote = expected.get(i);
            Check.equal((long) i, read.get(i).offset(), "offset of \"" + wrote.name() + "\"");
            Check.equal(wrote.timestamp(), read.get(i).timestamp(), "timestamp of \"" + wrote.name() + "\" in " + topic);
            checkContent(wrote, read.get(i));
        }
    }

    private static void checkContent(Fixture wrote, ConsumerRecord<byte[], byte[]> read) {
        Check.equal(hex(wrote.key()), hex(read.key()), "key of \"" + wrote.name() + "\"");
        Check.equal(hex(wrote.value()), hex(read.value()), "value of \"" + wrote.name() + "\"");
        Check.equal(headers(wrote.headers()), headers(Arrays.asList(read.headers().toArray())), "headers of \"" + wrote.name() + "\"");
    }

    private static String hex(byte[] bytes) {
        return bytes == null ? null : HexFormat.of().formatHex(bytes);
    }

    private static List<String> headers(List<Header> headers) {
        return headers.stream().map(header -> header.key() + "=" + hex(header.value())).toList();
    }

    private void idempotentPipeline() throws Exception {
        String topic = "java.idempotent";
        broker.createTopic(topic, 1, Map.of());
        List<ProducerRecord<byte[], byte[]>> records = numbered(topic, 0, 2_000, i -> null);
        List<RecordMetadata> sent = broker.send(Map.of("enable.idempotence", true, "max.in.flight.requests.per.connection", 5,
            "batch.size", 200), records);
        for (int i = 0; i < sent.size(); i++) {
            Check.equal((long) i, sent.get(i).offset(), "offset acknowledged for record " + i);
        }
        List<ConsumerRecord<byte[], byte[]>> read = broker.readAll(topic, 1, records.size(), Map.of());
        Check.equal(values(records.stream().map(ProducerRecord::value).toList()),
            values(read.stream().map(ConsumerRecord::value).toList()), "records read");
    }

    private void keyedPartitions() throws Exception {
        String topic = "java.keyed";
        broker.createTopic(topic, 3, Map.of());
        List<ProducerRecord<byte[], byte[]>> records = numbered(topic, null, 300, i -> "key-" + i % 17);
        List<RecordMetadata> sent = broker.send(Map.of(), records);
        List<ConsumerRecord<byte[], byte[]>> read = broker.readAll(topic, 3, records.size(), Map.of());
        Check.equal(records.size(), read.size(), "records read");
        Check.equal(3, new TreeSet<>(sent.stream().map(RecordMetadata::partition).toList()).size(), "partitions used");
        for (int partition = 0; partition < 3; partition++) {
            int wanted = partition;
            List<byte[]> expected = IntStream.range(0, records.size()).filter(i -> sent.get(i).partition() == wanted)
                .mapToObj(i -> records.get(i).value()).toList();
            Check.equal(values(expected), values(read.stream().filter(r -> r.partition() == wanted).map(ConsumerRecord::value).toList()),
                "order in partition " + partition);
        }
    }

    private void brokerCompression() throws Exception {
        String topic = "java.recompressed";
        broker.createTopic(topic, 1, Map.of("compression.type", "lz4"));
        broker.send(Map.of("compression.type", "gzip"), fixtureRecords(topic));
        checkFixtures(topic, Map.of());
    }

    private void logAppendTime() throws Exception {
        String topic = "java.append-time";
        broker.createTopic(topic, 1, Map.of("message.timestamp.type", "LogAppendTime"));
        long before = System.currentTimeMillis();
        List<RecordMetadata> sent = broker.send(Map.of("compression.type", "zstd"), fixtureRecords(topic));
        long after = System.currentTimeMillis();
        List<ConsumerRecord<byte[], byte[]>> read = broker.readAll(topic, 1, fixtures.size(), Map.of());
        Check.equal(fixtures.size(), read.size(), "records read");
        for (int i = 0; i < read.size(); i++) {
            Check.equal(TimestampType.LOG_APPEND_TIME, read.get(i).timestampType(), "timestamp type");
            Check.that(before <= read.get(i).timestamp() && read.get(i).timestamp() <= after, "the time of the append");
            Check.equal(read.get(i).timestamp(), sent.get(i).timestamp(), "timestamp in the acknowledgement");
            checkContent(fixtures.get(i), read.get(i));
        }
    }

    private void readCommitted() throws Exception {
        String topic = "java.read-committed";
        broker.createTopic(topic, 1, Map.of());
        broker.send(Map.of(), fixtureRecords(topic));
        checkFixtures(topic, Map.of("isolation.level", "read_committed"));
    }

    private void autoCreate() throws Exception {
        broker.send(Map.of(), fixtureRecords("java.auto-created"));
        checkFixtures("java.auto-created", Map.of());
    }

    private void readCrossTopics() throws Exception {
        List<String> topics = broker.admin.listTopics().names().get().stream().filter(name -> name.startsWith("cross.")).sorted().toList();
        Check.that(topics.size() >= CODECS.size(), "at least this suite's own topics, got " + topics);
        for (String topic : topics) {
            checkFixtures(topic, Map.of());
        }
    }

    private static List<ProducerRecord<byte[], byte[]>> numbered(String topic, Integer partition, int count,
                                                                 IntFunction<String> key) {
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            String named = key.apply(i);
            records.add(new ProducerRecord<>(topic, partition, named == null ? null : named.getBytes(StandardCharsets.UTF_8),
                ("record " + i).getBytes(StandardCharsets.UTF_8)));
        }
        return records;
    }

    private static List<String> values(List<byte[]> values) {
        return values.stream().map(value -> new String(value, StandardCharsets.UTF_8)).toList();
    }
}
