package io.fluxgate.spring.tests;

import java.util.LinkedHashMap;
import java.util.Map;
import org.springframework.boot.Banner;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.WebApplicationType;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.support.GenericApplicationContext;
import org.springframework.util.ClassUtils;

/** A running Spring program. */
final class Program implements AutoCloseable {
    private final ConfigurableApplicationContext context;

    private Program(ConfigurableApplicationContext context) {
        this.context = context;
    }

    static Program servlet(Class<?> main, Map<String, String> properties) {
        return start(WebApplicationType.SERVLET, false, main, properties);
    }

    static Program webFlux(Class<?> main, Map<String, String> properties) {
        return start(WebApplicationType.REACTIVE, false, main, properties);
    }

    static Program gateway(Class<?> main, Map<String, String> properties) {
        return start(WebApplicationType.REACTIVE, true, main, properties);
    }

    private static Program start(
            WebApplicationType type, boolean isGateway, Class<?> main, Map<String, String> properties) {
        Map<String, Object> all = new LinkedHashMap<>(properties);
        all.put("server.port", "0");
        all.put("server.address", "127.0.0.1");
        all.put("logging.level.root", "error");
        all.put("spring.cloud.gateway.server.webflux.enabled", String.valueOf(isGateway));
        // Clients that leave in the middle of a response must not be waited for.
        all.put("server.shutdown", "immediate");
        SpringApplication program = new SpringApplication(main);
        program.setWebApplicationType(type);
        program.setBannerMode(Banner.Mode.OFF);
        program.setDefaultProperties(all);
        if (type == WebApplicationType.REACTIVE) {
            program.addInitializers(Program::useNetty);
        }
        return new Program(program.run());
    }

    /** Tomcat, which is there for the servlets, would serve WebFlux as well. Spring Boot 4 moved the class. */
    private static void useNetty(ConfigurableApplicationContext context) {
        String name = "netty.NettyReactiveWebServerFactory";
        ClassLoader loader = Program.class.getClassLoader();
        String old = "org.springframework.boot.web.embedded." + name;
        Class<?> factory = ClassUtils.resolveClassName(
                ClassUtils.isPresent(old, loader) ? old : "org.springframework.boot.reactor." + name, loader);
        ((GenericApplicationContext) context).registerBean("netty", factory);
    }

    int port() {
        return Integer.parseInt(context.getEnvironment().getProperty("local.server.port"));
    }

    <T> T bean(Class<T> type) {
        return context.getBean(type);
    }

    @Override
    public void close() {
        context.close();
    }
}
