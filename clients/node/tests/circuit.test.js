import assert from "node:assert/strict";
import { test } from "node:test";

import { Circuit } from "../node_modules/fluxgate/src/circuit.js";

test("three failures in a row open the circuit for 500 ms, then one call at a time probes", () => {
  const circuit = new Circuit();
  for (const now of [0, 1]) circuit.failed(circuit.admit(now), now);
  circuit.succeeded();
  const early = circuit.admit(2);
  for (const now of [2, 3, 4]) circuit.failed(circuit.admit(now), now);
  assert.equal(circuit.admit(5), undefined);
  // A call from before does not prolong the pause.
  circuit.failed(early, 400);
  assert.equal(circuit.admit(503), undefined);
  const probe = circuit.admit(504);
  assert.equal(probe.isProbe, true);
  assert.equal(circuit.admit(505), undefined);
  circuit.failed(probe, 600);
  assert.equal(circuit.admit(1_099), undefined);
  assert.equal(circuit.admit(1_100).isProbe, true);
  circuit.succeeded();
  assert.equal(circuit.admit(1_101).isProbe, false);
  assert.equal(circuit.admit(1_101).isProbe, false);
});
