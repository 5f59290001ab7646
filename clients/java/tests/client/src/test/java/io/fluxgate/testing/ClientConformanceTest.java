package io.fluxgate.testing;

import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.api.extension.ExtendWith;

/** Every case of a client, against the real service. */
@ExtendWith(LeakCheck.class)
class ClientConformanceTest {
    @TestFactory
    Stream<DynamicTest> cases() {
        Cases cases = new Cases();
        return cases.of("client").stream().map(one -> DynamicTest.dynamicTest((String) one.get("name"), () -> {
            try (CaseRun run = new CaseRun(cases, one, null)) {
                run.run();
            }
        }));
    }
}
