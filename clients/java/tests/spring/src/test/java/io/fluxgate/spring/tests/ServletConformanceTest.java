package io.fluxgate.spring.tests;

class ServletConformanceTest extends ServerConformance<ServletServer> {
    @Override
    ServletServer start() {
        return new ServletServer();
    }
}
