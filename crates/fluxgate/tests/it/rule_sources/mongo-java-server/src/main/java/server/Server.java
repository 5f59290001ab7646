package server;

import de.bwaldvogel.mongo.MongoServer;
import de.bwaldvogel.mongo.MongoVersion;
import de.bwaldvogel.mongo.backend.memory.MemoryBackend;
import java.net.InetSocketAddress;
import java.util.List;

/** A database in memory with change streams, on a free port of the loopback address. */
public class Server {
    /** Drivers refuse the wire version that the server reports by default. */
    private static final MongoVersion VERSION = new MongoVersion() {
        @Override
        public List<Integer> getVersionArray() {
            return List.of(5, 0, 0);
        }

        @Override
        public int getWireVersion() {
            return 13;
        }
    };

    public static void main(String[] arguments) {
        MongoServer server = new MongoServer(new MemoryBackend().version(VERSION));
        server.enableOplog();
        server.bind(new InetSocketAddress("127.0.0.1", 0));
        System.err.println("listening: mongodb://127.0.0.1:" + server.getLocalAddress().getPort() + "/");
    }
}
