package app;

import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;

/** A gateway whose routes and limits are in application.yml. */
@SpringBootApplication
public class Gateway {
    public static void main(String[] arguments) {
        SpringApplication.run(Gateway.class, arguments);
    }
}
