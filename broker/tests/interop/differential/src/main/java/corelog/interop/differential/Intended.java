package corelog.interop.differential;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

/** The differences that are meant: intended.json. Each entry has a reason and must still occur. */
final class Intended {
    /** One entry: `where` may hold `*` for any run of characters; `tested` and `reference`, when given, must be equal too. */
    private record Entry(String where, Pattern pattern, JsonNode reference, JsonNode tested, String reason) {
        boolean covers(Differ.Difference difference) {
            return pattern.matcher(difference.where()).matches()
                && same(reference, difference.reference()) && same(tested, difference.tested());
        }

        private static boolean same(JsonNode wanted, JsonNode found) {
            return wanted == null || found != null && wanted.asText().equals(found.asText());
        }
    }

    private final List<Entry> entries = new ArrayList<>();
    private final Set<Entry> seen = new HashSet<>();

    static Intended none() {
        return new Intended();
    }

    static Intended load(Path file) throws IOException {
        Intended intended = new Intended();
        for (JsonNode node : new ObjectMapper().readTree(file.toFile()).get("differences")) {
            String reason = node.path("reason").asText();
            if (reason.isBlank()) {
                throw new IOException("an intended difference without a reason: " + node);
            }
            String where = node.get("where").asText();
            intended.entries.add(new Entry(where, glob(where), node.get("reference"), node.get("tested"), reason));
        }
        return intended;
    }

    private static Pattern glob(String where) {
        return Pattern.compile(Arrays.stream(where.split("\\*", -1)).map(Pattern::quote).collect(Collectors.joining(".*")));
    }

    boolean covers(Differ.Difference difference) {
        boolean covered = false;
        for (Entry entry : entries) {
            if (entry.covers(difference)) {
                seen.add(entry);
                covered = true;
            }
        }
        return covered;
    }

    /** Entries that no difference of this run matched. */
    List<String> noLongerOccurring() {
        return entries.stream().filter(entry -> !seen.contains(entry)).map(entry -> entry.where + " (" + entry.reason + ")").toList();
    }
}
