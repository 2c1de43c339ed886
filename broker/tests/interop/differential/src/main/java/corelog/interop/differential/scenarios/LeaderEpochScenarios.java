package corelog.interop.differential.scenarios;

import corelog.interop.differential.Exchange;
import corelog.interop.differential.Scenario;
import java.util.Comparator;
import java.util.List;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.OffsetForLeaderEpochRequestData.OffsetForLeaderPartition;
import org.apache.kafka.common.message.OffsetForLeaderEpochRequestData.OffsetForLeaderTopic;
import org.apache.kafka.common.message.OffsetForLeaderEpochRequestData;
import org.apache.kafka.common.message.OffsetForLeaderEpochResponseData;
import org.apache.kafka.common.protocol.ApiKeys;

/** OffsetForLeaderEpoch: where an epoch ends. */
final class LeaderEpochScenarios {
    private static final int CONSUMER = -1;
    private static final int DEBUGGER = -2;
    private static final int FIRST_WITH_REPLICA = 3;

    private LeaderEpochScenarios() {}

    static List<Scenario> list() {
        return List.of(Scenario.each("offset-for-leader-epoch", ApiKeys.OFFSET_FOR_LEADER_EPOCH, LeaderEpochScenarios::epochs));
    }

    private static OffsetForLeaderPartition asked(int partition, int currentEpoch, int epoch) {
        return new OffsetForLeaderPartition().setPartition(partition).setCurrentLeaderEpoch(currentEpoch).setLeaderEpoch(epoch);
    }

    private static OffsetForLeaderEpochRequestData request(short v, String topic, OffsetForLeaderPartition... partitions) {
        OffsetForLeaderEpochRequestData request = new OffsetForLeaderEpochRequestData();
        request.topics().mustAdd(new OffsetForLeaderTopic().setTopic(topic).setPartitions(List.of(partitions)));
        return v >= FIRST_WITH_REPLICA ? request.setReplicaId(CONSUMER) : request;
    }

    private static void epochs(Exchange x, short v) throws Exception {
        String topic = x.name("topic");
        Uuid id = x.setup().topic(topic, 3);
        x.setup().produce(id, 0, Batch.plain(3));
        for (int epoch : new int[] {-1, 0, 1, 7, -2}) {
            x.ask("the end of epoch " + epoch, request(v, topic, asked(0, -1, epoch)));
            x.ask("the end of epoch " + epoch + " in an empty partition", request(v, topic, asked(1, -1, epoch)));
        }
        for (int current : new int[] {0, 1, 100}) {
            x.ask("current leader epoch " + current, request(v, topic, asked(0, current, 0)));
        }
        x.askTrimmed("several partitions", request(v, topic, asked(2, -1, 0), asked(0, -1, 0), asked(9, -1, 0)),
            (OffsetForLeaderEpochResponseData answer) -> answer.topics().forEach(found ->
                found.partitions().sort(Comparator.comparingInt(partition -> partition.partition()))));
        x.ask("an unknown topic", request(v, x.name("unknown"), asked(0, -1, 0)));
        x.ask("an illegal name", request(v, "no spaces!", asked(0, -1, 0)));
        x.ask("no topics", new OffsetForLeaderEpochRequestData().setReplicaId(v >= FIRST_WITH_REPLICA ? CONSUMER : DEBUGGER));
        if (v >= FIRST_WITH_REPLICA) {
            x.ask("asked as a debugger", request(v, topic, asked(0, -1, 0)).setReplicaId(DEBUGGER));
        }
    }
}
