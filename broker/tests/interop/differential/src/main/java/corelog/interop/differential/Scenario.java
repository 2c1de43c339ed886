package corelog.interop.differential;

import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import org.apache.kafka.common.protocol.ApiKeys;

/** A script of requests about one API, run once at each of its versions in the range. */
public record Scenario(String name, ApiKeys api, short first, short last, Body body) {
    /** The script; it sees one broker at a time and must not care which. */
    @FunctionalInterface
    public interface Body {
        void run(Exchange x, short version) throws Exception;
    }

    /** At every version that the API has. */
    public static Scenario each(String name, ApiKeys api, Body body) {
        return new Scenario(name, api, api.oldestVersion(), Apis.newest(api), body);
    }

    /** From a version on. */
    public static Scenario since(int first, String name, ApiKeys api, Body body) {
        return new Scenario(name, api, (short) first, Apis.newest(api), body);
    }

    /** At the newest version alone: for what no version changes. */
    public static Scenario once(String name, ApiKeys api, Body body) {
        return new Scenario(name, api, Apis.newest(api), Apis.newest(api), body);
    }

    /** One scenario at one version: what is run, compared and reported as one case. */
    public record Case(Scenario scenario, short version) {
        @Override
        public String toString() {
            return scenario.name + " v" + version;
        }
    }

    Stream<Case> cases() {
        List<Case> all = new ArrayList<>();
        for (short version = first; version <= last; version++) {
            all.add(new Case(this, version));
        }
        return all.stream();
    }
}
