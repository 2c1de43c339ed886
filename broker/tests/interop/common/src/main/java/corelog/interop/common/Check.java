package corelog.interop.common;

import java.time.Duration;
import java.util.Objects;
import java.util.concurrent.ExecutionException;

/** Assertions whose messages carry both values. */
public final class Check {
    private static final Duration EVENTUALLY_MAX = Duration.ofSeconds(10);

    private Check() {}

    /** Fails unless both are equal. */
    public static void equal(Object expected, Object actual, String what) {
        if (!Objects.equals(expected, actual)) {
            throw new AssertionError(what + ": expected <" + expected + ">, got <" + actual + ">");
        }
    }

    /** Fails unless the condition holds. */
    public static void that(boolean condition, String what) {
        if (!condition) {
            throw new AssertionError("expected " + what);
        }
    }

    /**
     * Runs the body until it no longer fails, for ten seconds at most. A Kafka controller answers before its brokers have
     * replayed the change, so what an admin call did may be read only a moment later.
     */
    public static void eventually(Cases.Body body) throws Exception {
        long deadline = System.nanoTime() + EVENTUALLY_MAX.toNanos();
        while (true) {
            try {
                body.run();
                return;
            } catch (Exception | AssertionError failure) {
                if (System.nanoTime() >= deadline) {
                    throw failure;
                }
            }
            Thread.sleep(20);
        }
    }

    /** Fails unless the body throws exactly this class (looked for under an ExecutionException); returns what was thrown. */
    public static Throwable fails(Class<? extends Throwable> expected, Cases.Body body) {
        Throwable thrown;
        try {
            body.run();
            throw new AssertionError("expected " + expected.getSimpleName() + ", but it succeeded");
        } catch (ExecutionException wrapped) {
            thrown = wrapped.getCause();
        } catch (Exception direct) {
            thrown = direct;
        }
        if (thrown.getClass() != expected) {
            throw new AssertionError("expected " + expected.getSimpleName() + ", got " + thrown, thrown);
        }
        return thrown;
    }

    /** As {@link #fails(Class, Cases.Body)}, and the message is the one given. */
    public static void fails(Class<? extends Throwable> expected, String message, Cases.Body body) {
        equal(message, fails(expected, body).getMessage(), "message of " + expected.getSimpleName());
    }
}
