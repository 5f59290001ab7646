"""Claims over unbounded numbers, decided by Z3.

A claim is `proved` if its negation has no model. A mutant is a wrong version of an algorithm: it is
`refuted` if a model shows how it fails. `System` does the same for transition systems: an invariant
holds at the start and every action keeps it, and a mutant reaches a state that breaks the theorem.
"""

import sys

from z3 import And, Int, ModelRef, Not, Or, Real, Solver, sat, unsat

failures = []


def report(good, kind, name, detail=""):
    print(f"{'ok' if good else 'FAILED':6} {kind:8} {name}{detail}")
    if not good:
        failures.append(name)


def decide(formulas, seconds=60):
    solver = Solver()
    solver.set("timeout", seconds * 1000)
    solver.add(*formulas)
    answer = solver.check()
    return answer, solver.model() if answer == sat else None


def proved(name, given, then):
    """Proves that `given` implies `then`, for all values of all variables."""
    answer, model = decide([*given, Not(then)])
    report(answer == unsat, "proved", name, "" if answer == unsat else f": {answer} {model}")


def refuted(name, given, then):
    """Shows that the claim about a mutant is false."""
    answer, model = decide([*given, Not(then)])
    report(answer == sat, "mutant", name, "" if answer == sat else f": {answer}")


class System:
    """A transition system. An action takes the state and `new`, which makes a parameter of it, and
    returns its guard and the variables that it changes."""

    def __init__(self, name, variables, parameters, assumptions, start, actions, invariant, theorem, sort=Int):
        self.name, self.sort = name, sort
        self.variables, self.parameters = variables.split(), parameters.split()
        self.assumptions, self.start, self.actions = assumptions, start, actions
        self.invariant, self.theorem = invariant, theorem

    def state(self, suffix):
        values = {name: self.sort(name + suffix) for name in self.variables}
        return State({**values, **{name: self.sort(name) for name in self.parameters}})

    def step(self, action, state, suffix):
        guard, changes = action(state, lambda name: self.sort(name + suffix))
        return And(guard), State({**vars(state), **changes})

    def prove(self):
        state = self.state("")
        given = self.assumptions(state)
        for label, claim in self.invariant(state).items():
            proved(f"{self.name}: {label} at the start", [*given, *self.start(state)], claim)
        invariant = list(self.invariant(state).values())
        proved(f"{self.name}: the theorem follows", [*given, *invariant], self.theorem(state))
        for action in self.actions:
            guard, after = self.step(action, state, ".new")
            for label, claim in self.invariant(after).items():
                proved(f"{self.name}: {action.__name__} keeps {label}", [*given, *invariant, guard], claim)

    def refute(self, mutant, replaces=None, depth=6):
        """Finds a run of at most `depth` actions that breaks the theorem, with the mutant in place
        of an action or beside them."""
        actions = [mutant if action is replaces else action for action in self.actions]
        actions += [] if replaces else [mutant]
        first = self.state("0")
        formulas = [*self.assumptions(first), *self.start(first)]
        state = first
        for at in range(1, depth + 1):
            following, ways = self.state(str(at)), []
            for action in actions:
                guard, after = self.step(action, state, f"{at}.{action.__name__}")
                ways.append(And(guard, *[vars(following)[v] == vars(after)[v] for v in self.variables]))
            formulas.append(Or(ways))
            state = following
            answer, _ = decide([*formulas, Not(self.theorem(state))])
            if answer == sat:
                report(True, "mutant", f"{self.name}: {mutant.__name__}", f", in {at} steps")
                return
        report(False, "mutant", f"{self.name}: {mutant.__name__}: nothing breaks within {depth} steps")


class State:
    def __init__(self, values):
        self.__dict__.update(values)


def end():
    """Ends the program; fails if a claim was not proved or a mutant not refuted."""
    if failures:
        sys.exit(f"{len(failures)} failed")
