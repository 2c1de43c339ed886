package main

// The admin calls and what they must have done; what is refused, with the error that Kafka gives.

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	adminTopic  = name + ".admin"
	errorsTopic = name + ".errors"
)

type listing = func(context.Context, ...string) (kadm.ListedOffsets, error)

func (s *Suite) adminCases() {
	s.cases.run("create and describe a topic", s.createAndDescribe)
	s.cases.run("describe cluster names one node, which is the controller", s.describeCluster)
	s.cases.run("alter configs incrementally: set, append, subtract, delete", s.alterConfigs)
	s.cases.run("alter configs as a whole", s.alterConfigsWhole)
	s.cases.run("create partitions", s.createPartitions)
	s.cases.run("delete records moves the beginning", s.deleteRecords)
	s.cases.run("describe log dirs shows a partition's size", s.describeLogDirs)
	s.cases.run("describe producers shows an idempotent producer", s.describeProducers)
	s.cases.run("the end of the first leader epoch is the end of the log", s.leaderEpoch)
	s.cases.run("delete a topic", s.deleteTopic)
}

func (s *Suite) createAndDescribe() error {
	retention := "7200000"
	if err := createTopic(s.admin, adminTopic, 3, map[string]*string{"retention.ms": &retention}); err != nil {
		return err
	}
	topics, err := s.admin.ListTopics(ctx, adminTopic)
	if err != nil {
		return err
	}
	for partition := range int32(3) {
		detail := topics[adminTopic].Partitions[partition]
		if err := equal("1 [1] [1]", fmt.Sprint(detail.Leader, detail.Replicas, detail.ISR), "leader, replicas, in-sync replicas"); err != nil {
			return err
		}
	}
	return equal(3, len(topics[adminTopic].Partitions), "partitions")
}

func (s *Suite) describeCluster() error {
	metadata, err := s.admin.BrokerMetadata(ctx)
	if err != nil {
		return err
	}
	if err := equal(22, len(metadata.Cluster), "length of the cluster id"); err != nil {
		return err
	}
	return equal("1 [1]", fmt.Sprint(metadata.Controller, metadata.Brokers.NodeIDs()), "controller and nodes")
}

func (s *Suite) config(key string) (string, error) {
	configs, err := s.admin.DescribeTopicConfigs(ctx, adminTopic)
	if err != nil {
		return "", err
	}
	resource, err := configs.On(adminTopic, nil)
	if err != nil {
		return "", err
	}
	for _, config := range resource.Configs {
		if config.Key == key {
			return config.MaybeValue(), nil
		}
	}
	return "", fmt.Errorf("no config %s", key)
}

func (s *Suite) configBecomes(key, want string) error {
	return eventually(func() error {
		got, err := s.config(key)
		if err != nil {
			return err
		}
		return equal(want, got, key)
	})
}

func alterError(responses kadm.AlterConfigsResponses, err error) error {
	if err != nil {
		return err
	}
	return responses[0].Err
}

func (s *Suite) alterConfigs() error {
	text := func(value string) *string { return &value }
	for _, step := range []struct {
		change kadm.AlterConfig
		want   string
	}{
		{kadm.AlterConfig{Op: kadm.SetConfig, Name: "segment.bytes", Value: text("2097152")}, "2097152"},
		{kadm.AlterConfig{Op: kadm.AppendConfig, Name: "cleanup.policy", Value: text("compact")}, "delete,compact"},
		{kadm.AlterConfig{Op: kadm.SubtractConfig, Name: "cleanup.policy", Value: text("compact")}, "delete"},
		{kadm.AlterConfig{Op: kadm.DeleteConfig, Name: "segment.bytes"}, "1073741824"},
	} {
		if err := alterError(s.admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{step.change}, adminTopic)); err != nil {
			return err
		}
		if err := s.configBecomes(step.change.Name, step.want); err != nil {
			return err
		}
	}
	return nil
}

func (s *Suite) alterConfigsWhole() error {
	bytes := "2000000"
	change := []kadm.AlterConfig{{Name: "max.message.bytes", Value: &bytes}}
	if err := alterError(s.admin.AlterTopicConfigsState(ctx, change, adminTopic)); err != nil {
		return err
	}
	if err := s.configBecomes("max.message.bytes", bytes); err != nil {
		return err
	}
	return s.configBecomes("retention.ms", "604800000")
}

func (s *Suite) createPartitions() error {
	if err := s.updatePartitions(5); err != nil {
		return err
	}
	return eventually(func() error {
		topics, err := s.admin.ListTopics(ctx, adminTopic)
		if err != nil {
			return err
		}
		return equal(5, len(topics[adminTopic].Partitions), "partitions")
	})
}

func (s *Suite) updatePartitions(to int) error {
	responses, err := s.admin.UpdatePartitions(ctx, to, adminTopic)
	if err != nil {
		return err
	}
	return responses.Error()
}

func (s *Suite) deleteRecords() error {
	topic := name + ".delete-records"
	if err := createTopic(s.admin, topic, 1, nil); err != nil {
		return err
	}
	if err := send(topic, 0, s.fixtures); err != nil {
		return err
	}
	offsets := kadm.Offsets{}
	offsets.AddOffset(topic, 0, 4, -1)
	responses, err := s.admin.DeleteRecords(ctx, offsets)
	if err != nil {
		return err
	}
	response, _ := responses.Lookup(topic, 0)
	if err := equal(int64(4), response.LowWatermark, "low watermark"); err != nil {
		return err
	}
	return s.check(topic, s.fixtures[4:])
}

