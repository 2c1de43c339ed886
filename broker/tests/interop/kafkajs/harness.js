// What the Node suite runs on: the test runner, the fixtures, waiting.
// Holds: nothing that depends on a client library. Never touches: the network.
'use strict';

const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');

const EVENTUALLY_MS_MAX = 10000;

/** Runs named cases one after the other and prints one TAP line for each. */
class Cases {
  failed = false;

  async run(name, body) {
    try {
      await body();
      console.log(`ok - ${name}`);
    } catch (failure) {
      this.failed = true;
      console.log(`not ok - ${name}`);
      console.log(String(failure).replace(/^/gm, '# '));
      console.error(failure);
    }
  }
}

const decoded = (text) => (text === null ? null : Buffer.from(text, 'base64'));

/** The records of fixtures/records.json with their absolute times. */
function loadFixtures() {
  const file = path.join(process.env.INTEROP_FIXTURES, 'records.json');
  return JSON.parse(fs.readFileSync(file, 'utf8')).records.map((entry) => ({
    traits: entry.traits ?? [],
    key: decoded(entry.key),
    value: entry.value === null ? null : Buffer.concat(Array(entry.repeat ?? 1).fill(decoded(entry.value))),
    headers: entry.headers.map(([name, value]) => [name, decoded(value)]),
    timestamp: Number(process.env.INTEROP_BASE_MS) + entry.at,
  }));
}

/** What a broker must answer for a time: the first offset whose record is not older, or -1. */
const firstNotOlder = (records, time) => records.findIndex(({ timestamp }) => timestamp >= time);

/** Runs a body until it no longer fails: a Kafka controller answers before its brokers have replayed the change. */
async function eventually(body) {
  for (const deadline = Date.now() + EVENTUALLY_MS_MAX; ;) {
    try {
      return await body();
    } catch (failure) {
      if (Date.now() >= deadline) throw failure;
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** The protocol's name of the error that a body must end with, wherever kafkajs hides it. */
async function fails(type, body) {
  try {
    await body();
  } catch (failure) {
    assert.equal(protocolError(failure), type, String(failure));
    return;
  }
  assert.fail(`expected ${type}, but it succeeded`);
}

function protocolError(failure) {
  return failure.type ?? failure.errors?.[0]?.type ?? (failure.cause && protocolError(failure.cause));
}

module.exports = { Cases, eventually, fails, firstNotOlder, loadFixtures };
