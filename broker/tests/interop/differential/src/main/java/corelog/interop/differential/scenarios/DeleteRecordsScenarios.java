package corelog.interop.differential.scenarios;

import corelog.interop.differential.Apis;
import corelog.interop.differential.Exchange;
import corelog.interop.differential.Scenario;
import java.util.List;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.DeleteRecordsRequestData;
import org.apache.kafka.common.message.DeleteRecordsRequestData.DeleteRecordsPartition;
import org.apache.kafka.common.message.DeleteRecordsRequestData.DeleteRecordsTopic;
import org.apache.kafka.common.message.FetchRequestData;
import org.apache.kafka.common.message.ListOffsetsRequestData;
import org.apache.kafka.common.message.ListOffsetsRequestData.ListOffsetsPartition;
import org.apache.kafka.common.message.ListOffsetsRequestData.ListOffsetsTopic;
import org.apache.kafka.common.protocol.ApiKeys;

/** DeleteRecords, and what reading finds afterwards. */
final class DeleteRecordsScenarios {
    private static final short FETCH_VERSION = Apis.newest(ApiKeys.FETCH);
    private static final short LIST_VERSION = Apis.newest(ApiKeys.LIST_OFFSETS);
    private static final long EARLIEST = -2;

    private DeleteRecordsScenarios() {}

    static List<Scenario> list() {
        return List.of(Scenario.each("delete-records", ApiKeys.DELETE_RECORDS, DeleteRecordsScenarios::delete));
    }

    private static DeleteRecordsPartition before(int partition, long offset) {
        return new DeleteRecordsPartition().setPartitionIndex(partition).setOffset(offset);
    }

    private static DeleteRecordsRequestData request(String topic, DeleteRecordsPartition... partitions) {
        return new DeleteRecordsRequestData().setTimeoutMs(10_000)
            .setTopics(List.of(new DeleteRecordsTopic().setName(topic).setPartitions(List.of(partitions))));
    }

    private static void delete(Exchange x, short v) throws Exception {
        String topic = x.name("topic");
        Uuid id = x.setup().topic(topic, 2);
        x.setup().produce(id, 0, Batch.plain(4));
        x.setup().produce(id, 0, Batch.plain(4));
        x.ask("inside the first batch", request(topic, before(0, 2)));
        read(x, "then", topic, id, 0);
        read(x, "then from the beginning there is", topic, id, 2);
        x.ask("below the beginning", request(topic, before(0, 1)));
        x.ask("at the beginning", request(topic, before(0, 2)));
        x.ask("beyond the end", request(topic, before(0, 9)));
        x.ask("negative", request(topic, before(0, -2)));
        x.ask("everything", request(topic, before(0, -1)));
        read(x, "then everything is gone,", topic, id, 8);
        x.setup().produce(id, 0, Batch.plain(1));
        read(x, "then one more,", topic, id, 8);
        x.ask("everything of an empty partition", request(topic, before(1, -1)));
        x.ask("a partition that is not there", request(topic, before(9, 0)));
        x.ask("an unknown topic", request(x.name("unknown"), before(0, 0)));
        x.ask("an illegal name", request("no spaces!", before(0, 0)));
        x.ask("no topics", request(topic).setTopics(List.of()));
    }

    private static void read(Exchange x, String when, String topic, Uuid id, long offset) throws Exception {
        FetchRequestData fetch = Fetch.request(FETCH_VERSION, Fetch.topic(FETCH_VERSION, topic, id, Fetch.from(0, offset)));
        x.ask(when + " read from " + offset, ApiKeys.FETCH, FETCH_VERSION, fetch);
        ListOffsetsPartition earliest = new ListOffsetsPartition().setPartitionIndex(0).setTimestamp(EARLIEST);
        x.ask(when + " earliest beside " + offset, ApiKeys.LIST_OFFSETS, LIST_VERSION, new ListOffsetsRequestData().setReplicaId(-1)
            .setTimeoutMs(5_000).setTopics(List.of(new ListOffsetsTopic().setName(topic).setPartitions(List.of(earliest)))));
    }
}
