# SPDX-License-Identifier: Apache-2.0
"""Short editions of tests that go through a list of cases."""
import os
import random


def drawn(cases):
    """All cases, or GPUMIGRATE_TEST_DRAWN many: drawn by the seed, in their order."""
    cases = list(cases)
    count = int(os.environ.get("GPUMIGRATE_TEST_DRAWN", len(cases)))
    chosen = random.Random(os.environ.get("GPUMIGRATE_TEST_SEED", "0")).sample(range(len(cases)), min(count, len(cases)))
    return [cases[at] for at in sorted(chosen)]
