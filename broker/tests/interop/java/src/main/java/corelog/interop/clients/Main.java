package corelog.interop.clients;

import corelog.interop.common.Cases;

/** The suite of the Java clients: every group of cases, one after the other. */
public final class Main {
    private Main() {}

    public static void main(String[] args) {
        Cases cases = new Cases();
        try (Broker broker = new Broker(System.getenv("INTEROP_BOOTSTRAP"))) {
            new RecordCases(broker, cases).run();
            new TimeCases(broker, cases).run();
            new AdminCases(broker, cases).run();
            new ErrorCases(broker, cases).run();
        }
        System.exit(cases.exitCode());
    }
}
