package corelog.interop.differential.scenarios;

import corelog.interop.differential.Exchange;
import java.io.IOException;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.ProduceRequestData;
import org.apache.kafka.common.message.ProduceRequestData.PartitionProduceData;
import org.apache.kafka.common.message.ProduceRequestData.TopicProduceData;
import org.apache.kafka.common.message.ProduceResponseData;
import org.apache.kafka.common.record.BaseRecords;

/** Produce requests to one topic, by name or by id as the version wants it. */
final class Produce {
    static final short ALL = -1;
    static final short LEADER = 1;
    static final short NONE = 0;
    private static final short FIRST_WITH_IDS = 13;

    private final Exchange x;
    final String topic;
    final Uuid id;

    Produce(Exchange x, String topic, Uuid id) {
        this.x = x;
        this.topic = topic;
        this.id = id;
    }

    ProduceResponseData ask(String step, int partition, BaseRecords records) throws IOException {
        return x.ask(step, request(ALL, partition, records));
    }

    ProduceRequestData request(short acks, int partition, BaseRecords records) {
        ProduceRequestData request = new ProduceRequestData().setAcks(acks).setTimeoutMs(10_000);
        request.topicData().mustAdd(topicData(partition, records));
        return request;
    }

    TopicProduceData topicData(int partition, BaseRecords records) {
        TopicProduceData data = x.version() < FIRST_WITH_IDS ? new TopicProduceData().setName(topic) : new TopicProduceData().setTopicId(id);
        data.partitionData().add(new PartitionProduceData().setIndex(partition).setRecords(records));
        return data;
    }
}
