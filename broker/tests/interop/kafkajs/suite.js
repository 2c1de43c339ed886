// The suite of kafkajs: it can read only in groups, so it produces and administers; the suites after it read what it wrote.
// Holds: the cases. Never touches: groups.
'use strict';

const assert = require('node:assert/strict');
const { ConfigResourceTypes, Partitioners } = require('kafkajs');
const { Cases, eventually, fails, firstNotOlder, loadFixtures } = require('./harness');
const { CODECS, kafka } = require('./client');

// kafkajs keeps headers in an object, so a repeated name cannot keep its place.
const TRAIT_MISSING = 'repeated-header';
const FIXTURES = loadFixtures().filter((record) => !record.traits.includes(TRAIT_MISSING));
const ADMIN_TOPIC = 'kafkajs.admin';
const ERRORS_TOPIC = 'kafkajs.errors';
const HOURS_2_MS = 7200000;

const admin = kafka.admin();

const crossTopic = (codec) => `cross.kafkajs.${codec}.without.${TRAIT_MISSING}`;

async function create(topic, numPartitions = 1, configEntries = [], replicationFactor = 1) {
  return admin.createTopics({ waitForLeaders: false, topics: [{ topic, numPartitions, replicationFactor, configEntries }] });
}

async function createAndWait(topic, numPartitions, configEntries) {
  await create(topic, numPartitions, configEntries);
  await eventually(async () => {
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
    assert.ok(topics[0].partitions.every((partition) => partition.leader === 1));
    await admin.fetchTopicOffsets(topic); // every partition serves: kafkajs would send some records twice otherwise
  });
}

/** Sends all messages in one request; options are the producer's (idempotent) and the request's (acks, compression). */
async function send(topic, messages, { idempotent = false, ...request } = {}) {
  const producer = kafka.producer({ idempotent, createPartitioner: Partitioners.DefaultPartitioner, retry: { retries: 2 } });
  await producer.connect();
  try {
    return await producer.send({ topic, messages, ...request });
  } finally {
    await producer.disconnect();
  }
}

const message = ({ key, value, headers, timestamp }) => ({ key, value, headers: Object.fromEntries(headers), partition: 0, timestamp: String(timestamp) });

async function endOffset(topic) {
  return Number((await admin.fetchTopicOffsets(topic))[0].high);
}

async function writeAll(topic, options) {
  await createAndWait(topic);
  await send(topic, FIXTURES.map(message), options);
  await eventually(async () => assert.equal(await endOffset(topic), FIXTURES.length));
}

async function configValue(name) {
  const described = await admin.describeConfigs({ includeSynonyms: true, resources: [{ type: ConfigResourceTypes.TOPIC, name: ADMIN_TOPIC, configNames: [name] }] });
  return described.resources[0].configEntries[0].configValue;
}

function alter(entries) {
  return admin.alterConfigs({ validateOnly: false, resources: [{ type: ConfigResourceTypes.TOPIC, name: ADMIN_TOPIC, configEntries: entries }] });
}

async function recordCases(cases) {
  for (const [codec, compression] of Object.entries(CODECS)) {
    await cases.run(`records are written, compression ${codec}`, () => writeAll(crossTopic(codec), { compression }));
  }
  for (const acks of [0, 1, -1]) {
    await cases.run(`records are written, acks ${acks}`, () => writeAll(`kafkajs.acks.${acks}`, { acks }));
  }
  await cases.run('an idempotent producer writes', () => writeAll('kafkajs.idempotent', { idempotent: true, acks: -1 }));
  await cases.run('keyed records without a partition spread over the topic', async () => {
    await createAndWait('kafkajs.keyed', 3);
    const keyed = Array.from({ length: 60 }, (_, i) => ({ key: `key-${i}`, value: `value ${i}` }));
    await send('kafkajs.keyed', keyed);
    const ends = (await admin.fetchTopicOffsets('kafkajs.keyed')).map(({ high }) => Number(high));
    assert.equal(ends.length, 3);
    assert.ok(ends.every((end) => end > 0), `records in every partition, got ${ends}`);
    assert.equal(ends.reduce((sum, end) => sum + end), keyed.length);
  });
}

