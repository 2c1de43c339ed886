package corelog.interop.differential.scenarios;

import corelog.interop.differential.Exchange;
import corelog.interop.differential.Scenario;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.FetchRequestData;
import org.apache.kafka.common.message.FetchRequestData.FetchPartition;
import org.apache.kafka.common.protocol.ApiKeys;

/** How much a fetch answers, and how long it waits. */
final class FetchLimitScenarios {
    private static final int BATCH_VALUE_BYTES = 5_000;

    private FetchLimitScenarios() {}

    static List<Scenario> list() {
        return List.of(
            Scenario.each("fetch-limits", ApiKeys.FETCH, FetchLimitScenarios::bytes),
            Scenario.each("fetch-long-poll", ApiKeys.FETCH, FetchLimitScenarios::waiting));
    }

    private static FetchPartition limited(int partition, int bytes) {
        return Fetch.from(partition, 0).setPartitionMaxBytes(bytes);
    }

    private static void bytes(Exchange x, short v) throws Exception {
        String name = x.name("topic");
        Uuid id = x.setup().topic(name, 2);
        for (int batch = 0; batch < 4; batch++) {
            x.setup().produce(id, batch / 2, Batch.sized(BATCH_VALUE_BYTES));
        }
        for (int limit : new int[] {0, 1, 5_000, 5_100, 9_000, 10_200}) {
            x.ask("partition limit " + limit, Fetch.request(v, Fetch.topic(v, name, id, limited(0, limit), limited(1, limit))));
            x.ask("whole limit " + limit,
                Fetch.request(v, Fetch.topic(v, name, id, Fetch.from(0, 0), Fetch.from(1, 0))).setMaxBytes(limit));
        }
        int one = Batch.sized(BATCH_VALUE_BYTES).sizeInBytes();
        x.ask("the whole is used up by the first that has anything",
            Fetch.request(v, Fetch.topic(v, name, id, Fetch.from(1, 2), Fetch.from(0, 0))).setMaxBytes(one));
        x.ask("the rest of the whole goes to the next",
            Fetch.request(v, Fetch.topic(v, name, id, limited(0, one), Fetch.from(1, 0))).setMaxBytes(2 * one));
        x.ask("whole batches of both, in the request's order",
            Fetch.request(v, Fetch.topic(v, name, id, Fetch.from(1, 0), Fetch.from(0, 0))).setMaxBytes(30_000));
        x.ask("negative partition limit", Fetch.request(v, Fetch.topic(v, name, id, limited(0, -1))));
        x.ask("negative whole limit", Fetch.request(v, Fetch.topic(v, name, id, Fetch.from(0, 0))).setMaxBytes(-1));
        x.ask("an empty partition first does not use up the one batch",
            Fetch.request(v, Fetch.topic(v, name, id, Fetch.from(1, 2), limited(0, 10))).setMaxBytes(10));
    }

    private static void waiting(Exchange x, short v) throws Exception {
        String name = x.name("topic");
        Uuid id = x.setup().topic(name, 2);
        FetchRequestData patient = Fetch.request(v, Fetch.topic(v, name, id, Fetch.from(0, 0))).setMinBytes(1);
        timed(x, "nothing comes: waits its time", patient.setMaxWaitMs(300), 290, 2_000);
        timed(x, "no wait asked for", Fetch.request(v, Fetch.topic(v, name, id, Fetch.from(0, 0))).setMinBytes(1), 0, 250);
        CompletableFuture<Void> producing = soon(() -> x.setup().produce(id, 0, Batch.plain(2)));
        timed(x, "records come: wakes early", patient.setMaxWaitMs(8_000), 0, 6_000);
        producing.join();
        timed(x, "enough is there: does not wait", patient.setMaxWaitMs(8_000), 0, 6_000);
        timed(x, "more is asked for than there is: waits its time", patient.setMinBytes(10_000).setMaxWaitMs(300), 290, 2_000);
        timed(x, "an error does not wait",
            Fetch.request(v, Fetch.topic(v, name, id, Fetch.from(0, 50))).setMinBytes(1).setMaxWaitMs(8_000), 0, 6_000);
        timed(x, "a partition that is not there does not wait",
            Fetch.request(v, Fetch.topic(v, name, id, Fetch.from(9, 0))).setMinBytes(1).setMaxWaitMs(8_000), 0, 6_000);
    }

    private static void timed(Exchange x, String step, FetchRequestData request, long leastMs, long mostMs) throws Exception {
        long started = System.nanoTime();
        x.ask(step, request);
        long tookMs = (System.nanoTime() - started) / 1_000_000;
        x.note(step + ", in time", leastMs <= tookMs && tookMs <= mostMs ? "yes" : "no, after " + tookMs + " ms");
    }

    private interface Step {
        void run() throws Exception;
    }

    /** Runs the step a moment later, while the caller is waiting for its answer. */
    private static CompletableFuture<Void> soon(Step step) {
        return CompletableFuture.runAsync(() -> {
            try {
                Thread.sleep(150);
                step.run();
            } catch (Exception failure) {
                throw new CompletionException(failure);
            }
        });
    }
}
