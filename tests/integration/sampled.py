# SPDX-License-Identifier: Apache-2.0
"""The short edition of a long suite: `sampled.py SUITE COUNT` runs so many of its tests, drawn by a seed.

The seed is the commit, so that the same code runs the same tests and the next one runs others; GPUMIGRATE_TEST_SEED sets it. The
whole suite is the test's file itself (label `long`)."""
import importlib
import os
import pathlib
import random
import subprocess
import sys
import unittest


def seed():
    said = os.environ.get("GPUMIGRATE_TEST_SEED")
    if said:
        return said
    head = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=pathlib.Path(__file__).parent, capture_output=True, text=True)
    return head.stdout.strip() or "0"


def flat(tests):
    for test in tests:
        if isinstance(test, unittest.TestSuite):
            yield from flat(test)
        else:
            yield test


def main(suite, count):
    module = importlib.import_module(f"test_{suite}")
    tests = sorted(flat(unittest.defaultTestLoader.loadTestsFromModule(module)), key=lambda test: test.id())
    drawn = seed()
    chosen = sorted(random.Random(f"{suite} {drawn}").sample(tests, min(count, len(tests))), key=lambda test: test.id())
    print(f"{len(chosen)} of {len(tests)} tests of {suite}, GPUMIGRATE_TEST_SEED={drawn}", flush=True)
    result = unittest.TextTestRunner(verbosity=2).run(unittest.TestSuite(chosen))
    sys.exit(not result.wasSuccessful())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
