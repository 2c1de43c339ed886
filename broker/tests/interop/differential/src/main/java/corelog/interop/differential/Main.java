package corelog.interop.differential;

import corelog.interop.common.Cases;
import corelog.interop.differential.Differ.Difference;
import corelog.interop.differential.scenarios.AllScenarios;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;

/** Runs every case against the reference and the broker under test and compares what they answered. */
public final class Main {
    private final Cases cases = new Cases();
    private final InetSocketAddress reference;
    private final InetSocketAddress tested;
    private final Intended intended;
    private final Report report = new Report();
    private final Path reportFile;

    private Main(Map<String, String> options) throws IOException {
        reference = address(options.get("reference"));
        tested = address(options.get("tested"));
        // Two brokers of one make must not differ at all: then the list is not even read.
        intended = options.get("against").equals("kafka") ? Intended.none() : Intended.load(Path.of(options.get("intended")));
        reportFile = Path.of(options.get("report"));
    }

    public static void main(String[] args) throws IOException {
        Map<String, String> options = new HashMap<>();
        for (int i = 0; i + 1 < args.length; i += 2) {
            options.put(args[i].substring(2), args[i + 1]);
        }
        Main run = new Main(options);
        String only = System.getenv().getOrDefault("INTEROP_SCENARIO", "");
        AllScenarios.list().stream().filter(scenario -> scenario.name().startsWith(only)).flatMap(Scenario::cases).forEach(run::compare);
        if (only.isEmpty()) {
            run.intended.noLongerOccurring().forEach(entry ->
                run.cases.fail("the list of intended differences is current", "no longer occurs: " + entry));
        }
        run.report.write(run.reportFile);
        System.exit(run.cases.exitCode());
    }

    private static InetSocketAddress address(String hostAndPort) {
        int colon = hostAndPort.lastIndexOf(':');
        return new InetSocketAddress(hostAndPort.substring(0, colon), Integer.parseInt(hostAndPort.substring(colon + 1)));
    }

    /** Both brokers at once: half the time, and nothing passes between the two. */
    private void compare(Scenario.Case running) {
        cases.run(running.toString(), () -> {
            CompletableFuture<Exchange> referenceRun = CompletableFuture.supplyAsync(() -> play(running, reference, "reference"));
            CompletableFuture<Exchange> testedRun = CompletableFuture.supplyAsync(() -> play(running, tested, "tested"));
            List<Difference> differences = Differ.compare(running.toString(), referenceRun.join().unordered(),
                referenceRun.join().transcript(), testedRun.join().transcript());
            List<Difference> unintended = differences.stream().filter(difference -> !intended.covers(difference)).toList();
            differences.forEach(difference -> report.add(running, difference, !unintended.contains(difference)));
            if (!unintended.isEmpty()) {
                throw new AssertionError(unintended.size() + " differences, the first: " + unintended.get(0));
            }
        });
    }

    private static Exchange play(Scenario.Case running, InetSocketAddress broker, String name) {
        try (Exchange exchange = new Exchange(broker, running)) {
            running.scenario().body().run(exchange, running.version());
            return exchange;
        } catch (Exception failure) {
            throw new CompletionException("on the " + name + " broker: " + failure, failure);
        }
    }
}
