package corelog.interop.differential.scenarios;

import static corelog.interop.differential.scenarios.Batch.TIME_MS;
import static corelog.interop.differential.scenarios.Batch.utf8;

import corelog.interop.differential.Exchange;
import corelog.interop.differential.Scenario;
import java.util.List;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.message.ListOffsetsRequestData;
import org.apache.kafka.common.message.ListOffsetsRequestData.ListOffsetsPartition;
import org.apache.kafka.common.message.ListOffsetsRequestData.ListOffsetsTopic;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.SimpleRecord;

/** ListOffsets: by name of a place, by time, inside batches. */
final class ListOffsetsScenarios {
    private static final int FIRST_WITH_LEADER_EPOCH = 4;
    private static final int FIRST_WITH_TIMEOUT = 10;
    private static final int CONSUMER = -1;
    private static final int DEBUGGER = -2;

    private ListOffsetsScenarios() {}

    static List<Scenario> list() {
        return List.of(
            Scenario.each("list-offsets", ApiKeys.LIST_OFFSETS, ListOffsetsScenarios::places),
            Scenario.each("list-offsets-by-time", ApiKeys.LIST_OFFSETS, ListOffsetsScenarios::times),
            Scenario.each("list-offsets-addressing", ApiKeys.LIST_OFFSETS, ListOffsetsScenarios::addressing),
            Scenario.since(FIRST_WITH_LEADER_EPOCH, "list-offsets-leader-epochs", ApiKeys.LIST_OFFSETS, ListOffsetsScenarios::leaderEpochs));
    }

    private static ListOffsetsPartition at(int partition, long timestamp) {
        return new ListOffsetsPartition().setPartitionIndex(partition).setTimestamp(timestamp);
    }

    private static ListOffsetsRequestData request(short v, String topic, ListOffsetsPartition... partitions) {
        ListOffsetsRequestData request = new ListOffsetsRequestData().setReplicaId(CONSUMER)
            .setTopics(List.of(new ListOffsetsTopic().setName(topic).setPartitions(List.of(partitions))));
        return v >= FIRST_WITH_TIMEOUT ? request.setTimeoutMs(5_000) : request;
    }

    private static void places(Exchange x, short v) throws Exception {
        String topic = x.name("topic");
        Uuid id = x.setup().topic(topic, 2);
        x.setup().produce(id, 0, Batch.plain(3));
        x.setup().produce(id, 0, Batch.compressed(Compression.zstd().build(), 4));
        // From -1 (latest) down to one that no version has given a meaning.
        for (long place = -1; place >= -8; place--) {
            x.ask("place " + place, request(v, topic, at(0, place)));
            x.ask("place " + place + " of an empty partition", request(v, topic, at(1, place)));
        }
        if (v >= 2) {
            x.ask("latest of committed records", request(v, topic, at(0, -1)).setIsolationLevel((byte) 1));
        }
        x.ask("asked as a debugger", request(v, topic, at(0, -1)).setReplicaId(DEBUGGER));
    }

    private static void times(Exchange x, short v) throws Exception {
        String topic = x.name("topic");
        Uuid id = x.setup().topic(topic, 1);
        x.setup().produce(id, 0, Batch.plain(5));
        x.setup().produce(id, 0, MemoryRecords.withRecords(Compression.lz4().build(), record(10_000), record(7_000), record(12_000)));
        x.setup().produce(id, 0, Batch.of(record(6_000), record(20_000)));
        for (long delta : new long[] {-1_000_000, 0, 1, 2_000, 2_500, 4_000, 5_000, 6_500, 10_000, 10_001, 15_000, 20_000, 20_001}) {
            x.ask("time " + delta, request(v, topic, at(0, TIME_MS + delta)));
        }
        x.ask("time zero", request(v, topic, at(0, 0)));
        x.ask("the end of time", request(v, topic, at(0, Long.MAX_VALUE)));
        if (v >= 7) {
            x.ask("the newest timestamp", request(v, topic, at(0, -3)));
        }
    }

    private static SimpleRecord record(long delta) {
        return new SimpleRecord(TIME_MS + delta, utf8("k"), utf8("v"));
    }

    private static void addressing(Exchange x, short v) throws Exception {
        String topic = x.name("topic");
        Uuid id = x.setup().topic(topic, 3);
        x.setup().produce(id, 1, Batch.plain(2));
        x.unordered("partitions");
        x.ask("several partitions", request(v, topic, at(2, -1), at(0, -1), at(1, -1)));
        x.ask("a partition that is not there", request(v, topic, at(9, -1), at(1, -1)));
        x.ask("a negative partition", request(v, topic, at(-1, -1)));
        x.ask("an unknown topic", request(v, x.name("unknown"), at(0, -1)));
        x.ask("an illegal name", request(v, "no spaces!", at(0, -1)));
        x.ask("a partition twice", request(v, topic, at(1, -1), at(1, -2)));
        x.ask("no partitions", request(v, topic));
        x.ask("no topics", request(v, topic).setTopics(List.of()));
    }

    private static void leaderEpochs(Exchange x, short v) throws Exception {
        String topic = x.name("topic");
        x.setup().produce(x.setup().topic(topic, 1), 0, Batch.plain(2));
        for (int epoch : new int[] {-1, 0, 1, 100}) {
            x.ask("current leader epoch " + epoch, request(v, topic, at(0, -1).setCurrentLeaderEpoch(epoch)));
        }
    }
}
