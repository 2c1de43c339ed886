// franz-go as the cases use it.
// Holds: producers, direct consumers and the admin client with the settings of this suite. Never touches: groups.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	readMax = 20 * time.Second
	sendMax = 15 * time.Second
)

var ctx = context.Background()

func newClient(opts ...kgo.Opt) (*kgo.Client, error) {
	common := []kgo.Opt{
		kgo.SeedBrokers(os.Getenv("INTEROP_BOOTSTRAP")),
		kgo.UnknownTopicRetries(2),
		kgo.MetadataMinAge(50 * time.Millisecond),
	}
	return kgo.NewClient(append(common, opts...)...)
}

// createTopic creates a topic and waits until all its partitions serve.
func createTopic(admin *kadm.Client, topic string, partitions int32, configs map[string]*string) error {
	if _, err := admin.CreateTopic(ctx, partitions, 1, configs, topic); err != nil {
		return err
	}
	return eventually(func() error {
		offsets, err := admin.ListEndOffsets(ctx, topic)
		if err != nil {
			return err
		}
		if err := offsets.Error(); err != nil {
			return err
		}
		return equal(int(partitions), len(offsets[topic]), "partitions that serve")
	})
}

// send produces in order and waits for every acknowledgement; the first error is returned.
func send(topic string, partition int32, fixtures []Fixture, opts ...kgo.Opt) error {
	client, err := newClient(append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		return err
	}
	defer client.Close()
	var records []*kgo.Record
	for _, f := range fixtures {
		record := &kgo.Record{Topic: topic, Partition: partition, Key: f.key, Value: f.value, Timestamp: time.UnixMilli(f.timestamp)}
		for _, h := range f.headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: h.key, Value: h.value})
		}
		records = append(records, record)
	}
	// Not RecordDeliveryTimeout: it counts from a record's own time, and these lie in the past.
	limited, cancel := context.WithTimeout(ctx, sendMax)
	defer cancel()
	return client.ProduceSync(limited, records...).FirstErr()
}

// read takes one partition from an offset until `count` records came, then looks once more for one too many.
func read(topic string, offset kgo.Offset, count int) ([]*kgo.Record, error) {
	client, err := newClient(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: offset}}),
		kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var records []*kgo.Record
	for deadline := time.Now().Add(readMax); len(records) < count && time.Now().Before(deadline); {
		if records, err = poll(client, records, time.Second); err != nil {
			return nil, err
		}
	}
	return poll(client, records, 100*time.Millisecond)
}

func poll(client *kgo.Client, records []*kgo.Record, wait time.Duration) ([]*kgo.Record, error) {
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	fetches := client.PollFetches(limited)
	for _, failure := range fetches.Errors() {
		if failure.Err != context.DeadlineExceeded {
			return nil, failure.Err
		}
	}
	return append(records, fetches.Records()...), nil
}

// sameRecords compares byte for byte, null and empty apart.
func sameRecords(expected []Fixture, actual []*kgo.Record) error {
	if err := equal(len(expected), len(actual), "records read"); err != nil {
		return err
	}
	for i, want := range expected {
		got := actual[i]
		if !same(want.key, got.Key) || !same(want.value, got.Value) {
			return fmt.Errorf("key or value of %q differs: %.60q -> %.60q", want.name, got.Key, got.Value)
		}
		if err := equal(want.timestamp, got.Timestamp.UnixMilli(), "timestamp of "+want.name); err != nil {
			return err
		}
		if err := equal(len(want.headers), len(got.Headers), "headers of "+want.name); err != nil {
			return err
		}
		for j, h := range want.headers {
			if h.key != got.Headers[j].Key || !same(h.value, got.Headers[j].Value) {
				return fmt.Errorf("header %d of %q differs: %q -> %q", j, want.name, got.Headers[j].Key, got.Headers[j].Value)
			}
		}
	}
	return nil
}

func same(a, b []byte) bool {
	return (a == nil) == (b == nil) && bytes.Equal(a, b)
}
