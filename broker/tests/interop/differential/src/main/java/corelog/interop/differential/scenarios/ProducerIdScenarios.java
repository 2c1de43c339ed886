package corelog.interop.differential.scenarios;

import corelog.interop.differential.Exchange;
import corelog.interop.differential.Scenario;
import java.util.List;
import org.apache.kafka.common.message.InitProducerIdRequestData;
import org.apache.kafka.common.message.InitProducerIdResponseData;
import org.apache.kafka.common.protocol.ApiKeys;

/** InitProducerId without transactions. */
final class ProducerIdScenarios {
    private ProducerIdScenarios() {}

    static List<Scenario> list() {
        return List.of(Scenario.each("init-producer-id", ApiKeys.INIT_PRODUCER_ID, ProducerIdScenarios::idempotent));
    }

    private static InitProducerIdRequestData init() {
        return new InitProducerIdRequestData().setTransactionalId(null).setTransactionTimeoutMs(60_000);
    }

    private static void idempotent(Exchange x, short v) throws Exception {
        x.setup().producerId();
        InitProducerIdResponseData first = x.ask("a first id", init());
        InitProducerIdResponseData second = x.ask("a second id", init());
        x.note("the two differ", first.producerId() != second.producerId());
        x.ask("a transaction timeout of zero does not matter", init().setTransactionTimeoutMs(0));
        x.ask("an empty transactional id", init().setTransactionalId(""));
        if (v >= 3) {
            x.ask("with the epoch it has", init().setProducerId(first.producerId()).setProducerEpoch(first.producerEpoch()));
            x.ask("an epoch without an id", init().setProducerEpoch((short) 3));
            x.ask("an id without an epoch", init().setProducerId(first.producerId()));
        }
    }
}
