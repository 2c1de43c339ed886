package corelog.interop.differential.scenarios;

import corelog.interop.differential.Apis;
import corelog.interop.differential.Exchange;
import corelog.interop.differential.Scenario;
import java.util.List;
import org.apache.kafka.common.message.ApiVersionsRequestData;
import org.apache.kafka.common.message.ApiVersionsResponseData;
import org.apache.kafka.common.protocol.ApiKeys;

/** What the broker says it speaks. */
final class ApiVersionsScenarios {
    private static final short VERSION_NOT_THERE = 99;

    private ApiVersionsScenarios() {}

    static List<Scenario> list() {
        return List.of(
            Scenario.each("api-versions", ApiKeys.API_VERSIONS, ApiVersionsScenarios::compared),
            Scenario.each("all-api-versions", ApiKeys.API_VERSIONS, (x, v) -> x.ask("every API", hello(v, "differential", "1.0"))));
    }

    /** The APIs of this milestone alone: here no difference can be excused by an API that has yet to come. */
    private static void compared(Exchange x, short v) throws Exception {
        x.askTrimmed("the compared APIs", hello(v, "differential", "1.0"), ApiVersionsScenarios::keepCompared);
        if (v >= 3) {
            x.ask("a software name with a space", hello(v, "not legal", "1.0"));
            x.ask("an empty software name", hello(v, "", "1.0"));
            x.ask("an empty software version", hello(v, "differential", ""));
            x.ask("a software version that starts with a dash", hello(v, "differential", "-1"));
        }
        // KIP-511: a version to come (in the flexible format, as all are from 3 on) gets an answer in the shape of version 0,
        // and the connection goes on.
        short newest = Apis.newest(ApiKeys.API_VERSIONS);
        x.<ApiVersionsResponseData>askBeyond("a version to come", ApiKeys.API_VERSIONS, VERSION_NOT_THERE,
            hello(newest, "differential", "1.0"), newest, (short) 0);
        x.askTrimmed("asked again on the same connection", hello(v, "differential", "1.0"), ApiVersionsScenarios::keepCompared);
    }

    private static ApiVersionsRequestData hello(short version, String name, String softwareVersion) {
        ApiVersionsRequestData request = new ApiVersionsRequestData();
        return version < 3 ? request : request.setClientSoftwareName(name).setClientSoftwareVersion(softwareVersion);
    }

    private static void keepCompared(ApiVersionsResponseData answer) {
        answer.apiKeys().removeIf(entry -> Apis.COMPARED.stream().noneMatch(api -> api.id == entry.apiKey()));
        answer.supportedFeatures().clear();
        answer.finalizedFeatures().clear();
    }
}
