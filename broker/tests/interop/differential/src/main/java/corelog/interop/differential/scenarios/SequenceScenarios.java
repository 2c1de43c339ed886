package corelog.interop.differential.scenarios;

import corelog.interop.differential.Exchange;
import corelog.interop.differential.Scenario;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.message.ProduceRequestData;
import org.apache.kafka.common.message.ProduceRequestData.PartitionProduceData;
import org.apache.kafka.common.protocol.ApiKeys;

/** Idempotent produce: sequences, epochs, duplicates. */
final class SequenceScenarios {
    private static final long NEVER_GIVEN_OUT = 987_654_321L;

    private SequenceScenarios() {}

    static List<Scenario> list() {
        return List.of(
            Scenario.each("idempotent", ApiKeys.PRODUCE, SequenceScenarios::sequences),
            Scenario.each("idempotent-duplicates", ApiKeys.PRODUCE, SequenceScenarios::duplicates),
            Scenario.each("idempotent-epochs", ApiKeys.PRODUCE, SequenceScenarios::epochs),
            Scenario.once("idempotent-wrap", ApiKeys.PRODUCE, SequenceScenarios::wrap));
    }

    private static void sequences(Exchange x, short v) throws Exception {
        Produce produce = ProduceScenarios.topic(x, 2, Map.of());
        long id = x.setup().producerId();
        produce.ask("a first batch", 0, Batch.idempotent(id, 0, 0, 3));
        produce.ask("its follower", 0, Batch.idempotent(id, 0, 3, 2));
        produce.ask("a gap", 0, Batch.idempotent(id, 0, 9, 1));
        produce.ask("an overlap", 0, Batch.idempotent(id, 0, 4, 3));
        produce.ask("the right one after all", 0, Batch.idempotent(id, 0, 5, 1));
        produce.ask("another partition starts at zero", 1, Batch.idempotent(id, 0, 0, 1));
        produce.ask("an id never seen that does not start at zero", 1, Batch.idempotent(x.setup().producerId(), 0, 7, 1));
        produce.ask("an id never given out", 1, Batch.idempotent(NEVER_GIVEN_OUT, 0, 0, 1));
        produce.ask("an id with a sequence of minus one", 1, Batch.forged(Batch.idempotent(id, 0, 1, 1), batch -> batch.putInt(53, -1)));
        produce.ask("an id with an epoch of minus one", 1, Batch.forged(Batch.idempotent(id, 0, 1, 1), batch -> batch.putShort(51, (short) -1)));
        produce.ask("two batches of one producer", 0, Batch.joined(Batch.idempotent(id, 0, 6, 1), Batch.idempotent(id, 0, 7, 1)));
        Fetch.all(x, produce, 0);
        Fetch.all(x, produce, 1);
    }

    private static void duplicates(Exchange x, short v) throws Exception {
        Produce produce = ProduceScenarios.topic(x, 1, Map.of());
        long id = x.setup().producerId();
        for (int batch = 0; batch < 6; batch++) {
            produce.ask("batch " + batch, 0, Batch.idempotent(id, 0, 2 * batch, 2));
        }
        for (int batch = 5; batch >= 1; batch--) {
            produce.ask("again batch " + batch, 0, Batch.idempotent(id, 0, 2 * batch, 2));
        }
        produce.ask("again batch 0, which is forgotten", 0, Batch.idempotent(id, 0, 0, 2));
        produce.ask("half of the last batch", 0, Batch.idempotent(id, 0, 10, 1));
        produce.ask("the last two batches as one", 0, Batch.idempotent(id, 0, 8, 4));
        produce.ask("on with the next", 0, Batch.idempotent(id, 0, 12, 1));
        Fetch.all(x, produce, 0);
    }

    private static void epochs(Exchange x, short v) throws Exception {
        Produce produce = ProduceScenarios.topic(x, 1, Map.of());
        long id = x.setup().producerId();
        produce.ask("epoch 0", 0, Batch.idempotent(id, 0, 0, 2));
        produce.ask("epoch 1 that does not start at zero", 0, Batch.idempotent(id, 1, 2, 1));
        produce.ask("epoch 1", 0, Batch.idempotent(id, 1, 0, 1));
        produce.ask("epoch 0 again", 0, Batch.idempotent(id, 0, 2, 1));
        produce.ask("epoch 5, skipping some", 0, Batch.idempotent(id, 5, 0, 1));
        produce.ask("the first batch of epoch 0 again", 0, Batch.idempotent(id, 0, 0, 2));
        Fetch.all(x, produce, 0);
    }

    /** A producer may begin anywhere in an epoch it is new in only at zero, so the wrap is reached by one large forged batch. */
    private static void wrap(Exchange x, short v) throws Exception {
        Produce produce = ProduceScenarios.topic(x, 1, Map.of());
        long id = x.setup().producerId();
        produce.ask("a first batch", 0, Batch.idempotent(id, 0, 0, 2));
        produce.ask("the largest sequence out of order", 0, Batch.idempotent(id, 0, Integer.MAX_VALUE, 2));
        ProduceRequestData twice = produce.request(Produce.ALL, 0, Batch.idempotent(id, 0, 2, 1));
        twice.topicData().iterator().next().partitionData()
            .add(new PartitionProduceData().setIndex(0).setRecords(Batch.idempotent(id, 0, 3, 1)));
        x.ask("a partition twice in one request", twice);
        Fetch.all(x, produce, 0);
    }
}
