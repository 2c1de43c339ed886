//! The default of every structure against Kafka's, as `kafka-protocol` has them.

#[path = "wire_support/shown.rs"]
mod shown;

use corelog_net::wire::messages as ours;
use kafka_protocol::messages as oracle;

macro_rules! same_defaults {
    ($($ours:ident = $module:ident::$oracle:ident;)*) => {
        /// Number of structures compared.
        const COMPARED: usize = [$(stringify!($ours)),*].len();

        #[test]
        fn every_structure_defaults_to_what_kafka_defaults_to() {
            $(
                let ours = format!("{:?}", ours::$ours::default());
                let oracle = format!("{:?}", oracle::$module::$oracle::default());
                shown::assert_same(stringify!($ours), &shown::read(&ours), &shown::read(&oracle));
            )*
        }
    };
}

same_defaults! {
    AbortedTransaction = fetch_response::AbortedTransaction;
    AlterConfigsRequest = alter_configs_request::AlterConfigsRequest;
    AlterConfigsResource = alter_configs_request::AlterConfigsResource;
    AlterConfigsResourceResponse = alter_configs_response::AlterConfigsResourceResponse;
    AlterConfigsResponse = alter_configs_response::AlterConfigsResponse;
    AlterableConfig = alter_configs_request::AlterableConfig;
    ApiVersion = api_versions_response::ApiVersion;
    ApiVersionsRequest = api_versions_request::ApiVersionsRequest;
    ApiVersionsResponse = api_versions_response::ApiVersionsResponse;
    BatchIndexAndErrorMessage = produce_response::BatchIndexAndErrorMessage;
    ConfigResource = list_config_resources_response::ConfigResource;
    CreatableReplicaAssignment = create_topics_request::CreatableReplicaAssignment;
    CreatableTopic = create_topics_request::CreatableTopic;
    CreatableTopicConfig = create_topics_request::CreatableTopicConfig;
    CreatableTopicConfigs = create_topics_response::CreatableTopicConfigs;
    CreatableTopicResult = create_topics_response::CreatableTopicResult;
    CreatePartitionsAssignment = create_partitions_request::CreatePartitionsAssignment;
    CreatePartitionsRequest = create_partitions_request::CreatePartitionsRequest;
    CreatePartitionsResponse = create_partitions_response::CreatePartitionsResponse;
    CreatePartitionsTopic = create_partitions_request::CreatePartitionsTopic;
    CreatePartitionsTopicResult = create_partitions_response::CreatePartitionsTopicResult;
    CreateTopicsRequest = create_topics_request::CreateTopicsRequest;
    CreateTopicsResponse = create_topics_response::CreateTopicsResponse;
    Cursor = describe_topic_partitions_request::Cursor;
    DeletableTopicResult = delete_topics_response::DeletableTopicResult;
    DeleteRecordsPartition = delete_records_request::DeleteRecordsPartition;
    DeleteRecordsPartitionResult = delete_records_response::DeleteRecordsPartitionResult;
    DeleteRecordsRequest = delete_records_request::DeleteRecordsRequest;
    DeleteRecordsResponse = delete_records_response::DeleteRecordsResponse;
    DeleteRecordsTopic = delete_records_request::DeleteRecordsTopic;
    DeleteRecordsTopicResult = delete_records_response::DeleteRecordsTopicResult;
    DeleteTopicState = delete_topics_request::DeleteTopicState;
    DeleteTopicsRequest = delete_topics_request::DeleteTopicsRequest;
    DeleteTopicsResponse = delete_topics_response::DeleteTopicsResponse;
    DescribableLogDirTopic = describe_log_dirs_request::DescribableLogDirTopic;
    DescribeClusterBroker = describe_cluster_response::DescribeClusterBroker;
    DescribeClusterRequest = describe_cluster_request::DescribeClusterRequest;
    DescribeClusterResponse = describe_cluster_response::DescribeClusterResponse;
    DescribeConfigsRequest = describe_configs_request::DescribeConfigsRequest;
    DescribeConfigsResource = describe_configs_request::DescribeConfigsResource;
    DescribeConfigsResourceResult = describe_configs_response::DescribeConfigsResourceResult;
    DescribeConfigsResponse = describe_configs_response::DescribeConfigsResponse;
    DescribeConfigsResult = describe_configs_response::DescribeConfigsResult;
    DescribeConfigsSynonym = describe_configs_response::DescribeConfigsSynonym;
    DescribeLogDirsPartition = describe_log_dirs_response::DescribeLogDirsPartition;
    DescribeLogDirsRequest = describe_log_dirs_request::DescribeLogDirsRequest;
    DescribeLogDirsResponse = describe_log_dirs_response::DescribeLogDirsResponse;
    DescribeLogDirsResult = describe_log_dirs_response::DescribeLogDirsResult;
    DescribeLogDirsTopic = describe_log_dirs_response::DescribeLogDirsTopic;
    DescribeProducersPartitionResponse = describe_producers_response::PartitionResponse;
    DescribeProducersRequest = describe_producers_request::DescribeProducersRequest;
    DescribeProducersResponse = describe_producers_response::DescribeProducersResponse;
    DescribeProducersTopic = describe_producers_request::TopicRequest;
    DescribeProducersTopicResponse = describe_producers_response::TopicResponse;
    DescribeTopicPartitionsRequest = describe_topic_partitions_request::DescribeTopicPartitionsRequest;
    DescribeTopicPartitionsResponse = describe_topic_partitions_response::DescribeTopicPartitionsResponse;
    DescribeTopicPartitionsResponsePartition
        = describe_topic_partitions_response::DescribeTopicPartitionsResponsePartition;
    DescribeTopicPartitionsResponseTopic
        = describe_topic_partitions_response::DescribeTopicPartitionsResponseTopic;
    DescribeTopicRequest = describe_topic_partitions_request::TopicRequest;
    EpochEndOffset = offset_for_leader_epoch_response::EpochEndOffset;
    FetchEpochEndOffset = fetch_response::EpochEndOffset;
    FetchPartition = fetch_request::FetchPartition;
    FetchPartitionData = fetch_response::PartitionData;
    FetchRequest = fetch_request::FetchRequest;
    FetchResponse = fetch_response::FetchResponse;
    FetchTopic = fetch_request::FetchTopic;
    FetchableTopicResponse = fetch_response::FetchableTopicResponse;
    FinalizedFeatureKey = api_versions_response::FinalizedFeatureKey;
    ForgottenTopic = fetch_request::ForgottenTopic;
    IncrementalAlterConfigsRequest = incremental_alter_configs_request::IncrementalAlterConfigsRequest;
    IncrementalAlterConfigsResource = incremental_alter_configs_request::AlterConfigsResource;
    IncrementalAlterConfigsResponse = incremental_alter_configs_response::IncrementalAlterConfigsResponse;
    IncrementalAlterableConfig = incremental_alter_configs_request::AlterableConfig;
    InitProducerIdRequest = init_producer_id_request::InitProducerIdRequest;
    InitProducerIdResponse = init_producer_id_response::InitProducerIdResponse;
    LeaderIdAndEpoch = produce_response::LeaderIdAndEpoch;
    ListConfigResourcesRequest = list_config_resources_request::ListConfigResourcesRequest;
    ListConfigResourcesResponse = list_config_resources_response::ListConfigResourcesResponse;
    ListOffsetsPartition = list_offsets_request::ListOffsetsPartition;
    ListOffsetsPartitionResponse = list_offsets_response::ListOffsetsPartitionResponse;
    ListOffsetsRequest = list_offsets_request::ListOffsetsRequest;
    ListOffsetsResponse = list_offsets_response::ListOffsetsResponse;
    ListOffsetsTopic = list_offsets_request::ListOffsetsTopic;
    ListOffsetsTopicResponse = list_offsets_response::ListOffsetsTopicResponse;
    MetadataRequest = metadata_request::MetadataRequest;
    MetadataRequestTopic = metadata_request::MetadataRequestTopic;
    MetadataResponse = metadata_response::MetadataResponse;
    MetadataResponseBroker = metadata_response::MetadataResponseBroker;
    MetadataResponsePartition = metadata_response::MetadataResponsePartition;
    MetadataResponseTopic = metadata_response::MetadataResponseTopic;
    NodeEndpoint = produce_response::NodeEndpoint;
    OffsetForLeaderEpochRequest = offset_for_leader_epoch_request::OffsetForLeaderEpochRequest;
    OffsetForLeaderEpochResponse = offset_for_leader_epoch_response::OffsetForLeaderEpochResponse;
    OffsetForLeaderPartition = offset_for_leader_epoch_request::OffsetForLeaderPartition;
    OffsetForLeaderTopic = offset_for_leader_epoch_request::OffsetForLeaderTopic;
    OffsetForLeaderTopicResult = offset_for_leader_epoch_response::OffsetForLeaderTopicResult;
    PartitionProduceData = produce_request::PartitionProduceData;
    PartitionProduceResponse = produce_response::PartitionProduceResponse;
    ProduceRequest = produce_request::ProduceRequest;
    ProduceResponse = produce_response::ProduceResponse;
    ProducerState = describe_producers_response::ProducerState;
    ReplicaState = fetch_request::ReplicaState;
    SnapshotId = fetch_response::SnapshotId;
    SupportedFeatureKey = api_versions_response::SupportedFeatureKey;
    TopicProduceData = produce_request::TopicProduceData;
    TopicProduceResponse = produce_response::TopicProduceResponse;
}

#[test]
fn no_structure_is_left_out() {
    use corelog_net::wire::{ApiKey, FieldType, RequestBody, ResponseBody};
    use std::collections::BTreeSet;

    fn names(ty: &FieldType, found: &mut BTreeSet<&'static str>) {
        match ty {
            FieldType::Array(inner) | FieldType::Lazy(inner) | FieldType::Nullable(inner) => {
                names(inner, found);
            }
            FieldType::Struct(schema) => {
                found.insert(schema.name);
                schema.fields.iter().for_each(|field| names(field.ty, found));
            }
            _ => {}
        }
    }

    let mut found = BTreeSet::new();
    for &key in ApiKey::SUPPORTED {
        names(RequestBody::layout(key), &mut found);
        names(ResponseBody::layout(key), &mut found);
    }
    assert_eq!(found.len(), COMPARED, "{found:?}");
}
