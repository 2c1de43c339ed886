package corelog.interop.differential.scenarios;

import corelog.interop.differential.Exchange;
import corelog.interop.differential.Scenario;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.message.FetchRequestData;
import org.apache.kafka.common.message.FetchRequestData.FetchPartition;
import org.apache.kafka.common.message.FetchRequestData.FetchTopic;
import org.apache.kafka.common.protocol.ApiKeys;

/** Fetch without sessions: what is found where, and what is refused. */
final class FetchScenarios {
    private static final Uuid UNKNOWN_ID = new Uuid(0x1234, 0x5678);
    private static final int FIRST_WITH_LEADER_EPOCH = 9;
    private static final int FIRST_WITH_LAST_EPOCH = 12;

    private FetchScenarios() {}

    static List<Scenario> list() {
        return List.of(
            Scenario.each("fetch", ApiKeys.FETCH, FetchScenarios::offsets),
            Scenario.each("fetch-addressing", ApiKeys.FETCH, FetchScenarios::addressing),
            Scenario.each("fetch-compressed", ApiKeys.FETCH, FetchScenarios::compressed),
            Scenario.since(FIRST_WITH_LEADER_EPOCH, "fetch-leader-epochs", ApiKeys.FETCH, FetchScenarios::leaderEpochs),
            Scenario.since(FIRST_WITH_LAST_EPOCH, "fetch-last-epochs", ApiKeys.FETCH, FetchScenarios::lastEpochs));
    }

    private static void offsets(Exchange x, short v) throws Exception {
        String name = x.name("topic");
        Uuid id = x.setup().topic(name, 2);
        for (int batch = 0; batch < 3; batch++) {
            x.setup().produce(id, 0, Batch.plain(4));
        }
        for (long offset : new long[] {0, 3, 4, 6, 11, 12, 13, 1_000_000, -1, -2, Long.MAX_VALUE}) {
            x.ask("from " + offset, Fetch.request(v, Fetch.topic(v, name, id, Fetch.from(0, offset))));
        }
        x.ask("an empty partition", Fetch.request(v, Fetch.topic(v, name, id, Fetch.from(1, 0))));
        x.ask("past the end of an empty partition", Fetch.request(v, Fetch.topic(v, name, id, Fetch.from(1, 1))));
        x.ask("committed records only", Fetch.request(v, Fetch.topic(v, name, id, Fetch.from(0, 0))).setIsolationLevel((byte) 1));
        x.ask("no topics", Fetch.request(v));
    }

    private static void addressing(Exchange x, short v) throws Exception {
        String name = x.name("topic");
        String other = x.name("other");
        Uuid id = x.setup().topic(name, 3);
        Uuid otherId = x.setup().topic(other, 1);
        x.setup().produce(id, 1, Batch.plain(2));
        x.setup().produce(otherId, 0, Batch.plain(1));
        x.ask("several partitions, in the order asked",
            Fetch.request(v, Fetch.topic(v, name, id, Fetch.from(2, 0), Fetch.from(1, 0), Fetch.from(0, 0))));
        x.ask("several topics, in the order asked", Fetch.request(v, Fetch.topic(v, other, otherId, Fetch.from(0, 0)),
            Fetch.topic(v, name, id, Fetch.from(1, 0))));
        x.ask("a partition that is not there", Fetch.request(v, Fetch.topic(v, name, id, Fetch.from(9, 0), Fetch.from(1, 0))));
        x.ask("an unknown topic", Fetch.request(v, Fetch.topic(v, x.name("unknown"), UNKNOWN_ID, Fetch.from(0, 0))));
        x.ask("unknown and known topics", Fetch.request(v, Fetch.topic(v, x.name("unknown"), UNKNOWN_ID, Fetch.from(0, 0)),
            Fetch.topic(v, name, id, Fetch.from(1, 0))));
        x.ask("an illegal name, or no id", Fetch.request(v, Fetch.topic(v, "no spaces!", Uuid.ZERO_UUID, Fetch.from(0, 0))));
        x.ask("a partition twice", Fetch.request(v, Fetch.topic(v, name, id, Fetch.from(1, 0), Fetch.from(1, 1))));
    }

    private static void compressed(Exchange x, short v) throws Exception {
        List<Compression> all = List.of(Compression.gzip().build(), Compression.snappy().build(), Compression.lz4().build(),
            Compression.zstd().build());
        List<FetchTopic> topics = new ArrayList<>();
        for (Compression compression : all) {
            String name = x.name(compression.type().name);
            Uuid id = x.setup().topic(name, 1);
            x.setup().produce(id, 0, Batch.compressed(compression, 6));
            topics.add(Fetch.topic(v, name, id, Fetch.from(0, 2)));
        }
        for (int i = 0; i < topics.size(); i++) {
            x.ask("from inside a batch of " + all.get(i).type().name, Fetch.request(v, topics.get(i)));
        }
    }

    private static void leaderEpochs(Exchange x, short v) throws Exception {
        String name = x.name("topic");
        Uuid id = x.setup().topic(name, 1);
        x.setup().produce(id, 0, Batch.plain(2));
        for (int epoch : new int[] {-1, 0, 1, 100, -5}) {
            x.ask("current leader epoch " + epoch,
                Fetch.request(v, Fetch.topic(v, name, id, Fetch.from(0, 0).setCurrentLeaderEpoch(epoch))));
        }
    }

    private static FetchRequestData lastEpoch(short v, String name, Uuid id, long offset, int epoch) {
        FetchPartition partition = Fetch.from(0, offset).setLastFetchedEpoch(epoch);
        return Fetch.request(v, Fetch.topic(v, name, id, partition));
    }

    /** KIP-595: a reader that says which epoch it read last is told when the log has gone another way. */
    private static void lastEpochs(Exchange x, short v) throws Exception {
        String name = x.name("topic");
        Uuid id = x.setup().topic(name, 1, Map.of());
        x.setup().produce(id, 0, Batch.plain(2));
        x.ask("no last epoch", lastEpoch(v, name, id, 1, -1));
        x.ask("the epoch there is", lastEpoch(v, name, id, 1, 0));
        x.ask("an epoch to come", lastEpoch(v, name, id, 1, 3));
        x.ask("the epoch there is, past the end", lastEpoch(v, name, id, 9, 0));
    }
}
