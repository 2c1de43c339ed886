package corelog.interop.differential;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** All differences of a run for a reader: first those that nobody meant; the same one at several versions stands there once. */
final class Report {
    private final Map<String, List<Short>> unintended = new LinkedHashMap<>();
    private final Map<String, List<Short>> intended = new LinkedHashMap<>();

    void add(Scenario.Case found, Differ.Difference difference, boolean meant) {
        String text = difference.toString().replace(found.toString(), found.scenario().name())
            .replace(found.scenario().name() + ".v" + found.version() + ".", found.scenario().name() + ".v*.");
        (meant ? intended : unintended).computeIfAbsent(text, fresh -> new ArrayList<>()).add(found.version());
    }

    void write(Path file) throws IOException {
        List<String> lines = new ArrayList<>();
        lines.add(unintended.size() + " differences that are not intended");
        unintended.forEach((difference, versions) -> lines.add(difference + "\n    versions:  " + versions));
        lines.add(intended.size() + " intended differences");
        intended.forEach((difference, versions) -> lines.add(difference + "\n    versions:  " + versions));
        Files.write(file, lines);
    }
}
