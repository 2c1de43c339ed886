package corelog.interop.common;

import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/** Runs named cases one after the other and prints one TAP line for each. */
public final class Cases {
    /** What a case does; it fails by throwing. */
    @FunctionalInterface
    public interface Body {
        void run() throws Exception;
    }

    private final PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private boolean failed;

    /** Runs one case; an exception is its failure, and the next case runs all the same. */
    public void run(String name, Body body) {
        try {
            body.run();
            out.println("ok - " + name);
        } catch (Exception | AssertionError failure) {
            fail(name, failure.toString());
            for (Throwable cause = failure.getCause(); cause != null; cause = cause.getCause()) {
                comment("caused by " + cause);
            }
            failure.printStackTrace();
        }
    }

    /** Records a failure that was found without an exception. */
    public void fail(String name, String reason) {
        failed = true;
        out.println("not ok - " + name);
        comment(reason);
    }

    /** A line for the reader that counts for nothing. */
    public void comment(String text) {
        text.lines().forEach(line -> out.println("# " + line));
    }

    /** What the process should exit with. */
    public int exitCode() {
        return failed ? 1 : 0;
    }
}
