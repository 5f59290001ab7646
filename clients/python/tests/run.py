"""Runs the unit tests: python -m tests.run [NAME …]

Many of them bound times, which a busy machine cannot keep: a test that fails is run again, twice at
most.
"""

import sys
import unittest


def failed_in(suite):
    """Runs tests. Returns how many ran, and the names of those that failed."""
    result = unittest.TextTestRunner().run(suite)
    # A sub-test names its test in `test_case`.
    cases = [getattr(it, "test_case", it) for it, _ in result.failures + result.errors]
    return result.testsRun, list(dict.fromkeys(case.id() for case in cases))


def main():
    loader = unittest.TestLoader()
    names = sys.argv[1:]
    suite = (
        loader.loadTestsFromNames(names) if names else loader.discover("tests", top_level_dir=".")
    )
    count, failed = failed_in(suite)
    for _ in range(2):
        if failed:
            print("again:", *failed, flush=True)
            _, failed = failed_in(loader.loadTestsFromNames(failed))
    print(f"unit tests: {count - len(failed)} passed, {len(failed)} failed")
    sys.exit(1 if failed or not count else 0)


main()
