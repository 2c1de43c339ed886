package corelog.interop.files;

import corelog.interop.common.Cases;
import corelog.interop.common.Check;
import corelog.interop.differential.Connection;
import java.io.IOException;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.SimpleRecord;

/** The very same batches to a real Kafka and to the broker under test, and then their folders compared byte for byte. */
final class Twins {
    /** Create times, and the broker's own times: those differ from one broker to the other. */
    private static final String TOPIC = "twins";
    private static final String TOPIC_OF_APPEND_TIME = "twins-append-time";
    private static final int SEGMENT_BYTES = 1 << 20;
    private static final int BATCHES = 300;
    private static final int BATCHES_OF_APPEND_TIME = 20;

    private Twins() {}

    static void send(List<String> bootstraps) throws Exception {
        for (String bootstrap : bootstraps) {
            try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
                String segment = Integer.toString(SEGMENT_BYTES);
                admin.createTopics(List.of(
                    new NewTopic(TOPIC, 1, (short) 1).configs(Map.of("segment.bytes", segment)),
                    new NewTopic(TOPIC_OF_APPEND_TIME, 1, (short) 1)
                        .configs(Map.of("segment.bytes", segment, "message.timestamp.type", "LogAppendTime")))).all().get();
            }
            try (Connection connection = RawProducer.connect(bootstrap)) {
                sendTo(connection, TOPIC, BATCHES);
                sendTo(connection, TOPIC_OF_APPEND_TIME, BATCHES_OF_APPEND_TIME);
            }
        }
    }

    private static void sendTo(Connection connection, String topic, int batches) throws IOException, InterruptedException {
        Random random = new Random(topic.hashCode());
        int[] sequences = new int[2];
        for (int number = 0; number < batches; number++) {
            RawProducer.produce(connection, topic, batch(number, random, sequences));
        }
    }

    /** Every third without a producer id; the others of two producers in turn. */
    private static MemoryRecords batch(int number, Random random, int[] sequences) {
        SimpleRecord[] records = new SimpleRecord[1 + random.nextInt(30)];
        for (int i = 0; i < records.length; i++) {
            Header[] headers = i % 3 == 0 ? new Header[] {new RecordHeader("h", Load.utf8("v" + i)), new RecordHeader("n", null)}
                : new Header[0];
            long time = Load.TIME_MS + number * 100L - random.nextInt(500);
            records[i] = new SimpleRecord(time, random.nextInt(5) == 0 ? null : Load.utf8("key-" + i),
                random.nextInt(9) == 0 ? null : Load.text(random, random.nextInt(2_000)), headers);
        }
        Compression codec = RawProducer.CODECS.get(number % RawProducer.CODECS.size());
        int producer = number % 3;
        if (producer == 2) {
            return MemoryRecords.withRecords(codec, records);
        }
        int sequence = sequences[producer];
        sequences[producer] += records.length;
        return MemoryRecords.withIdempotentRecords(codec, 7_000 + producer, (short) 0, sequence, records);
    }

    /**
     * The data folders, all stopped: of Kafka, of a broker whose segments end where Kafka's do, of one whose segments end where its
     * pre-written room does. Returns the exit code.
     */
    static int compare(Path kafka, Path tested, Path inRooms) {
        Cases cases = new Cases();
        FolderPair pair = new FolderPair(kafka.resolve(TOPIC + "-0"), tested.resolve(TOPIC + "-0"));
        cases.run("the same batches make the same .log bytes as Kafka's, segment by segment", () -> {
            pair.sameSegments();
            pair.sameLogs(FolderPair.Mask.LEADER_EPOCH);
            cases.comment(pair.told());
        });
        cases.run("the same batches make the same .index entries as Kafka's", () -> pair.sameBytes(".index"));
        cases.run("the same batches make the same .timeindex entries as Kafka's", () -> pair.sameBytes(".timeindex"));
        cases.run("producer snapshots say what Kafka's say", pair::sameSnapshots);
        cases.run("the leader-epoch checkpoint is Kafka's", pair::sameEpochs);
        FolderPair rooms = new FolderPair(kafka.resolve(TOPIC + "-0"), inRooms.resolve(TOPIC + "-0"));
        cases.run("segments that end elsewhere than Kafka's hold the same bytes, one behind the other",
            () -> rooms.sameLogs(FolderPair.Mask.LEADER_EPOCH));
        FolderPair stamped = new FolderPair(kafka.resolve(TOPIC_OF_APPEND_TIME + "-0"), tested.resolve(TOPIC_OF_APPEND_TIME + "-0"));
        cases.run("with the broker's own times, only these and the CRC over them differ", () -> {
            stamped.sameLogs(FolderPair.Mask.APPEND_TIME);
            Check.that(stamped.differsIn(FolderPair.Mask.LEADER_EPOCH), "the brokers' times to differ at all");
        });
        return cases.exitCode();
    }
}
