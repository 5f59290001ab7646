package io.fluxgate.spring.tests;

class WebFluxConformanceTest extends ServerConformance<WebFluxServer> {
    @Override
    WebFluxServer start() {
        return new WebFluxServer();
    }
}
