package corelog.interop.files;

import java.nio.file.Path;
import java.util.List;

/** What the suite of the files does with clients: one command a process. */
public final class Main {
    private Main() {}

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "fill" -> Load.fill(args[1]);
            case "read" -> Reader.readAll(args[1], Path.of(args[2]));
            case "prepare" -> Migration.prepare(args[1]);
            case "go-on" -> Migration.goOn(args[1]);
            case "send" -> Twins.send(List.of(args).subList(1, args.length));
            case "compare" -> System.exit(Twins.compare(Path.of(args[1]), Path.of(args[2]), Path.of(args[3])));
            case "compact" -> System.exit(Compaction.compare(List.of(args).subList(1, args.length)));
            default -> throw new IllegalArgumentException("no command " + args[0]);
        }
    }
}
