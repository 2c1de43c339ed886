package corelog.interop.differential.scenarios;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;
import java.util.zip.CRC32C;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.SimpleRecord;
import org.apache.kafka.common.record.TimestampType;

/** Record batches as a client would send them, and the same spoilt. All bytes are the same for both brokers. */
final class Batch {
    /** When the first record of each batch was made: inside every default limit. */
    static final long TIME_MS = Long.parseLong(System.getenv("INTEROP_BASE_MS"));

    /** Where the fields of a version 2 batch lie (bytes from its start). */
    static final int LENGTH_AT = 8;
    static final int LEADER_EPOCH_AT = 12;
    static final int MAGIC_AT = 16;
    static final int CRC_AT = 17;
    static final int ATTRIBUTES_AT = 21;
    static final int LAST_OFFSET_DELTA_AT = 23;
    static final int MAX_TIMESTAMP_AT = 35;
    static final int COUNT_AT = 57;

    private Batch() {}

    static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    /** Records "0".."n-1", a second apart, each with a key and every other with headers. */
    static SimpleRecord[] records(int count) {
        List<SimpleRecord> records = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            Header[] headers = i % 2 == 0 ? new Header[0]
                : new Header[] {new RecordHeader("h", utf8("v" + i)), new RecordHeader("null", null)};
            records.add(new SimpleRecord(TIME_MS + 1_000L * i, utf8("key " + i), utf8("value " + i), headers));
        }
        return records.toArray(SimpleRecord[]::new);
    }

    static MemoryRecords plain(int count) {
        return MemoryRecords.withRecords(Compression.NONE, records(count));
    }

    static MemoryRecords of(SimpleRecord... records) {
        return MemoryRecords.withRecords(Compression.NONE, records);
    }

    static MemoryRecords compressed(Compression compression, int count) {
        return MemoryRecords.withRecords(compression, records(count));
    }

    /** One record whose value has this many bytes. */
    static MemoryRecords sized(int valueBytes) {
        return of(new SimpleRecord(TIME_MS, null, new byte[valueBytes]));
    }

    static MemoryRecords magic(byte magic, Compression compression, int count) {
        return MemoryRecords.withRecords(magic, compression, legacyRecords(count));
    }

    private static SimpleRecord[] legacyRecords(int count) {
        SimpleRecord[] records = new SimpleRecord[count];
        for (int i = 0; i < count; i++) {
            records[i] = new SimpleRecord(TIME_MS + i, utf8("key " + i), utf8("value " + i));
        }
        return records;
    }

    static MemoryRecords idempotent(long producerId, int epoch, int sequence, int count) {
        return MemoryRecords.withIdempotentRecords(Compression.NONE, producerId, (short) epoch, sequence, records(count));
    }

    static MemoryRecords transactional(long producerId, int epoch, int sequence, int count) {
        return MemoryRecords.withTransactionalRecords(Compression.NONE, producerId, (short) epoch, sequence, records(count));
    }

    static MemoryRecords withBaseOffset(long baseOffset, int count) {
        return MemoryRecords.withRecords(RecordBatch.MAGIC_VALUE_V2, baseOffset, Compression.NONE, TimestampType.CREATE_TIME, records(count));
    }

    /** Several batches, one behind the other. */
    static MemoryRecords joined(MemoryRecords... all) {
        int size = 0;
        for (MemoryRecords records : all) {
            size += records.sizeInBytes();
        }
        ByteBuffer buffer = ByteBuffer.allocate(size);
        for (MemoryRecords records : all) {
            buffer.put(records.buffer());
        }
        return MemoryRecords.readableRecords(buffer.flip());
    }

    /** The first `bytes` bytes. */
    static MemoryRecords cut(MemoryRecords records, int bytes) {
        ByteBuffer buffer = copy(records);
        buffer.limit(bytes);
        return MemoryRecords.readableRecords(buffer.slice());
    }

    /** Changed, with the CRC left as it was. */
    static MemoryRecords spoilt(MemoryRecords records, Consumer<ByteBuffer> change) {
        ByteBuffer buffer = copy(records);
        change.accept(buffer);
        return MemoryRecords.readableRecords(buffer.rewind());
    }

    /** Changed, with a CRC that is right: only the change itself can be found fault with. */
    static MemoryRecords forged(MemoryRecords records, Consumer<ByteBuffer> change) {
        return spoilt(records, buffer -> {
            change.accept(buffer);
            CRC32C crc = new CRC32C();
            crc.update(buffer.duplicate().position(ATTRIBUTES_AT));
            buffer.putInt(CRC_AT, (int) crc.getValue());
        });
    }

    private static ByteBuffer copy(MemoryRecords records) {
        ByteBuffer copy = ByteBuffer.allocate(records.sizeInBytes());
        copy.put(records.buffer()).flip();
        return copy;
    }
}
