package corelog.interop.files;

import corelog.interop.common.Check;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Stream;

/** One partition's folder, of a real Kafka and of the broker under test. */
final class FolderPair {
    /** Which bytes of a batch (from its start on) may differ, and nothing else. */
    enum Mask {
        /** The leader epoch, bytes 12 to 15: each broker counts its own. */
        LEADER_EPOCH,
        /** As well the CRC, bytes 17 to 20, and the largest time, bytes 35 to 42: the broker's clock. */
        APPEND_TIME
    }

    private static final int LENGTH_AT = 8;
    private static final int LENGTH_COUNTS_FROM = 12;
    private static final int SNAPSHOT_ENTRIES_AT = 10;
    private static final int SNAPSHOT_ENTRY_BYTES = 46;

    private final Path kafka;
    private final Path tested;

    FolderPair(Path kafka, Path tested) {
        this.kafka = kafka;
        this.tested = tested;
    }

    String told() throws IOException {
        List<String> segments = names(kafka, ".log");
        return segments.size() + " segments at the same offsets, " + joined(kafka, Mask.LEADER_EPOCH).length + " bytes";
    }

    void sameSegments() throws IOException {
        List<String> expected = names(kafka, ".log");
        Check.that(expected.size() > 2, "several segments, Kafka has " + expected);
        Check.equal(expected, names(tested, ".log"), "segments");
    }

    /** All segments, one behind the other. */
    void sameLogs(Mask mask) throws IOException {
        byte[] expected = joined(kafka, mask);
        byte[] found = joined(tested, mask);
        Check.that(expected.length > 0, "batches in " + kafka);
        same(expected, found, "the log");
    }

    boolean differsIn(Mask mask) throws IOException {
        return Arrays.mismatch(joined(kafka, mask), joined(tested, mask)) >= 0;
    }

    void sameBytes(String suffix) throws IOException {
        List<String> expected = names(kafka, suffix);
        Check.equal(expected, names(tested, suffix), "files");
        for (String name : expected) {
            byte[] entries = Files.readAllBytes(kafka.resolve(name));
            Check.that(entries.length > 0 || name.equals(expected.get(expected.size() - 1)), "entries in Kafka's " + name);
            same(entries, Files.readAllBytes(tested.resolve(name)), name);
        }
    }

    void sameSnapshots() throws IOException {
        List<String> expected = names(kafka, ".snapshot");
        Check.that(expected.size() > 1, "snapshots of Kafka, there are " + expected);
        Check.equal(expected, names(tested, ".snapshot"), "files");
        for (String name : expected) {
            Map<Long, String> entries = lastEntries(kafka.resolve(name));
            Check.that(!entries.isEmpty(), "producers in Kafka's " + name);
            Check.equal(entries, lastEntries(tested.resolve(name)), "last entry of each producer in " + name);
        }
    }

    void sameEpochs() throws IOException {
        String name = "leader-epoch-checkpoint";
        Check.equal(Files.readString(kafka.resolve(name)), Files.readString(tested.resolve(name)), name);
    }

    /** Of each producer the last entry: Kafka writes no other, and of several it takes the last. */
    private static Map<Long, String> lastEntries(Path file) throws IOException {
        ByteBuffer bytes = ByteBuffer.wrap(Files.readAllBytes(file)).position(SNAPSHOT_ENTRIES_AT);
        Map<Long, String> last = new TreeMap<>();
        while (bytes.remaining() >= SNAPSHOT_ENTRY_BYTES) {
            long id = bytes.getLong();
            last.put(id, "epoch " + bytes.getShort() + ", sequence " + bytes.getInt() + ", offset " + bytes.getLong() + ", delta "
                + bytes.getInt() + ", time " + bytes.getLong() + ", coordinator " + bytes.getInt() + ", transaction " + bytes.getLong());
        }
        return last;
    }

    private static void same(byte[] expected, byte[] found, String what) {
        int at = Arrays.mismatch(expected, found);
        Check.that(at < 0, what + " to be the same; it differs at byte " + at + " of " + expected.length + " (Kafka) and "
            + found.length);
    }

    private static byte[] joined(Path folder, Mask mask) throws IOException {
        ByteArrayOutputStream all = new ByteArrayOutputStream();
        for (String name : names(folder, ".log")) {
            all.writeBytes(masked(Files.readAllBytes(folder.resolve(name)), mask));
        }
        return all.toByteArray();
    }

    private static byte[] masked(byte[] segment, Mask mask) {
        ByteBuffer bytes = ByteBuffer.wrap(segment);
        for (int at = 0; at < segment.length; at += LENGTH_COUNTS_FROM + bytes.getInt(at + LENGTH_AT)) {
            bytes.putInt(at + 12, 0);
            if (mask == Mask.APPEND_TIME) {
                bytes.putInt(at + 17, 0);
                bytes.putLong(at + 35, 0);
            }
        }
        return segment;
    }

    private static List<String> names(Path folder, String suffix) throws IOException {
        try (Stream<Path> files = Files.list(folder)) {
            return files.map(file -> file.getFileName().toString()).filter(name -> name.endsWith(suffix)).sorted().toList();
        }
    }
}
