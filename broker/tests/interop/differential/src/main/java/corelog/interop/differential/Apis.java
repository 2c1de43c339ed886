package corelog.interop.differential;

import java.util.List;
import org.apache.kafka.common.protocol.ApiKeys;

/** The APIs that are compared, each at every version that Kafka advertises by default. */
public final class Apis {
    public static final List<ApiKeys> COMPARED = List.of(ApiKeys.PRODUCE, ApiKeys.FETCH, ApiKeys.LIST_OFFSETS, ApiKeys.METADATA,
        ApiKeys.API_VERSIONS, ApiKeys.CREATE_TOPICS, ApiKeys.DELETE_TOPICS, ApiKeys.DELETE_RECORDS, ApiKeys.INIT_PRODUCER_ID,
        ApiKeys.OFFSET_FOR_LEADER_EPOCH, ApiKeys.DESCRIBE_CONFIGS, ApiKeys.ALTER_CONFIGS, ApiKeys.DESCRIBE_LOG_DIRS,
        ApiKeys.CREATE_PARTITIONS, ApiKeys.INCREMENTAL_ALTER_CONFIGS, ApiKeys.DESCRIBE_CLUSTER, ApiKeys.DESCRIBE_PRODUCERS,
        ApiKeys.LIST_CONFIG_RESOURCES, ApiKeys.DESCRIBE_TOPIC_PARTITIONS);

    private Apis() {}

    /** The newest version that is not still being designed. */
    public static short newest(ApiKeys api) {
        return api.latestVersion(false);
    }
}
