package corelog.interop.differential.scenarios;

import corelog.interop.differential.Exchange;
import corelog.interop.differential.Scenario;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.record.EndTransactionMarker;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.MemoryRecords;

/** Batches that must not get into a log: each is refused the way Kafka refuses it, and nothing of it is found afterwards. */
final class BadBatchScenarios {
    private static final short TRANSACTIONAL_BIT = 0x10;
    private static final short CONTROL_BIT = 0x20;
    private static final short APPEND_TIME_BIT = 0x08;
    private static final short NO_SUCH_COMPRESSION = 0x07;

    private BadBatchScenarios() {}

    static List<Scenario> list() {
        return List.of(
            Scenario.each("produce-bad-batches", ApiKeys.PRODUCE, BadBatchScenarios::headers),
            Scenario.each("produce-bad-counts", ApiKeys.PRODUCE, BadBatchScenarios::counts),
            Scenario.each("produce-bad-contents", ApiKeys.PRODUCE, BadBatchScenarios::contents),
            Scenario.each("produce-unusual-batches", ApiKeys.PRODUCE, BadBatchScenarios::unusual));
    }

    private static void headers(Exchange x, short v) throws Exception {
        Produce produce = ProduceScenarios.topic(x, 1, Map.of());
        MemoryRecords good = Batch.plain(3);
        produce.ask("a wrong CRC", 0, Batch.spoilt(good, batch -> batch.putInt(Batch.CRC_AT, batch.getInt(Batch.CRC_AT) ^ 1)));
        produce.ask("a flipped bit in a record", 0, Batch.spoilt(good, batch -> batch.put(70, (byte) (batch.get(70) ^ 1))));
        produce.ask("format version 0", 0, Batch.magic((byte) 0, Compression.NONE, 2));
        produce.ask("format version 1", 0, Batch.magic((byte) 1, Compression.NONE, 2));
        produce.ask("format version 1, compressed", 0, Batch.magic((byte) 1, Compression.gzip().build(), 2));
        produce.ask("format version 3", 0, Batch.spoilt(good, batch -> batch.put(Batch.MAGIC_AT, (byte) 3)));
        produce.ask("a negative format version", 0, Batch.spoilt(good, batch -> batch.put(Batch.MAGIC_AT, (byte) -1)));
        produce.ask("a length of zero", 0, Batch.spoilt(good, batch -> batch.putInt(Batch.LENGTH_AT, 0)));
        produce.ask("a negative length", 0, Batch.spoilt(good, batch -> batch.putInt(Batch.LENGTH_AT, -5)));
        produce.ask("a length beyond the data", 0, Batch.spoilt(good, batch -> batch.putInt(Batch.LENGTH_AT, 1_000_000)));
        produce.ask("a batch cut short", 0, Batch.cut(good, good.sizeInBytes() - 4));
        produce.ask("a batch header cut short", 0, Batch.cut(good, 30));
        produce.ask("an unknown compression", 0, attributes(good, NO_SUCH_COMPRESSION));
        produce.ask("no records", 0, MemoryRecords.EMPTY);
        // Null records are left out: Kafka 4.2 fails inside and never answers, so there is nothing to compare with.
        produce.ask("two batches", 0, Batch.joined(Batch.plain(1), Batch.plain(2)));
        produce.ask("a batch and rubbish behind it", 0, Batch.joined(Batch.plain(1), Batch.cut(good, 20)));
        Fetch.all(x, produce, 0);
    }

    private static MemoryRecords attributes(MemoryRecords records, short attributes) {
        return Batch.forged(records, batch -> batch.putShort(Batch.ATTRIBUTES_AT, attributes));
    }

    private static void counts(Exchange x, short v) throws Exception {
        Produce produce = ProduceScenarios.topic(x, 1, Map.of());
        MemoryRecords good = Batch.plain(3);
        MemoryRecords packed = Batch.compressed(Compression.gzip().build(), 3);
        produce.ask("one record too many announced", 0, count(good, 4, 3));
        produce.ask("one record too few announced", 0, count(good, 2, 1));
        produce.ask("a count of zero", 0, count(good, 0, -1));
        produce.ask("a negative count", 0, count(good, -1, 2));
        produce.ask("a last offset that does not fit the count", 0, count(good, 3, 7));
        produce.ask("too many announced, compressed", 0, count(packed, 4, 3));
        produce.ask("too few announced, compressed", 0, count(packed, 2, 1));
        produce.ask("a count near the largest integer", 0, count(good, Integer.MAX_VALUE, Integer.MAX_VALUE - 1));
        Fetch.all(x, produce, 0);
    }

    private static MemoryRecords count(MemoryRecords records, int count, int lastOffsetDelta) {
        return Batch.forged(records, batch -> batch.putInt(Batch.COUNT_AT, count).putInt(Batch.LAST_OFFSET_DELTA_AT, lastOffsetDelta));
    }

    private static void contents(Exchange x, short v) throws Exception {
        Produce produce = ProduceScenarios.topic(x, 1, Map.of());
        MemoryRecords good = Batch.plain(3);
        int records = Batch.COUNT_AT + 4;
        produce.ask("a record longer than its batch", 0, Batch.forged(good, batch -> batch.put(records, (byte) 0x7e)));
        produce.ask("a record of negative length", 0, Batch.forged(good, batch -> batch.put(records, (byte) 0x01)));
        produce.ask("an offset delta that jumps", 0, Batch.forged(good, batch -> batch.put(records + 3, (byte) 0x06)));
        produce.ask("a key longer than its record", 0, Batch.forged(good, batch -> batch.put(records + 4, (byte) 0x7e)));
        MemoryRecords packed = Batch.compressed(Compression.gzip().build(), 3);
        produce.ask("what gzip cannot read", 0, Batch.forged(packed, batch -> batch.putInt(records, 0)));
        produce.ask("what lz4 cannot read", 0, forgedPack(Compression.lz4().build(), records));
        produce.ask("what snappy cannot read", 0, forgedPack(Compression.snappy().build(), records));
        Fetch.all(x, produce, 0);
    }

    private static MemoryRecords forgedPack(Compression compression, int records) {
        return Batch.forged(Batch.compressed(compression, 3), batch -> batch.putInt(records, 0));
    }

    private static void unusual(Exchange x, short v) throws Exception {
        Produce produce = ProduceScenarios.topic(x, 1, Map.of());
        MemoryRecords good = Batch.plain(2);
        produce.ask("a base offset that is not zero", 0, Batch.withBaseOffset(1_000, 2));
        produce.ask("a leader epoch from nowhere", 0, Batch.spoilt(good, batch -> batch.putInt(Batch.LEADER_EPOCH_AT, 42)));
        produce.ask("a maximum timestamp that no record has", 0,
            Batch.forged(good, batch -> batch.putLong(Batch.MAX_TIMESTAMP_AT, Batch.TIME_MS + 500_000)));
        produce.ask("LogAppendTime claimed by the client", 0, attributes(good, APPEND_TIME_BIT));
        produce.ask("the control bit", 0, attributes(good, CONTROL_BIT));
        produce.ask("a transaction marker", 0, MemoryRecords.withEndTransactionMarker(5L, (short) 0,
            new EndTransactionMarker(ControlRecordType.COMMIT, 0)));
        produce.ask("the transactional bit alone", 0, attributes(good, TRANSACTIONAL_BIT));
        produce.ask("an unused attribute bit", 0, attributes(good, (short) 0x80));
        Fetch.all(x, produce, 0);
    }
}
