import io.fluxgate.client.Decision;
import io.fluxgate.client.DeniedException;
import io.fluxgate.client.FluxGateClient;
import io.fluxgate.client.Hold;
import io.fluxgate.client.OnError;
import io.fluxgate.client.RequestContext;
import java.time.Duration;

/** Calls of the client. */
public class Calls {
    public static void main(String[] arguments) throws InterruptedException {
        FluxGateClient client = FluxGateClient.builder(arguments[0])
                .onError(OnError.ALLOW)
                .deadline(Duration.ofSeconds(1))
                .build();
        try (client) {
            // Decide and charge. An empty retryAfter means never.
            Decision decision = client.check("pages", it -> it.user("ann").path("/reports"));
            if (!decision.allowed()) {
                System.out.println(decision.outcome() + " " + decision.retryAfter() + " " + decision.violated());
            }

            // Hold a slot, or units whose real number is known later. Released at the end of the block.
            try (Hold hold = client.hold("jobs", it -> it.user("ann").cost(3))) {
                hold.settle(2);
            } catch (DeniedException denied) {
                System.out.println("try again in " + denied.decision().retryAfter());
            }

            // The same without blocking: cancelling the result gives everything back.
            RequestContext bob = RequestContext.builder().user("bob").build();
            client.checkAsync("pages", bob).thenAccept(System.out::println).join();
        }
    }
}
