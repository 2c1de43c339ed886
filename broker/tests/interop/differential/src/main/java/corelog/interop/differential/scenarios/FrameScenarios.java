package corelog.interop.differential.scenarios;

import corelog.interop.differential.Apis;
import corelog.interop.differential.Exchange;
import corelog.interop.differential.Scenario;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.message.DescribeClusterRequestData;
import org.apache.kafka.common.protocol.ApiKeys;

/** Frames that are no request the broker advertises: each closes the connection. */
final class FrameScenarios {
    private static final short API_NOT_THERE = 9_999;

    private FrameScenarios() {}

    static List<Scenario> list() {
        List<Scenario> all = new ArrayList<>();
        all.add(Scenario.once("frames", ApiKeys.API_VERSIONS, FrameScenarios::garbage));
        for (ApiKeys api : Apis.COMPARED) {
            if (api != ApiKeys.API_VERSIONS) {
                all.add(Scenario.once("unadvertised-versions." + api.name, api, (x, v) -> unadvertisedVersions(x, api)));
            }
        }
        return all;
    }

    private static void garbage(Exchange x, short v) throws Exception {
        x.throwBytes("a TLS hello", new byte[] {0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, (byte) 0xfc, 0x03, 0x03, 0x42});
        x.throwBytes("a negative length", new byte[] {(byte) 0xff, (byte) 0xff, (byte) 0xff, (byte) 0xff, 0, 0, 0, 0});
        x.throwBytes("a length beyond every limit", new byte[] {0x7f, (byte) 0xff, (byte) 0xff, (byte) 0xff, 0, 0, 0, 0});
        x.throwBytes("an empty frame", new byte[] {0, 0, 0, 0});
        x.throwBytes("an unknown API key", frame(API_NOT_THERE, 0));
        x.throwBytes("a negative API key", frame((short) -1, 0));
        x.throwBytes("a body that ends early", frame(ApiKeys.METADATA.id, 9));
        x.throwBytes("a negative version", frame(ApiKeys.METADATA.id, -1));
    }

    private static byte[] frame(short apiKey, int version) {
        ByteBuffer frame = ByteBuffer.allocate(4 + 10).putInt(10).putShort(apiKey).putShort((short) version).putInt(1).putShort((short) -1);
        return frame.array();
    }

    private static void unadvertisedVersions(Exchange x, ApiKeys api) throws Exception {
        x.throwBytes("one version above the newest", frame(api.id, Apis.newest(api) + 1));
        short oldest = ApiMessageType.fromApiKey(api.id).lowestSupportedVersion();
        if (oldest > 0) {
            x.throwBytes("one version below the oldest", frame(api.id, oldest - 1));
        }
        x.ask("the next connection serves", ApiKeys.DESCRIBE_CLUSTER, (short) 0, new DescribeClusterRequestData());
    }
}
