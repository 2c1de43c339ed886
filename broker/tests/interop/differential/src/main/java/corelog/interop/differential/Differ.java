package corelog.interop.differential;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** Compares two transcripts field by field; elements of arrays are paired by what names them, and their order is compared too. */
final class Differ {
    /** The fields that name an element, in the order in which they make up its key. */
    private static final List<String> NAMING = List.of("apiKey", "resourceType", "resourceName", "name", "topicName", "topic",
        "topicId", "partitionIndex", "partition", "index", "nodeId", "brokerId", "producerId", "offset", "baseOffset");

    /** A field that differs; `reference` or `tested` is null where one side has no such field. */
    record Difference(String where, JsonNode reference, JsonNode tested) {
        @Override
        public String toString() {
            return where + "\n    reference: " + shown(reference) + "\n    tested:    " + shown(tested);
        }

        private static String shown(JsonNode node) {
            return node == null ? "(absent)" : node.toString();
        }
    }

    private final Set<String> unordered;
    private final List<Difference> found = new ArrayList<>();

    private Differ(Set<String> unordered) {
        this.unordered = unordered;
    }

    /** All differences, each named "LABEL / STEP : PATH"; arrays under the `unordered` fields may stand in any order. */
    static List<Difference> compare(String label, Set<String> unordered, Map<String, JsonNode> reference, Map<String, JsonNode> tested) {
        Differ differ = new Differ(unordered);
        for (String step : union(reference.keySet(), tested.keySet())) {
            differ.values(label + " / " + step + " : ", "", reference.get(step), tested.get(step));
        }
        return differ.found;
    }

    private void values(String prefix, String path, JsonNode reference, JsonNode tested) {
        if (reference == null || tested == null) {
            found.add(new Difference(prefix + path, reference, tested));
        } else if (reference.isObject() && tested.isObject()) {
            fields(prefix, path, reference, tested);
        } else if (reference.isArray() && tested.isArray()) {
            elements(prefix, path, reference, tested);
        } else if (reference.getNodeType() != tested.getNodeType() || !reference.asText().equals(tested.asText())) {
            found.add(new Difference(prefix + path, reference, tested));
        }
    }

    private void fields(String prefix, String path, JsonNode reference, JsonNode tested) {
        for (String field : union(names(reference), names(tested))) {
            values(prefix, path.isEmpty() ? field : path + "." + field, reference.get(field), tested.get(field));
        }
    }

    private void elements(String prefix, String path, JsonNode reference, JsonNode tested) {
        Map<String, JsonNode> left = keyed(reference);
        Map<String, JsonNode> right = keyed(tested);
        for (String key : union(left.keySet(), right.keySet())) {
            values(prefix, path + "[" + key + "]", left.get(key), right.get(key));
        }
        List<String> leftOrder = left.keySet().stream().filter(right::containsKey).toList();
        List<String> rightOrder = right.keySet().stream().filter(left::containsKey).toList();
        if (!leftOrder.equals(rightOrder) && !unordered.contains(lastField(path))) {
            found.add(new Difference(prefix + path + " (order)", order(leftOrder), order(rightOrder)));
        }
    }

    private static JsonNode order(List<String> keys) {
        return JsonNodeFactory.instance.textNode(String.join(" ", keys));
    }

    private static String lastField(String path) {
        return path.replaceAll("\\[[^\\]]*\\]", "").replaceAll(".*\\.", "");
    }

    private static Map<String, JsonNode> keyed(JsonNode array) {
        Map<String, JsonNode> keyed = new LinkedHashMap<>();
        int position = 0;
        for (JsonNode element : array) {
            String name = element.isObject() ? nameOf(element) : "";
            String key = name.isEmpty() ? "#" + position : name;
            for (int twin = 2; keyed.containsKey(key); twin++) {
                key = name + " twin " + twin;
            }
            keyed.put(key, element);
            position++;
        }
        return keyed;
    }

    private static String nameOf(JsonNode element) {
        List<String> parts = new ArrayList<>();
        for (String field : NAMING) {
            JsonNode value = element.path(field);
            if (value.isValueNode() && !value.isNull()) {
                parts.add(value.asText().isEmpty() ? "(empty)" : value.asText());
            }
        }
        return String.join(" ", parts);
    }

    private static Set<String> names(JsonNode object) {
        Set<String> names = new LinkedHashSet<>();
        object.fieldNames().forEachRemaining(names::add);
        return names;
    }

    private static Set<String> union(Set<String> left, Set<String> right) {
        Set<String> all = new LinkedHashSet<>(left);
        all.addAll(right);
        return all;
    }
}
