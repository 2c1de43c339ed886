package main

// What goes in comes out: every compression, every acks, keyed and not, by time, and what other suites wrote.

import (
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

func (s *Suite) recordCases() {
	codecs := map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		s.cases.run("records come back identical, compression "+codec, func() error {
			return s.roundTrip("cross."+name+"."+codec, kgo.ProducerBatchCompression(codecs[codec]))
		})
	}
	acks := map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}
	for _, level := range []string{"0", "1", "all"} {
		s.cases.run("records come back identical, acks "+level+" without idempotence", func() error {
			return s.roundTrip(name+".acks."+level, kgo.RequiredAcks(acks[level]), kgo.DisableIdempotentWrite(),
				kgo.MaxProduceRequestsInflightPerBroker(1))
		})
	}
	s.cases.run("an idempotent producer's small batches arrive once and in order", s.idempotent)
	s.cases.run("keyed records keep their key's partition and order", s.keyed)
	s.cases.run("records that other clients wrote are identical", s.cross)
}

func (s *Suite) roundTrip(topic string, opts ...kgo.Opt) error {
	if err := createTopic(s.admin, topic, 1, nil); err != nil {
		return err
	}
	if err := send(topic, 0, s.fixtures, opts...); err != nil {
		return err
	}
	return s.check(topic, s.fixtures)
}

func (s *Suite) check(topic string, expected []Fixture) error {
	records, err := read(topic, kgo.NewOffset().AtStart(), len(expected))
	if err != nil {
		return err
	}
	return sameRecords(expected, records)
}

func (s *Suite) idempotent() error {
	topic := name + ".idempotent"
	if err := createTopic(s.admin, topic, 1, nil); err != nil {
		return err
	}
	many := slices.Repeat(s.fixtures, 20)
	if err := send(topic, 0, many, kgo.ProducerBatchMaxBytes(70_000), kgo.ProducerLinger(0)); err != nil {
		return err
	}
	return s.check(topic, many)
}

func (s *Suite) keyed() error {
	topic := name + ".keyed"
	if err := createTopic(s.admin, topic, 3, nil); err != nil {
		return err
	}
	client, err := newClient(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
		topic: {0: kgo.NewOffset().AtStart(), 1: kgo.NewOffset().AtStart(), 2: kgo.NewOffset().AtStart()}}))
	if err != nil {
		return err
	}
	defer client.Close()
	const count = 300
	var sent []*kgo.Record
	for i := range count {
		sent = append(sent, &kgo.Record{Topic: topic, Key: fmt.Appendf(nil, "key-%d", i%17), Value: fmt.Appendf(nil, "%06d", i)})
	}
	if err := client.ProduceSync(ctx, sent...).FirstErr(); err != nil {
		return err
	}
	last, partitionOf := map[int32]string{}, map[string]int32{}
	for seen := 0; seen < count; {
		fetches := client.PollRecords(ctx, count)
		if err := fetches.Err0(); err != nil {
			return err
		}
		for _, r := range fetches.Records() {
			seen++
			if earlier, known := partitionOf[string(r.Key)]; known && earlier != r.Partition {
				return fmt.Errorf("key %s is in partitions %d and %d", r.Key, earlier, r.Partition)
			}
			partitionOf[string(r.Key)] = r.Partition
			if last[r.Partition] >= string(r.Value) && last[r.Partition] != "" {
				return fmt.Errorf("record %s stands behind %s", r.Value, last[r.Partition])
			}
			last[r.Partition] = string(r.Value)
		}
	}
	return equal(3, len(last), "partitions used")
}

func (s *Suite) cross() error {
	topics, err := s.admin.ListTopics(ctx)
	if err != nil {
		return err
	}
	checked := 0
	for _, topic := range topics.Names() {
		if strings.HasPrefix(topic, "cross.") {
			checked++
			if err := s.check(topic, expectedIn(topic, s.fixtures)); err != nil {
				return fmt.Errorf("%s: %w", topic, err)
			}
		}
	}
	if checked < 5 {
		return fmt.Errorf("only %d topics to check", checked)
	}
	return nil
}

func (s *Suite) timeCases() {
	topic := "cross." + name + ".lz4"
	s.cases.run("offsets by time are the first record that is not older", func() error {
		for _, f := range s.fixtures {
			for _, time := range []int64{f.timestamp - 1, f.timestamp, f.timestamp + 1} {
				offsets, err := s.admin.ListOffsetsAfterMilli(ctx, time, topic)
				if err != nil {
					return err
				}
				found, _ := offsets.Lookup(topic, 0)
				want := firstNotOlder(s.fixtures, time)
				if want < 0 {
					want = int64(len(s.fixtures)) // franz-go answers the end where there is no such record
				}
				if err := equal(want, found.Offset, fmt.Sprintf("offset for %d", time)); err != nil {
					return err
				}
			}
		}
		return nil
	})
	s.cases.run("reading from a time yields the records from there on", func() error {
		rest := s.fixtures[8:]
		records, err := read(topic, kgo.NewOffset().AfterMilli(rest[0].timestamp-500), len(rest))
		if err != nil {
			return err
		}
		return sameRecords(rest, records)
	})
	s.cases.run("list offsets: earliest, latest, newest timestamp, committed", func() error {
		newest := 0
		for i, f := range s.fixtures {
			if f.timestamp > s.fixtures[newest].timestamp {
				newest = i
			}
		}
		for _, c := range []struct {
			what string
			want int64
			list listing
		}{
			{"earliest", 0, s.admin.ListStartOffsets},
			{"latest", int64(len(s.fixtures)), s.admin.ListEndOffsets},
			{"committed", int64(len(s.fixtures)), s.admin.ListCommittedOffsets},
			{"newest timestamp", int64(newest), s.admin.ListMaxTimestampOffsets},
		} {
			offsets, err := c.list(ctx, topic)
			if err != nil {
				return err
			}
			found, _ := offsets.Lookup(topic, 0)
			if err := equal(c.want, found.Offset, c.what); err != nil {
				return err
			}
		}
		return nil
	})
}
