package corelog.interop.differential.scenarios;

import static corelog.interop.differential.scenarios.Batch.TIME_MS;
import static corelog.interop.differential.scenarios.Batch.utf8;

import corelog.interop.differential.Exchange;
import corelog.interop.differential.Scenario;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.message.ProduceRequestData.PartitionProduceData;
import org.apache.kafka.common.message.ProduceRequestData.TopicProduceData;
import org.apache.kafka.common.message.ProduceRequestData;
import org.apache.kafka.common.message.ProduceResponseData;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.SimpleRecord;

/** Produce: acknowledgements, compressions, topic settings, addressing; each with what a fetch then finds. */
final class ProduceScenarios {
    private static final long HOUR_MS = 3_600_000;
    private static final Uuid UNKNOWN_ID = new Uuid(0x1234, 0x5678);
    private static final int FIRST_WITH_ZSTD = 7;

    private ProduceScenarios() {}

    static List<Scenario> list() {
        return List.of(
            Scenario.each("produce", ApiKeys.PRODUCE, ProduceScenarios::acknowledgements),
            Scenario.each("produce-compressed", ApiKeys.PRODUCE, ProduceScenarios::compressed),
            Scenario.each("produce-addressing", ApiKeys.PRODUCE, ProduceScenarios::addressing),
            Scenario.each("produce-limits", ApiKeys.PRODUCE, ProduceScenarios::limits),
            Scenario.each("produce-timestamps", ApiKeys.PRODUCE, ProduceScenarios::timestamps),
            Scenario.each("produce-append-time", ApiKeys.PRODUCE, ProduceScenarios::appendTime),
            Scenario.each("produce-recompressed", ApiKeys.PRODUCE, ProduceScenarios::recompressed),
            Scenario.each("produce-compacted", ApiKeys.PRODUCE, ProduceScenarios::compacted));
    }

    static Produce topic(Exchange x, int partitions, Map<String, String> configs) throws Exception {
        String name = x.name("topic");
        return new Produce(x, name, x.setup().topic(name, partitions, configs));
    }

    private static void acknowledgements(Exchange x, short v) throws Exception {
        Produce produce = topic(x, 2, Map.of());
        produce.ask("all replicas", 0, Batch.plain(3));
        x.ask("the leader", produce.request(Produce.LEADER, 0, Batch.plain(2)));
        x.tell(produce.request(Produce.NONE, 0, Batch.plain(4)));
        produce.ask("no acknowledgement, and the next request is answered", 0, Batch.plain(1));
        x.ask("acks of two", produce.request((short) 2, 0, Batch.plain(1)));
        x.ask("acks of minus two", produce.request((short) -2, 0, Batch.plain(1)));
        x.ask("no timeout", produce.request(Produce.ALL, 0, Batch.plain(1)).setTimeoutMs(0));
        x.ask("a transactional id without transactions", produce.request(Produce.ALL, 0, Batch.plain(1)).setTransactionalId("t"));
        Fetch.all(x, produce, 0);
        x.tell(produce.request(Produce.NONE, 9, Batch.plain(1)));
        x.note("after a failed request without acknowledgement", Fetch.next(x, produce) ? "served" : "connection closed");
    }

    private static void compressed(Exchange x, short v) throws Exception {
        Produce produce = topic(x, 1, Map.of());
        for (CompressionType type : CompressionType.values()) {
            if (type != CompressionType.ZSTD || v >= FIRST_WITH_ZSTD) {
                produce.ask(type.name, 0, Batch.compressed(Compression.of(type).build(), 5));
            }
        }
        if (v < FIRST_WITH_ZSTD) {
            produce.ask("zstd before its version", 0, Batch.compressed(Compression.zstd().build(), 5));
        }
        Fetch.all(x, produce, 0);
    }

    private static void addressing(Exchange x, short v) throws Exception {
        Produce produce = topic(x, 2, Map.of());
        Produce unknown = new Produce(x, x.name("unknown"), UNKNOWN_ID);
        produce.ask("a partition that is not there", 9, Batch.plain(1));
        produce.ask("a negative partition", -1, Batch.plain(1));
        unknown.ask("an unknown topic", 0, Batch.plain(1));
        new Produce(x, "no spaces!", Uuid.ZERO_UUID).ask("an illegal name, or no id", 0, Batch.plain(1));
        ProduceRequestData request = produce.request(Produce.ALL, 1, Batch.plain(2));
        request.topicData().iterator().next().partitionData().add(new PartitionProduceData().setIndex(0).setRecords(Batch.plain(3)));
        x.askTrimmed("two partitions", request, ProduceScenarios::sort);
        ProduceRequestData mixed = produce.request(Produce.ALL, 0, Batch.plain(1));
        mixed.topicData().mustAdd(unknown.topicData(0, Batch.plain(1)));
        x.askTrimmed("known and unknown topics", mixed, ProduceScenarios::sort);
        x.ask("no topics", new ProduceRequestData().setAcks(Produce.ALL).setTimeoutMs(10_000));
        ProduceRequestData noPartitions = new ProduceRequestData().setAcks(Produce.ALL).setTimeoutMs(10_000);
        noPartitions.topicData().mustAdd(v < 13 ? new TopicProduceData().setName(produce.topic) : new TopicProduceData().setTopicId(produce.id));
        x.ask("a topic without partitions", noPartitions);
        ProduceRequestData twice = produce.request(Produce.ALL, 0, Batch.plain(1));
        twice.topicData().iterator().next().partitionData().add(new PartitionProduceData().setIndex(0).setRecords(Batch.plain(2)));
        x.ask("a partition twice", twice);
        Fetch.all(x, produce, 0);
        Fetch.all(x, produce, 1);
    }

