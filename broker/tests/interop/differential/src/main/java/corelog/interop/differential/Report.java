package corelog.interop.differential;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** All differences of a run for a reader: the same one at several versions stands there once. */
final class Report {
    /** What makes two findings the same: everything but the version. */
    private record Finding(boolean intended, String difference) {}

    private final Map<Finding, List<Short>> versions = new LinkedHashMap<>();

    void add(Scenario.Case found, Differ.Difference difference, boolean unintended) {
        String text = difference.toString().replace(found.toString(), found.scenario().name())
            .replace(found.scenario().name() + ".v" + found.version() + ".", found.scenario().name() + ".v*.");
        versions.computeIfAbsent(new Finding(!unintended, text), fresh -> new ArrayList<>()).add(found.version());
    }

    void write(Path file) throws IOException {
        List<String> lines = new ArrayList<>();
        versions.forEach((finding, at) -> lines.add((finding.intended ? "intended: " : "") + finding.difference + "\n    versions:  " + at));
        Files.write(file, lines);
    }
}
