package app;

import io.fluxgate.spring.RateLimit;
import io.fluxgate.spring.RequestContextCustomizer;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.annotation.Bean;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RestController;

/** A program whose pages are limited by application.yml. */
@SpringBootApplication
@RestController
public class App {
    public static void main(String[] arguments) {
        SpringApplication.run(App.class, arguments);
    }

    @GetMapping("/")
    String page() {
        return "a page\n";
    }

    @GetMapping("/other")
    String other() {
        return "not limited\n";
    }

    @RateLimit(ruleSetId = "jobs")
    @PostMapping("/jobs")
    String startJob() {
        return "started\n";
    }

    /** Rules can match and count by what a program adds. */
    @Bean
    RequestContextCustomizer tenant() {
        return (context, request) -> context.attribute("tenant", request.getHeader("X-Tenant-Id"));
    }
}
