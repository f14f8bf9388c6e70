# SPDX-License-Identifier: Apache-2.0
"""A job moved by stop-and-copy 20 times there and back ends with exactly the unmoved digest: every example
and pattern."""
import unittest

from moving import MovingTest

MODE = "--stop-copy"


class MovesStopCopy(MovingTest):
    def test_moves_preserve_hotset_with_strided_writes(self):
        self.hotset("stride", 20, MODE, steps=2000)

    def test_moves_preserve_hotset_with_random_writes(self):
        self.hotset("random", 20, MODE, steps=2000, extra=["--drift", "1%"])

    def test_moves_preserve_hotset_with_flipped_writes(self):
        self.hotset("flip", 20, MODE, steps=2000)

    def test_moves_preserve_hotset_with_appended_writes(self):
        self.hotset("append", 20, MODE, steps=2000)

    def test_moves_preserve_charlm(self):
        self.move_and_compare("charlm", ["--params", "200000", "--steps", "3000", "--seed", "3"], 20, MODE)

    def test_moves_preserve_serve(self):
        self.move_and_compare("serve", ["--weights", "48MiB", "--cache", "16MiB", "--seed", "5", "--requests",
                                        "4000",
                                        "--request-ms", "5"], 20, MODE)
