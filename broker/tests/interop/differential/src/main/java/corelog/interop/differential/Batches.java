package corelog.interop.differential;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.Records;

/** Record batches as JSON: each header field, and each record after decompression. */
final class Batches {
    private static final JsonNodeFactory JSON = JsonNodeFactory.instance;

    private Batches() {}

    static JsonNode describe(Records records) {
        if (records == null) {
            return JSON.nullNode();
        }
        ArrayNode all = JSON.arrayNode();
        int whole = 0;
        for (MutableRecordBatch batch : ((MemoryRecords) records).batches()) {
            all.add(batch(batch));
            whole += batch.sizeInBytes();
        }
        if (whole < records.sizeInBytes()) {
            all.add("and " + (records.sizeInBytes() - whole) + " bytes of a batch cut short");
        }
        return all;
    }

    private static ObjectNode batch(MutableRecordBatch batch) {
        ObjectNode json = JSON.objectNode();
        json.put("baseOffset", batch.baseOffset());
        json.put("lastOffset", batch.lastOffset());
        json.put("batchBytes", batch.sizeInBytes());
        json.put("partitionLeaderEpoch", batch.partitionLeaderEpoch());
        json.put("magic", batch.magic());
        // The CRC covers the producer id, which is each broker's own: then only its being right can be compared.
        json.put("crc", batch.hasProducerId() ? "<crc>" : String.valueOf(batch.checksum()));
        json.put("crcValid", batch.isValid());
        json.put("compression", batch.compressionType().name);
        json.put("timestampType", batch.timestampType().name);
        json.put("transactional", batch.isTransactional());
        json.put("control", batch.isControlBatch());
        json.put("maxTimestamp", batch.maxTimestamp());
        json.put("producerId", batch.producerId());
        json.put("producerEpoch", batch.producerEpoch());
        json.put("baseSequence", batch.baseSequence());
        ArrayNode records = json.putArray("records");
        for (Record record : batch) {
            records.add(record(record));
        }
        return json;
    }

    private static ObjectNode record(Record record) {
        ObjectNode json = JSON.objectNode();
        json.put("offset", record.offset());
        json.put("timestamp", record.timestamp());
        json.put("key", hex(record.key()));
        json.put("value", hex(record.value()));
        ArrayNode headers = json.putArray("headers");
        for (Header header : record.headers()) {
            headers.add(header.key() + "=" + (header.value() == null ? "null" : HexFormat.of().formatHex(header.value())));
        }
        return json;
    }

    private static String hex(ByteBuffer buffer) {
        if (buffer == null) {
            return null;
        }
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return HexFormat.of().formatHex(bytes);
    }
}