async function adminCases(cases) {
  await cases.run('offsets by time are the first record that is not older', async () => {
    for (const { timestamp } of FIXTURES) {
      for (const time of [timestamp - 1, timestamp, timestamp + 1]) {
        const [{ offset }] = await admin.fetchTopicOffsetsByTimestamp(crossTopic('lz4'), time);
        const expected = firstNotOlder(FIXTURES, time);
        // kafkajs answers the end where there is no such record.
        assert.equal(Number(offset), expected < 0 ? FIXTURES.length : expected, `offset for ${time}`);
      }
    }
  });
  await cases.run('create, list and describe a topic', async () => {
    await createAndWait(ADMIN_TOPIC, 3, [{ name: 'retention.ms', value: '7200000' }]);
    assert.ok((await admin.listTopics()).includes(ADMIN_TOPIC));
    const { topics: [topic] } = await admin.fetchTopicMetadata({ topics: [ADMIN_TOPIC] });
    const partitions = topic.partitions.map(({ partitionId, leader, replicas, isr }) => ({ partitionId, leader, replicas, isr }));
    assert.deepEqual(partitions.sort((a, b) => a.partitionId - b.partitionId),
      [0, 1, 2].map((partitionId) => ({ partitionId, leader: 1, replicas: [1], isr: [1] })));
  });
  await cases.run('describe cluster names one node, which is the controller', async () => {
    const { brokers, controller, clusterId } = await admin.describeCluster();
    assert.deepEqual(brokers.map(({ nodeId }) => nodeId), [1]);
    assert.equal(controller, 1);
    assert.equal(clusterId.length, 22);
  });
  await cases.run('alter configs replaces the whole set', async () => {
    assert.equal(await configValue('retention.ms'), '7200000');
    await alter([{ name: 'segment.bytes', value: '2097152' }]);
    await eventually(async () => assert.equal(await configValue('segment.bytes'), '2097152'));
    assert.equal(await configValue('retention.ms'), '604800000');
  });
  await cases.run('create partitions', async () => {
    await admin.createPartitions({ topicPartitions: [{ topic: ADMIN_TOPIC, count: 5 }] });
    await eventually(async () => assert.equal((await admin.fetchTopicMetadata({ topics: [ADMIN_TOPIC] })).topics[0].partitions.length, 5));
  });
  await cases.run('delete records moves the beginning', async () => {
    await writeAll('kafkajs.delete-records', {});
    await admin.deleteTopicRecords({ topic: 'kafkajs.delete-records', partitions: [{ partition: 0, offset: '4' }] });
    assert.equal((await admin.fetchTopicOffsets('kafkajs.delete-records'))[0].low, '4');
  });
  await cases.run('delete a topic', async () => {
    await createAndWait('kafkajs.gone');
    await admin.deleteTopics({ topics: ['kafkajs.gone'] });
    await eventually(async () => assert.ok(!(await admin.listTopics()).includes('kafkajs.gone')));
  });
}

async function errorCases(cases) {
  await cases.run('a topic is created for the error cases', () => createAndWait(ERRORS_TOPIC, 1, [{ name: 'max.message.bytes', value: '1000' }]));
  const refused = [
    ['create topic: an illegal name', 'INVALID_TOPIC_EXCEPTION', () => create('no spaces!')],
    ['create topic: no partitions', 'INVALID_PARTITIONS', () => create('kafkajs.none', 0)],
    ['create topic: more replicas than brokers', 'INVALID_REPLICATION_FACTOR', () => create('kafkajs.rf', 1, [], 3)],
    ['create topic: an unknown config', 'INVALID_CONFIG', () => create('kafkajs.cfg', 1, [{ name: 'no.such.config', value: '1' }])],
    ['alter configs: an unknown name', 'INVALID_CONFIG', () => alter([{ name: 'no.such.config', value: '1' }])],
    ['create partitions: fewer than there are', 'INVALID_PARTITIONS',
      () => admin.createPartitions({ topicPartitions: [{ topic: ADMIN_TOPIC, count: 1 }] })],
    ['delete topic: unknown', 'UNKNOWN_TOPIC_OR_PARTITION', () => admin.deleteTopics({ topics: ['kafkajs.unknown'] })],
    ['produce: a record too large for the topic', 'MESSAGE_TOO_LARGE', () => send(ERRORS_TOPIC, [{ value: Buffer.alloc(2000) }])],
    ['produce: a timestamp too far ahead', 'INVALID_TIMESTAMP',
      () => send(ERRORS_TOPIC, [{ value: 'v', timestamp: String(Date.now() + HOURS_2_MS) }])],
  ];
  for (const [name, type, body] of refused) {
    await cases.run(name, () => fails(type, body));
  }
  await cases.run('create topic: it exists already (kafkajs answers false)', async () => assert.equal(await create(ERRORS_TOPIC), false));
}

async function main() {
  const cases = new Cases();
  await admin.connect();
  await recordCases(cases);
  await adminCases(cases);
  await errorCases(cases);
  await admin.disconnect();
  process.exit(cases.failed ? 1 : 0);
}

main();
