package corelog.interop.files;

import corelog.interop.differential.Connection;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.List;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.message.ProduceRequestData;
import org.apache.kafka.common.message.ProduceRequestData.PartitionProduceData;
import org.apache.kafka.common.message.ProduceRequestData.TopicProduceData;
import org.apache.kafka.common.message.ProduceResponseData;
import org.apache.kafka.common.message.ProduceResponseData.PartitionProduceResponse;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.record.MemoryRecords;

/** Batches that the caller has made, as they are: so that several brokers can be given the same bytes. */
final class RawProducer {
    static final List<Compression> CODECS = List.of(Compression.NONE, Compression.gzip().build(),
        Compression.snappy().build(), Compression.lz4().build(), Compression.zstd().build());
    private static final short PRODUCE_VERSION = 9;

    private RawProducer() {}

    static Connection connect(String bootstrap) throws IOException {
        int colon = bootstrap.lastIndexOf(':');
        return new Connection(new InetSocketAddress(bootstrap.substring(0, colon), Integer.parseInt(bootstrap.substring(colon + 1))));
    }

    /** To partition 0. A leader may not know its topic yet. */
    static void produce(Connection connection, String topic, MemoryRecords records) throws IOException, InterruptedException {
        ProduceRequestData request = new ProduceRequestData().setAcks((short) -1).setTimeoutMs(10_000);
        request.topicData().mustAdd(new TopicProduceData().setName(topic)
            .setPartitionData(List.of(new PartitionProduceData().setIndex(0).setRecords(records))));
        PartitionProduceResponse answer = null;
        for (int attempt = 0; attempt < 100; attempt++) {
            connection.send(ApiKeys.PRODUCE, PRODUCE_VERSION, request, PRODUCE_VERSION);
            ProduceResponseData response = (ProduceResponseData) connection.receive(ApiKeys.PRODUCE, PRODUCE_VERSION).body();
            answer = response.responses().iterator().next().partitionResponses().get(0);
            if (answer.errorCode() == 0) {
                return;
            }
            Thread.sleep(50);
        }
        throw new IOException("produce to " + topic + " is refused: " + answer);
    }
}
