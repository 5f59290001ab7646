package io.fluxgate.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.fluxgate.client.Circuit.Entry;
import org.junit.jupiter.api.Test;

class CircuitTest {
    /** The clock may be near its end, where it becomes negative. */
    private static final long START = Long.MAX_VALUE - Circuit.OPEN_NANOS / 2;

    private final Circuit circuit = new Circuit();

    private void fail(int times) {
        for (int i = 0; i < times; i++) {
            circuit.failed(circuit.enter(START), START);
        }
    }

    @Test
    void threeFailuresInARowOpenIt() {
        fail(2);
        circuit.succeeded(circuit.enter(START));
        fail(2);
        assertEquals(Entry.ORDINARY, circuit.enter(START));
        fail(1);
        assertTrue(circuit.isOpen());
        assertEquals(Entry.REFUSED, circuit.enter(START));
        assertEquals(Entry.REFUSED, circuit.enter(START + Circuit.OPEN_NANOS - 1));
    }

    @Test
    void oneProbeAtATimeIsLetThrough() {
        fail(3);
        long later = START + Circuit.OPEN_NANOS;
        assertEquals(Entry.PROBE, circuit.enter(later));
        assertEquals(Entry.REFUSED, circuit.enter(later));
        circuit.failed(Entry.PROBE, later);
        assertEquals(Entry.REFUSED, circuit.enter(later + Circuit.OPEN_NANOS - 1));
        assertEquals(Entry.PROBE, circuit.enter(later + Circuit.OPEN_NANOS));
        circuit.cancelled(Entry.PROBE);
        assertEquals(Entry.PROBE, circuit.enter(later + Circuit.OPEN_NANOS));
        assertTrue(circuit.succeeded(Entry.PROBE));
        assertFalse(circuit.isOpen());
        assertEquals(Entry.ORDINARY, circuit.enter(later));
    }

    @Test
    void callsThatBeganEarlierDoNotKeepItOpen() {
        Entry early = circuit.enter(START);
        fail(3);
        circuit.failed(early, START + Circuit.OPEN_NANOS - 1);
        assertEquals(Entry.PROBE, circuit.enter(START + Circuit.OPEN_NANOS));
    }
}