func (s *Suite) describeLogDirs() error {
	dirs, err := s.admin.DescribeAllLogDirs(ctx, kadm.TopicsSet{"cross." + name + ".none": {0: {}}})
	if err != nil {
		return err
	}
	for _, dir := range dirs[1] {
		partition, found := dir.Topics.Lookup("cross."+name+".none", 0)
		if found && partition.Size > 64<<10 {
			return nil
		}
	}
	return fmt.Errorf("no folder has the partition with more than 64 KiB: %v", dirs)
}

func (s *Suite) describeProducers() error {
	topic := name + ".idempotent"
	described, err := s.admin.DescribeProducers(ctx, kadm.TopicsSet{topic: {0: {}}})
	if err != nil {
		return err
	}
	for _, producer := range described[topic].Partitions[0].ActiveProducers {
		return equal(int32(20*len(s.fixtures)-1), producer.LastSequence, "last sequence")
	}
	return fmt.Errorf("no producer in %v", described)
}

func (s *Suite) leaderEpoch() error {
	topic := "cross." + name + ".none"
	request := kadm.OffsetForLeaderEpochRequest{}
	request.Add(topic, 0, 0)
	responses, err := s.admin.OffsetForLeaderEpoch(ctx, request)
	if err != nil {
		return err
	}
	return equal(int64(len(s.fixtures)), responses[topic][0].EndOffset, "end offset")
}

func (s *Suite) deleteTopic() error {
	topic := name + ".gone"
	if err := createTopic(s.admin, topic, 1, nil); err != nil {
		return err
	}
	if _, err := s.admin.DeleteTopic(ctx, topic); err != nil {
		return err
	}
	return eventually(func() error {
		return fails(kerr.UnknownTopicOrPartition, func() error { return s.describe(topic) })
	})
}

func (s *Suite) describe(topic string) error {
	topics, err := s.admin.ListTopics(ctx, topic)
	if err != nil {
		return err
	}
	return topics[topic].Err
}

func (s *Suite) create(topic string, partitions int32, replicas int16, configs map[string]*string) error {
	_, err := s.admin.CreateTopic(ctx, partitions, replicas, configs, topic)
	return err
}

func (s *Suite) errorCases() {
	limit, one := "1000", "1"
	s.cases.run("a topic is created for the error cases", func() error {
		return createTopic(s.admin, errorsTopic, 1, map[string]*string{"max.message.bytes": &limit})
	})
	unknownConfig := map[string]*string{"no.such.config": &one}
	for _, c := range []struct {
		name string
		want error
		body func() error
	}{
		{"create topic: it exists already", kerr.TopicAlreadyExists, func() error { return s.create(errorsTopic, 1, 1, nil) }},
		{"create topic: an illegal name", kerr.InvalidTopicException, func() error { return s.create("no spaces!", 1, 1, nil) }},
		{"create topic: no partitions", kerr.InvalidPartitions, func() error { return s.create(name+".none", 0, 1, nil) }},
		{"create topic: more replicas than brokers", kerr.InvalidReplicationFactor, func() error { return s.create(name+".rf", 1, 3, nil) }},
		{"create topic: an unknown config", kerr.InvalidConfig, func() error { return s.create(name+".cfg", 1, 1, unknownConfig) }},
		{"alter configs: an unknown name", kerr.InvalidConfig, func() error {
			return alterError(s.admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: "no.such.config", Value: &one}}, adminTopic))
		}},
		{"create partitions: fewer than there are", kerr.InvalidPartitions, func() error { return s.updatePartitions(1) }},
		{"describe topic: unknown", kerr.UnknownTopicOrPartition, func() error { return s.describe(name + ".unknown") }},
		{"delete topic: unknown", kerr.UnknownTopicOrPartition, func() error {
			_, err := s.admin.DeleteTopic(ctx, name+".unknown")
			return err
		}},
		{"produce: a record too large for the topic", kerr.MessageTooLarge, func() error {
			return send(errorsTopic, 0, []Fixture{{value: make([]byte, 2000), timestamp: time.Now().UnixMilli()}}, kgo.ProducerBatchCompression(kgo.NoCompression()))
		}},
		{"produce: a timestamp too far ahead", kerr.InvalidTimestamp, func() error {
			return send(errorsTopic, 0, []Fixture{{value: []byte("v"), timestamp: time.Now().Add(2 * time.Hour).UnixMilli()}})
		}},
		{"fetch: an offset out of range", kerr.OffsetOutOfRange, func() error {
			client, err := newClient(kgo.ConsumeResetOffset(kgo.NoResetOffset()),
				kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{errorsTopic: {0: kgo.NewOffset().At(1000)}}))
			if err != nil {
				return err
			}
			defer client.Close()
			limited, cancel := context.WithTimeout(ctx, readMax)
			defer cancel()
			return client.PollFetches(limited).Err()
		}},
	} {
		s.cases.run(c.name, func() error { return fails(c.want, c.body) })
	}
}
