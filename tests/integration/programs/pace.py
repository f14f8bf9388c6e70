# SPDX-License-Identifier: Apache-2.0
"""How fast the programs of tests make steps: a job must last for all that a test does to it, on a slow machine, too."""
import os
import time

SLOW_STEP_S = 0.1


class Pace:
    """`step_s` between two steps; in the last half, a tenth of a second until the file exists that
    $GPUMIGRATE_TEST_HURRY names. `Cluster.finish` makes it. Without that variable nothing is slow."""

    def __init__(self, steps, step_s):
        self.slow_from, self.step_s = steps // 2, step_s
        self.hurry = os.environ.get("GPUMIGRATE_TEST_HURRY")

    def wait(self, step):
        if step < self.slow_from or not self.hurry:
            time.sleep(self.step_s)
        elif os.path.exists(self.hurry):
            self.hurry = None
        else:
            time.sleep(SLOW_STEP_S)
