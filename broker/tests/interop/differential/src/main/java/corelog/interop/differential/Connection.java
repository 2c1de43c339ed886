package corelog.interop.differential;

import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketException;
import java.nio.ByteBuffer;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.message.ResponseHeaderData;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/** One socket to one broker: frames out, frames in. Blocking, one request at a time unless the caller pipelines. */
public final class Connection implements AutoCloseable {
    static final int ANSWER_MS_MAX = 12_000;
    private static final int ANSWER_BYTES_MAX = 64 << 20;

    private final Socket socket;
    private int correlation;

    public Connection(InetSocketAddress address) throws IOException {
        socket = new Socket();
        socket.connect(address, ANSWER_MS_MAX);
        socket.setSoTimeout(ANSWER_MS_MAX);
        socket.setTcpNoDelay(true);
    }

    @Override
    public void close() throws IOException {
        socket.close();
    }

    /** Sends a request; `apiVersion` goes into the header, the body is encoded at `bodyVersion`. */
    public void send(ApiKeys api, short apiVersion, ApiMessage request, short bodyVersion) throws IOException {
        short headerVersion = api.requestHeaderVersion(bodyVersion);
        RequestHeaderData header = new RequestHeaderData().setRequestApiKey(api.id).setRequestApiVersion(apiVersion)
            .setCorrelationId(++correlation).setClientId("differential");
        ObjectSerializationCache cache = new ObjectSerializationCache();
        int size = header.size(cache, headerVersion) + request.size(cache, bodyVersion);
        ByteBuffer frame = ByteBuffer.allocate(4 + size);
        frame.putInt(size);
        ByteBufferAccessor writer = new ByteBufferAccessor(frame);
        header.write(writer, cache, headerVersion);
        request.write(writer, cache, bodyVersion);
        sendRaw(frame.array());
    }

    void sendRaw(byte[] bytes) throws IOException {
        socket.getOutputStream().write(bytes);
    }

    /** The next answer, decoded at a version; null when the broker closed the connection instead. */
    public Answer receive(ApiKeys api, short version) throws IOException {
        ByteBuffer frame = receiveFrame();
        if (frame == null) {
            return null;
        }
        ByteBufferAccessor reader = new ByteBufferAccessor(frame);
        ResponseHeaderData header = new ResponseHeaderData(reader, api.responseHeaderVersion(version));
        if (header.correlationId() != correlation) {
            throw new IOException("answer to request " + header.correlationId() + " came for " + correlation);
        }
        int bodyAt = frame.position();
        ApiMessage body = ApiMessageType.fromApiKey(api.id).newResponse();
        body.read(reader, version);
        return new Answer(body, version, sameBytes(frame, bodyAt, body, version));
    }

    /** An answer and what is wrong with its encoding (null when nothing). */
    public record Answer(ApiMessage body, short version, String encodingFault) {}

    /** Every byte belongs to the answer, and encoding what was decoded yields the same bytes again. */
    private static String sameBytes(ByteBuffer frame, int bodyAt, ApiMessage body, short version) {
        if (frame.hasRemaining()) {
            return frame.remaining() + " bytes left over after the answer";
        }
        ByteBuffer encoded = MessageUtil.toByteBufferAccessor(body, version).buffer();
        frame.position(bodyAt);
        int differsAt = frame.mismatch(encoded);
        return differsAt < 0 ? null : "encoding differs from byte " + differsAt + " of the body on";
    }

    private ByteBuffer receiveFrame() throws IOException {
        try {
            DataInputStream in = new DataInputStream(socket.getInputStream());
            int size = in.readInt();
            if (size < 0 || size > ANSWER_BYTES_MAX) {
                throw new IOException("answer of " + size + " bytes");
            }
            byte[] frame = new byte[size];
            in.readFully(frame);
            return ByteBuffer.wrap(frame);
        } catch (EOFException | SocketException closed) {
            return null;
        }
    }
}
