package corelog.interop.clients;

import corelog.interop.common.Cases;
import corelog.interop.common.Check;
import corelog.interop.common.Fixtures;
import corelog.interop.common.Fixtures.Fixture;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.common.TopicPartition;

/** Offsets by time, by name (earliest, latest, the newest timestamp), and reading from there. */
final class TimeCases {
    private static final String TOPIC = "java.by-time";
    private static final TopicPartition PARTITION = new TopicPartition(TOPIC, 0);

    private final Broker broker;
    private final Cases cases;
    private final List<Fixture> fixtures = Fixtures.load();

    TimeCases(Broker broker, Cases cases) {
        this.broker = broker;
        this.cases = cases;
    }

    void run() {
        cases.run("records are written for the time cases", () -> {
            broker.createTopic(TOPIC, 1, Map.of());
            broker.send(Map.of("compression.type", "lz4"), fixtures.stream().map(fixture -> fixture.to(TOPIC, 0)).toList());
        });
        cases.run("offsetsForTimes finds the first record that is not older", this::offsetsForTimes);
        cases.run("reading from a time yields the records from there on", this::readFromTime);
        cases.run("list offsets: earliest, latest, newest timestamp, by time", this::listOffsets);
        cases.run("list offsets of an empty partition", this::listOffsetsOfNothing);
        cases.run("beginning, end and position agree", this::beginningAndEnd);
    }

    /** What the broker must answer for a time: the first offset whose record is not older, or -1. */
    private int firstNotOlder(long time) {
        for (int i = 0; i < fixtures.size(); i++) {
            if (fixtures.get(i).timestamp() >= time) {
                return i;
            }
        }
        return -1;
    }

    private void offsetsForTimes() {
        try (Consumer<byte[], byte[]> consumer = broker.consumer(Map.of())) {
            for (Fixture fixture : fixtures) {
                for (long time : new long[] {fixture.timestamp() - 1, fixture.timestamp(), fixture.timestamp() + 1}) {
                    int expected = firstNotOlder(time);
                    OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(PARTITION, time)).get(PARTITION);
                    Check.equal(expected, found == null ? -1 : (int) found.offset(), "offset for " + time);
                    if (found != null) {
                        Check.equal(fixtures.get(expected).timestamp(), found.timestamp(), "timestamp found for " + time);
                    }
                }
            }
        }
    }

    private void readFromTime() {
        try (Consumer<byte[], byte[]> consumer = broker.consumer(Map.of())) {
            long time = fixtures.get(8).timestamp() - 500;
            consumer.assign(List.of(PARTITION));
            consumer.seek(PARTITION, consumer.offsetsForTimes(Map.of(PARTITION, time)).get(PARTITION).offset());
            List<ConsumerRecord<byte[], byte[]>> read = Broker.poll(consumer, fixtures.size() - 8);
            Check.equal(8L, read.get(0).offset(), "first offset read");
            Check.equal(fixtures.size() - 8, read.size(), "records read");
        }
    }

    private ListOffsetsResultInfo listOne(TopicPartition partition, OffsetSpec spec) throws Exception {
        return broker.admin.listOffsets(Map.of(partition, spec)).partitionResult(partition).get();
    }

    private void listOffsets() throws Exception {
        Fixture newest = fixtures.stream().max(Comparator.comparingLong(Fixture::timestamp)).orElseThrow();
        Check.equal(0L, listOne(PARTITION, OffsetSpec.earliest()).offset(), "earliest");
        Check.equal((long) fixtures.size(), listOne(PARTITION, OffsetSpec.latest()).offset(), "latest");
        Check.equal(0L, listOne(PARTITION, OffsetSpec.earliestLocal()).offset(), "earliest local");
        Check.equal((long) fixtures.indexOf(newest), listOne(PARTITION, OffsetSpec.maxTimestamp()).offset(), "newest timestamp's offset");
        Check.equal(newest.timestamp(), listOne(PARTITION, OffsetSpec.maxTimestamp()).timestamp(), "newest timestamp");
        Check.equal(3L, listOne(PARTITION, OffsetSpec.forTimestamp(fixtures.get(3).timestamp())).offset(), "by time");
        Check.equal(0, listOne(PARTITION, OffsetSpec.latest()).leaderEpoch().orElseThrow(), "leader epoch");
    }

    private void listOffsetsOfNothing() throws Exception {
        TopicPartition empty = new TopicPartition("java.by-time.empty", 0);
        broker.createTopic(empty.topic(), 1, Map.of());
        Check.equal(0L, listOne(empty, OffsetSpec.earliest()).offset(), "earliest");
        Check.equal(0L, listOne(empty, OffsetSpec.latest()).offset(), "latest");
        Check.equal(-1L, listOne(empty, OffsetSpec.maxTimestamp()).offset(), "newest timestamp's offset");
        Check.equal(-1L, listOne(empty, OffsetSpec.forTimestamp(0)).offset(), "by time");
    }

    private void beginningAndEnd() {
        try (Consumer<byte[], byte[]> consumer = broker.consumer(Map.of())) {
            consumer.assign(List.of(PARTITION));
            Check.equal(Map.of(PARTITION, 0L), consumer.beginningOffsets(List.of(PARTITION)), "beginning");
            Check.equal(Map.of(PARTITION, (long) fixtures.size()), consumer.endOffsets(List.of(PARTITION)), "end");
            consumer.seekToEnd(List.of(PARTITION));
            Check.equal((long) fixtures.size(), consumer.position(PARTITION), "position at the end");
        }
    }
}
