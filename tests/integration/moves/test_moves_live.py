# SPDX-License-Identifier: Apache-2.0
"""A job moved live 20 times there and back ends with exactly the unmoved digest: every example and
pattern."""
import re
import unittest

from moving import MovingTest

MODE = "--live"


class MovesLive(MovingTest):
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
                                        "6000",
                                        "--request-ms", "5"], 20, MODE)
        logs = "".join(path.read_text() for path in self.cluster.home.rglob("*.log"))
        self.assertEqual(len(re.findall(r"lanes: id m\d+-\w+ open \d+ within_this_machine 0\b", logs)), 20,
                         logs[-2000:])


class MovesBetweenGpusOfANode(MovingTest):
    nodes, gpus = 1, 2
    targets = ("node-a:1", "node-a:0")

    def test_moves_preserve_hotset(self):
        self.hotset("random", 6, MODE, steps=1500)
        # Within a node, the target copies data to its device from the source's staging memory. Between nodes
        # all data goes through the network.
        logs = "".join(path.read_text() for path in self.cluster.home.rglob("*.log"))
        lanes = re.findall(r"lanes: id m\d+-\w+ open (\d+) within_this_machine (\d+) in_place (\d+)", logs)
        self.assertEqual(len(lanes), 6, logs[-2000:])
        for opened, near, in_place in lanes:
            self.assertEqual(near, opened)
            self.assertEqual(in_place, opened)
