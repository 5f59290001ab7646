package io.fluxgate.spring.tests;

class GatewayConformanceTest extends ServerConformance<GatewayServer> {
    @Override
    GatewayServer start() {
        return new GatewayServer();
    }
}
