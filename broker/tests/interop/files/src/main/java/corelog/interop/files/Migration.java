package corelog.interop.files;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** What a Kafka has when somebody moves away from it: a topic of each kind, and the broker's own. */
final class Migration {
    private static final String SEGMENT_BYTES = Integer.toString(1 << 20);
    private static final int RECORDS = 1_500;

    private Migration() {}

    static void prepare(String bootstrap) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(
                topic("move.compact", 1, Map.of("cleanup.policy", "compact", "min.cleanable.dirty.ratio", "0.9")),
                topic("move.delete", 3, Map.of("cleanup.policy", "delete", "retention.ms", "86400000000", "segment.bytes", SEGMENT_BYTES)),
                topic("move.defaults", 2, Map.of()),
                topic("move.append-time", 1, Map.of("message.timestamp.type", "LogAppendTime", "compression.type", "lz4")),
                topic("move.trimmed", 1, Map.of("segment.bytes", SEGMENT_BYTES)),
                topic("move.transactions", 1, Map.of()),
                topic("move.aborted", 1, Map.of("segment.bytes", SEGMENT_BYTES)),
                topic("move.gone", 1, Map.of("cleanup.policy", "compact")),
                topic("move.empty", 2, Map.of("retention.ms", "-1")))).all().get();
            for (String codec : Load.CODECS) {
                send(bootstrap, "move.delete", codec, 3, RECORDS / 3);
            }
            send(bootstrap, "move.compact", "none", 1, 300);
            send(bootstrap, "move.defaults", "zstd", 2, 500);
            send(bootstrap, "move.append-time", "gzip", 1, 300);
            send(bootstrap, "move.trimmed", "snappy", 1, RECORDS);
            TopicPartition trimmed = new TopicPartition("move.trimmed", 0);
            admin.deleteRecords(Map.of(trimmed, RecordsToDelete.beforeOffset(RECORDS / 2))).all().get();
            admin.deleteTopics(List.of("move.gone")).all().get();
            admin.createPartitions(Map.of("move.empty", NewPartitions.increaseTo(4))).all().get();
            configure(admin, new ConfigResource(ConfigResource.Type.TOPIC, "move.defaults"), "max.message.bytes", "2000000");
            configure(admin, new ConfigResource(ConfigResource.Type.BROKER, ""), "log.retention.ms", "72000000000");
        }
        readInAGroup(bootstrap);
        transact(bootstrap, false);
        transact(bootstrap, true);
        transactInTurns(bootstrap);
    }

    /**
     * Transactions of several producers at the same time, over several segments; of each ten some are aborted, and one of the
     * aborted lasts over all of them.
     */
    private static void transactInTurns(String bootstrap) throws Exception {
        Random random = new Random(34);
        List<KafkaProducer<byte[], byte[]>> producers = new ArrayList<>();
        boolean[] isOpen = new boolean[4];
        try {
            for (int number = 0; number < isOpen.length; number++) {
                Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "transactional.id", "in-turns-" + number,
                    "transaction.timeout.ms", 300_000);
                KafkaProducer<byte[], byte[]> producer =
                    new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
                producers.add(producer);
                producer.initTransactions();
            }
            for (int step = 0; step < 900; step++) {
                // The last one ends when all others have.
                int number = step == 10 ? 3 : random.nextInt(3);
                KafkaProducer<byte[], byte[]> producer = producers.get(number);
                if (!isOpen[number]) {
                    producer.beginTransaction();
                    isOpen[number] = true;
                }
                if (step != 10 && random.nextInt(4) == 0) {
                    end(producer, random.nextInt(10) < 4);
                    isOpen[number] = false;
                } else {
                    producer.send(new ProducerRecord<>("move.aborted", 0, Load.TIME_MS + step, Load.utf8("key-" + step % 40),
                        Load.text(random, random.nextInt(12_000))));
                    producer.flush();
                }
            }
            for (int number = 0; number < isOpen.length; number++) {
                if (isOpen[number]) {
                    end(producers.get(number), number != 1);
                }
            }
        } finally {
            producers.forEach(KafkaProducer::close);
        }
    }

    private static void end(KafkaProducer<byte[], byte[]> producer, boolean abort) {
        if (abort) {
            producer.abortTransaction();
        } else {
            producer.commitTransaction();
        }
    }

    /** A transaction of one record. */
    private static void transact(String bootstrap, boolean abort) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "transactional.id", "mover");
        try (KafkaProducer<byte[], byte[]> producer =
                 new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>("move.transactions", Load.utf8("k"), Load.utf8("in a transaction")));
            if (abort) {
                producer.flush();
                producer.abortTransaction();
            } else {
                producer.commitTransaction();
            }
        }
    }

    /** After the move: producers go on, and what they write comes behind what was there. */
    static void goOn(String bootstrap) throws Exception {
        for (String topic : List.of("move.compact", "move.delete", "move.trimmed", "move.empty")) {
            send(bootstrap, topic, "lz4", 1, 50);
        }
    }

    private static NewTopic topic(String name, int partitions, Map<String, String> configs) {
        return new NewTopic(name, partitions, (short) 1).configs(configs);
    }

    private static void configure(Admin admin, ConfigResource resource, String name, String value) throws Exception {
        AlterConfigOp set = new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(set))).all().get();
    }

    private static void send(String bootstrap, String topic, String codec, int partitions, int count) {
        Random random = new Random(topic.hashCode() + codec.hashCode());
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "compression.type", codec, "acks", "all",
            "linger.ms", 5, "batch.size", 30_000));
        List<Future<?>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer =
                 new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int i = 0; i < count; i++) {
                List<Header> headers = i % 3 == 0
                    ? List.of(new RecordHeader("h", Load.utf8("v" + i)), new RecordHeader("n", null))
                    : List.of();
                // In a compacted topic every tenth record is a tombstone.
                byte[] value = i % 10 == 9 ? null : Load.text(random, random.nextInt(1_500));
                sent.add(producer.send(new ProducerRecord<>(topic, i % partitions, Load.TIME_MS + i * 10L,
                    Load.utf8("key-" + i % 40), value, headers)));
            }
        }
        for (Future<?> future : sent) {
            try {
                future.get();
            } catch (Exception failure) {
                throw new IllegalStateException("a record for " + topic + " was not taken", failure);
            }
        }
    }

    /** So that there are committed offsets. */
    private static void readInAGroup(String bootstrap) {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "group.id", "movers", "auto.offset.reset", "earliest");
        try (KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of("move.defaults"));
            for (int polls = 0; polls < 100 && consumer.poll(Duration.ofMillis(200)).isEmpty(); polls++) {
                continue;
            }
            consumer.commitSync();
        }
    }
}
