package corelog.interop.differential;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.SocketTimeoutException;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Consumer;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;

/** One run of one case against one broker: sends requests, writes down the normalised answers under the step's name. */
public final class Exchange implements AutoCloseable {
    private final InetSocketAddress address;
    private final Scenario.Case running;
    private final Map<String, JsonNode> transcript = new LinkedHashMap<>();
    private final Normalizer normalizer;
    private final Set<String> unordered = new HashSet<>();
    private final List<Connection> connections = new ArrayList<>();
    private Connection main;
    private Connection aside;

    Exchange(InetSocketAddress address, Scenario.Case running) {
        this.address = address;
        this.running = running;
        normalizer = new Normalizer(address);
    }

    Map<String, JsonNode> transcript() {
        return transcript;
    }

    /** Also rewrites these fields of every answer to a fixed word (unless -1, 0 or null): for what must differ here alone. */
    public Exchange mask(String... fields) {
        normalizer.mask(fields);
        return this;
    }

    /** Lets the arrays of these fields stand in any order, in this whole case: where Kafka itself shuffles or hashes them. */
    public Exchange unordered(String... fields) {
        unordered.addAll(List.of(fields));
        return this;
    }

    Set<String> unordered() {
        return unordered;
    }

    /** A name that only this case uses, the same for both brokers. */
    public String name(String suffix) {
        return running.scenario().name() + ".v" + running.version() + "." + suffix;
    }

    public short version() {
        return running.version();
    }

    /** Asks at the case's own API and version. */
    public <T extends ApiMessage> T ask(String step, ApiMessage request) throws IOException {
        return ask(step, running.scenario().api(), running.version(), request);
    }

    /** Asks something else and records that too. */
    public <T extends ApiMessage> T ask(String step, ApiKeys api, short version, ApiMessage request) throws IOException {
        return ask(step, api, version, request, version, version, answer -> { });
    }

    /** As {@link #ask(String, ApiMessage)}; `trim` removes from the answer what is no part of the comparison. */
    public <T extends ApiMessage> T askTrimmed(String step, ApiMessage request, Consumer<T> trim) throws IOException {
        return ask(step, running.scenario().api(), running.version(), request, running.version(), running.version(), trim);
    }

    /** Claims a version in the header that does not exist; the body is at another one, the answer at yet another. */
    public <T extends ApiMessage> T askBeyond(String step, ApiKeys api, short claimed, ApiMessage request, short bodyVersion,
                                              short answerVersion) throws IOException {
        return ask(step, api, claimed, request, bodyVersion, answerVersion, answer -> { });
    }

    @SuppressWarnings("unchecked")
    private <T extends ApiMessage> T ask(String step, ApiKeys api, short claimed, ApiMessage request, short bodyVersion,
                                         short answerVersion, Consumer<T> trim) throws IOException {
        if (main == null) {
            main = connect();
        }
        main.send(api, claimed, request, bodyVersion);
        Connection.Answer answer;
        try {
            answer = main.receive(api, answerVersion);
        } catch (SocketTimeoutException silence) {
            throw new IOException("no answer to \"" + step + "\"", silence);
        }
        if (answer == null) {
            closed(step);
            return null;
        }
        T body = (T) answer.body();
        trim.accept(body);
        record(step, Answers.toJson(answer));
        return body;
    }

    /** Sends without waiting: for acks=0, which has no answer. */
    public void tell(ApiMessage request) throws IOException {
        if (main == null) {
            main = connect();
        }
        main.send(running.scenario().api(), running.version(), request, running.version());
    }

    /** Sends bytes as they are; the only acceptable record is what the broker does next. */
    public void throwBytes(String step, byte[] bytes) throws IOException {
        if (main == null) {
            main = connect();
        }
        main.sendRaw(bytes);
        if (main.receive(ApiKeys.API_VERSIONS, (short) 0) == null) {
            closed(step);
        } else {
            note(step, "answered");
        }
    }

    private void closed(String step) throws IOException {
        note(step, "connection closed");
        main.close();
        main = null;
    }

    /** Writes down something observed that is no answer. */
    public void note(String step, Object observed) {
        record(step, JsonNodeFactory.instance.textNode(String.valueOf(observed)));
    }

    private void record(String step, JsonNode answer) {
        if (transcript.put(step, normalizer.apply(answer)) != null) {
            throw new IllegalStateException("two steps are called \"" + step + "\"");
        }
    }

    /** Lets the next asked question go over a new connection; the old one stays open until the case ends. */
    public void reconnect() {
        main = null;
    }

    /** Preparation: at the newest version, over a connection of its own, not compared. */
    @SuppressWarnings("unchecked")
    public <T extends ApiMessage> T call(ApiKeys api, ApiMessage request) throws IOException {
        if (aside == null) {
            aside = connect();
        }
        aside.send(api, Apis.newest(api), request, Apis.newest(api));
        Connection.Answer answer = aside.receive(api, Apis.newest(api));
        if (answer == null) {
            throw new IOException("preparation failed: the broker closed the connection on " + api);
        }
        return (T) answer.body();
    }

    /** The steps of preparation that most scripts share. */
    public Setup setup() {
        return new Setup(this);
    }

    /** Makes an id readable in reports: the same name for both brokers' ids. */
    public void learn(Uuid id, String name) {
        normalizer.learn(id, name);
    }

    private Connection connect() throws IOException {
        Connection connection = new Connection(address);
        connections.add(connection);
        return connection;
    }

    @Override
    public void close() throws IOException {
        for (Connection connection : connections) {
            connection.close();
        }
    }
}
