package corelog.interop.differential.scenarios;

import corelog.interop.differential.Scenario;
import java.util.List;
import java.util.stream.Stream;

/** Every scenario, in the order in which they run. */
public final class AllScenarios {
    private AllScenarios() {}

    public static List<Scenario> list() {
        return Stream.of(FrameScenarios.list(), ApiVersionsScenarios.list(), MetadataScenarios.list(), CreateTopicsScenarios.list(),
            TopicChangeScenarios.list(), ConfigScenarios.list(), AlterConfigScenarios.list(), DescribeScenarios.list(),
            ProducerIdScenarios.list(), ProduceScenarios.list(), BadBatchScenarios.list(), SequenceScenarios.list(),
            FetchScenarios.list(), FetchLimitScenarios.list(), FetchSessionScenarios.list(), ListOffsetsScenarios.list(),
            LeaderEpochScenarios.list(), DeleteRecordsScenarios.list()).flatMap(List::stream).toList();
    }
}
