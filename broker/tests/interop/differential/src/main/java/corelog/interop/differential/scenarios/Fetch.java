package corelog.interop.differential.scenarios;

import corelog.interop.differential.Apis;
import corelog.interop.differential.Exchange;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.ApiVersionsRequestData;
import org.apache.kafka.common.message.FetchRequestData;
import org.apache.kafka.common.message.FetchRequestData.FetchPartition;
import org.apache.kafka.common.message.FetchRequestData.FetchTopic;
import org.apache.kafka.common.message.FetchRequestData.ForgottenTopic;
import org.apache.kafka.common.protocol.ApiKeys;

/** Fetch requests, by name or by id as the version wants it. */
final class Fetch {
    private static final short FIRST_WITH_IDS = 13;
    private static final int CONSUMER = -1;
    private static final int BYTES_MAX = 1 << 20;

    private Fetch() {}

    /** A partition from an offset; the caller may go on to set what its version has. */
    static FetchPartition from(int partition, long offset) {
        return new FetchPartition().setPartition(partition).setFetchOffset(offset).setPartitionMaxBytes(BYTES_MAX);
    }

    static FetchTopic topic(short version, String name, Uuid id, FetchPartition... partitions) {
        FetchTopic topic = version < FIRST_WITH_IDS ? new FetchTopic().setTopic(name) : new FetchTopic().setTopicId(id);
        return topic.setPartitions(new ArrayList<>(List.of(partitions)));
    }

    static ForgottenTopic forgotten(short version, String name, Uuid id, Integer... partitions) {
        ForgottenTopic topic = version < FIRST_WITH_IDS ? new ForgottenTopic().setTopic(name) : new ForgottenTopic().setTopicId(id);
        return topic.setPartitions(List.of(partitions));
    }

    /** Does not wait, and takes whatever is there. */
    static FetchRequestData request(short version, FetchTopic... topics) {
        FetchRequestData request = new FetchRequestData().setMaxWaitMs(0).setMinBytes(0).setMaxBytes(50 << 20)
            .setTopics(new ArrayList<>(List.of(topics)));
        return version < 15 ? request.setReplicaId(CONSUMER) : request;
    }

    /** Reads a whole partition back at the newest version, as the proof of what a produce left behind. */
    static void all(Exchange x, Produce produce, int partition) throws IOException {
        short newest = Apis.newest(ApiKeys.FETCH);
        x.ask("what is then in " + produce.topic + "-" + partition, ApiKeys.FETCH, newest,
            request(newest, topic(newest, produce.topic, produce.id, from(partition, 0))));
    }

    /** Whether the connection still serves. */
    static boolean next(Exchange x, Produce produce) throws IOException {
        return x.ask("is " + produce.topic + " served", ApiKeys.API_VERSIONS, (short) 0, new ApiVersionsRequestData()) != null;
    }
}
