// kafkajs with the codecs that it leaves to others.
// Holds: the client and its codecs. Never touches: expectations.
'use strict';

const zstd = require('@mongodb-js/zstd');
const { CompressionCodecs, CompressionTypes, Kafka, logLevel } = require('kafkajs');
const lz4 = require('lz4-napi');
const snappy = require('snappy');

/** kafkajs hands over its encoder and wants bytes; it reads nothing here, so nothing is ever unpacked. */
const writer = (compress) => () => ({ compress: async ({ buffer }) => compress(buffer) });

// Plain snappy without the Java framing: brokers have to take both.
CompressionCodecs[CompressionTypes.Snappy] = writer((data) => snappy.compress(data));
CompressionCodecs[CompressionTypes.LZ4] = writer((data) => lz4.compressFrame(data));
CompressionCodecs[CompressionTypes.ZSTD] = writer((data) => zstd.compress(data));

const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
};

const kafka = new Kafka({
  brokers: [process.env.INTEROP_BOOTSTRAP],
  clientId: 'interop',
  logLevel: logLevel.NOTHING,
  retry: { retries: 3, initialRetryTime: 50 },
});

module.exports = { CODECS, kafka };
