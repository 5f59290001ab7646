"""Runs the unit tests: python -m tests.run [NAME …]"""

import sys
import unittest


def main():
    loader = unittest.TestLoader()
    names = sys.argv[1:]
    suite = (
        loader.loadTestsFromNames(names) if names else loader.discover("tests", top_level_dir=".")
    )
    result = unittest.TextTestRunner().run(suite)
    # A test may have several sub-tests that fail or are skipped.
    failed = {getattr(it, "test_case", it).id() for it, _ in result.failures + result.errors}
    skipped = {getattr(it, "test_case", it).id() for it, _ in result.skipped} - failed
    for test, reason in result.skipped:
        print(f"skipped: {test}: {reason}")
    passed = result.testsRun - len(failed) - len(skipped)
    print(f"unit tests: {passed} passed, {len(failed)} failed, {len(skipped)} skipped")
    sys.exit(1 if failed or not passed else 0)


main()
