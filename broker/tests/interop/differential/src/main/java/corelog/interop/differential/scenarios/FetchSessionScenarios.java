package corelog.interop.differential.scenarios;

import corelog.interop.differential.Exchange;
import corelog.interop.differential.Scenario;
import java.util.List;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.FetchRequestData;
import org.apache.kafka.common.message.FetchResponseData;
import org.apache.kafka.common.protocol.ApiKeys;

/** Incremental fetch sessions (KIP-227). */
final class FetchSessionScenarios {
    private static final int FIRST_WITH_SESSIONS = 7;
    private static final int NEW = 0;
    private static final int FINAL = -1;
    private static final int NO_SUCH_SESSION = 123_456_789;
    private static final Uuid UNKNOWN_ID = new Uuid(0x1234, 0x5678);

    private FetchSessionScenarios() {}

    static List<Scenario> list() {
        return List.of(
            Scenario.since(FIRST_WITH_SESSIONS, "fetch-session", ApiKeys.FETCH, FetchSessionScenarios::life),
            Scenario.since(FIRST_WITH_SESSIONS, "fetch-session-errors", ApiKeys.FETCH, FetchSessionScenarios::errors));
    }

    private static FetchRequestData in(int session, int epoch, FetchRequestData request) {
        return request.setSessionId(session).setSessionEpoch(epoch);
    }

    private static void life(Exchange x, short v) throws Exception {
        String name = x.name("topic");
        Uuid id = x.setup().topic(name, 3);
        x.setup().produce(id, 0, Batch.plain(2));
        FetchResponseData created = x.ask("created with two partitions",
            in(0, NEW, Fetch.request(v, Fetch.topic(v, name, id, Fetch.from(0, 0), Fetch.from(1, 0)))));
        int session = created.sessionId();
        x.ask("nothing moved: the same records again", in(session, 1, Fetch.request(v)));
        x.ask("the offset moved: nothing is new", in(session, 2, Fetch.request(v, Fetch.topic(v, name, id, Fetch.from(0, 2)))));
        x.ask("nothing happened: no partition is answered", in(session, 3, Fetch.request(v)));
        x.setup().produce(id, 1, Batch.plain(1));
        x.ask("one partition got a record", in(session, 4, Fetch.request(v)));
        x.setup().produce(id, 2, Batch.plain(3));
        x.ask("a partition is added", in(session, 5, Fetch.request(v, Fetch.topic(v, name, id, Fetch.from(2, 0)))));
        FetchRequestData forget = in(session, 6, Fetch.request(v));
        forget.forgottenTopicsData().add(Fetch.forgotten(v, name, id, 1, 2));
        x.ask("two are forgotten", forget);
        x.reconnect();
        x.ask("on another connection", in(session, 7, Fetch.request(v, Fetch.topic(v, name, id, Fetch.from(0, 0)))));
        x.ask("an offset out of range", in(session, 8, Fetch.request(v, Fetch.topic(v, name, id, Fetch.from(0, 77)))));
        x.ask("the error comes again", in(session, 9, Fetch.request(v)));
        x.ask("started over with the same id", in(session, NEW, Fetch.request(v, Fetch.topic(v, name, id, Fetch.from(0, 1)))));
        x.ask("the old one is gone", in(session, 10, Fetch.request(v)));
        turns(x, v);
    }

    /** A partition whose records went out stands behind the others from then on: the answer has room for one at a time. */
    private static void turns(Exchange x, short v) throws Exception {
        String name = x.name("turns");
        Uuid id = x.setup().topic(name, 3);
        for (int partition = 0; partition < 3; partition++) {
            x.setup().produce(id, partition, Batch.plain(1));
        }
        FetchRequestData all = Fetch.request(v, Fetch.topic(v, name, id, Fetch.from(0, 0), Fetch.from(1, 0), Fetch.from(2, 0)));
        FetchResponseData created = x.ask("created with room for one batch", in(0, NEW, all.setMaxBytes(1)));
        int session = created.sessionId();
        for (int epoch = 1; epoch <= 5; epoch++) {
            x.ask("turn " + epoch, in(session, epoch, Fetch.request(v).setMaxBytes(1)));
        }
    }

    private static void errors(Exchange x, short v) throws Exception {
        String name = x.name("topic");
        Uuid id = x.setup().topic(name, 1);
        x.setup().produce(id, 0, Batch.plain(2));
        x.ask("an unknown session", in(NO_SUCH_SESSION, 1, Fetch.request(v)));
        x.ask("no session: a full fetch", in(0, FINAL, Fetch.request(v, Fetch.topic(v, name, id, Fetch.from(0, 0)))));
        FetchResponseData created = x.ask("created", in(0, NEW, Fetch.request(v, Fetch.topic(v, name, id, Fetch.from(0, 0)))));
        int session = created.sessionId();
        x.ask("an epoch too far", in(session, 5, Fetch.request(v)));
        x.ask("the epoch that was due", in(session, 1, Fetch.request(v)));
        x.ask("that epoch again", in(session, 1, Fetch.request(v)));
        x.ask("an unknown topic is added", in(session, 2, Fetch.request(v, Fetch.topic(v, x.name("unknown"), UNKNOWN_ID, Fetch.from(0, 0)))));
        x.ask("and is answered again", in(session, 3, Fetch.request(v)));
        x.ask("closed", in(session, FINAL, Fetch.request(v)));
        x.ask("closed already", in(session, 4, Fetch.request(v)));
        x.ask("a negative session", in(-7, 1, Fetch.request(v)));
        x.ask("created without partitions", in(0, NEW, Fetch.request(v)));
    }
}