    /** Kafka answers topics and partitions in the order of a hash table keyed by random ids. */
    private static void sort(ProduceResponseData answer) {
        var topics = new ArrayList<>(answer.responses());
        answer.responses().clear();
        topics.sort(Comparator.comparing(topic -> topic.partitionResponses().get(0).errorCode()));
        topics.forEach(topic -> {
            topic.partitionResponses().sort(Comparator.comparingInt(partition -> partition.index()));
            topic.setNext(-2);
            topic.setPrev(-2);
            answer.responses().mustAdd(topic);
        });
    }

    private static void limits(Exchange x, short v) throws Exception {
        Produce produce = topic(x, 1, Map.of("max.message.bytes", "1000"));
        produce.ask("below the limit", 0, Batch.sized(800));
        produce.ask("just at the limit", 0, Batch.sized(1000 - overhead()));
        produce.ask("one byte above the limit", 0, Batch.sized(1001 - overhead()));
        produce.ask("far above the limit", 0, Batch.sized(100_000));
        produce.ask("small only while compressed", 0, MemoryRecords.withRecords(Compression.gzip().build(),
            new SimpleRecord(TIME_MS, null, new byte[50_000])));
        Fetch.all(x, produce, 0);
    }

    /** What a batch of one record with a value of about 900 bytes and no key has besides the value. */
    private static int overhead() {
        return Batch.sized(900).sizeInBytes() - 900;
    }

    private static void timestamps(Exchange x, short v) throws Exception {
        Produce produce = topic(x, 1, Map.of("message.timestamp.before.max.ms", String.valueOf(24 * HOUR_MS)));
        long now = System.currentTimeMillis();
        x.mask("errorMessage", "batchIndexErrorMessage");
        produce.ask("three hours ahead", 0, Batch.of(new SimpleRecord(now + 3 * HOUR_MS, utf8("k"), utf8("v"))));
        produce.ask("two days ago", 0, Batch.of(new SimpleRecord(now - 48 * HOUR_MS, utf8("k"), utf8("v"))));
        produce.ask("one good, one bad", 0, Batch.of(new SimpleRecord(TIME_MS, utf8("k"), utf8("v")),
            new SimpleRecord(now + 3 * HOUR_MS, utf8("k"), utf8("v"))));
        produce.ask("no timestamp", 0, Batch.of(new SimpleRecord(-1L, utf8("k"), utf8("v"))));
        produce.ask("good", 0, Batch.plain(1));
        Fetch.all(x, produce, 0);
    }

    private static void appendTime(Exchange x, short v) throws Exception {
        Produce produce = topic(x, 1, Map.of("message.timestamp.type", "LogAppendTime"));
        x.mask("maxTimestamp", "timestamp", "crc");
        produce.ask("plain", 0, Batch.plain(3));
        produce.ask("compressed", 0, Batch.compressed(Compression.lz4().build(), 3));
        produce.ask("three hours ahead does not matter", 0,
            Batch.of(new SimpleRecord(System.currentTimeMillis() + 3 * HOUR_MS, utf8("k"), utf8("v"))));
        Fetch.all(x, produce, 0);
    }

    private static void recompressed(Exchange x, short v) throws Exception {
        // Two compressors of one format need not agree in a single byte: only what comes out of them is compared.
        x.mask("crc", "batchBytes", "recordsSizeInBytes");
        Produce produce = topic(x, 1, Map.of("compression.type", "gzip"));
        produce.ask("what was not compressed", 0, Batch.plain(4));
        produce.ask("what was compressed otherwise", 0, Batch.compressed(Compression.lz4().build(), 4));
        produce.ask("what is right already", 0, Batch.compressed(Compression.gzip().build(), 4));
        Fetch.all(x, produce, 0);
        String name = x.name("uncompressed");
        Produce plain = new Produce(x, name, x.setup().topic(name, 1, Map.of("compression.type", "uncompressed")));
        plain.ask("a topic that wants none", 0, Batch.compressed(Compression.snappy().build(), 4));
        Fetch.all(x, plain, 0);
    }

    private static void compacted(Exchange x, short v) throws Exception {
        Produce produce = topic(x, 1, Map.of("cleanup.policy", "compact"));
        produce.ask("with keys", 0, Batch.plain(2));
        produce.ask("without a key", 0, Batch.of(new SimpleRecord(TIME_MS, null, utf8("v"))));
        produce.ask("some with a key and some without", 0, Batch.of(new SimpleRecord(TIME_MS, utf8("k"), utf8("v")),
            new SimpleRecord(TIME_MS, null, utf8("v")), new SimpleRecord(TIME_MS, null, utf8("w"))));
        produce.ask("a tombstone", 0, Batch.of(new SimpleRecord(TIME_MS, utf8("k"), null)));
        Fetch.all(x, produce, 0);
    }
}
