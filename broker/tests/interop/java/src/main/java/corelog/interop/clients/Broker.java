package corelog.interop.clients;

import corelog.interop.common.Check;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The broker under test as the clients see it, and the few steps that most cases share. */
final class Broker implements AutoCloseable {
    private static final Duration READ_TIME_MAX = Duration.ofSeconds(20);

    final Admin admin;
    private final Map<String, Object> common;

    Broker(String bootstrap) {
        common = Map.of("bootstrap.servers", bootstrap, "request.timeout.ms", 10_000, "default.api.timeout.ms", 20_000);
        admin = Admin.create(common);
    }

    @Override
    public void close() {
        admin.close();
    }

    /** Creates a topic on the one broker and waits until it can be described. */
    void createTopic(String name, int partitions, Map<String, String> configs) throws Exception {
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1).configs(configs))).all().get();
        Check.eventually(() -> describe(name));
    }

    TopicDescription describe(String topic) throws Exception {
        return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
    }

    Producer<byte[], byte[]> producer(Map<String, Object> settings) {
        Map<String, Object> all = new HashMap<>(common);
        all.remove("default.api.timeout.ms");
        all.putAll(Map.of("max.block.ms", 10_000, "delivery.timeout.ms", 20_000, "linger.ms", 5));
        all.putAll(settings);
        return new KafkaProducer<>(all, new ByteArraySerializer(), new ByteArraySerializer());
    }

    /** Sends all records, in order, and waits until each is acknowledged (or, with acks=0, handed to the connection). */
    List<RecordMetadata> send(Map<String, Object> settings, List<ProducerRecord<byte[], byte[]>> records) throws Exception {
        List<Future<RecordMetadata>> pending = new ArrayList<>();
        List<RecordMetadata> sent = new ArrayList<>();
        try (Producer<byte[], byte[]> producer = producer(settings)) {
            records.forEach(record -> pending.add(producer.send(record)));
            producer.flush();
            for (Future<RecordMetadata> future : pending) {
                sent.add(future.get());
            }
        }
        return sent;
    }

    /** Consumers have no group: assignment only. */
    Consumer<byte[], byte[]> consumer(Map<String, Object> settings) {
        Map<String, Object> all = new HashMap<>(common);
        all.putAll(Map.of("enable.auto.commit", false, "auto.offset.reset", "none", "allow.auto.create.topics", false));
        all.putAll(settings);
        return new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** Reads partitions 0..n from their beginning until `count` records came. */
    List<ConsumerRecord<byte[], byte[]>> readAll(String topic, int partitions, int count, Map<String, Object> settings) {
        try (Consumer<byte[], byte[]> consumer = consumer(settings)) {
            Collection<TopicPartition> all = IntStream.range(0, partitions).mapToObj(i -> new TopicPartition(topic, i)).toList();
            consumer.assign(all);
            consumer.seekToBeginning(all);
            return poll(consumer, count);
        }
    }

    /** Polls until `count` records came, then once more to see that there are no others. */
    static List<ConsumerRecord<byte[], byte[]>> poll(Consumer<byte[], byte[]> consumer, int count) {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        long deadline = System.nanoTime() + READ_TIME_MAX.toNanos();
        while (records.size() < count && System.nanoTime() < deadline) {
            consumer.poll(Duration.ofMillis(200)).forEach(records::add);
        }
        consumer.poll(Duration.ofMillis(20)).forEach(records::add);
        return records;
    }
}
