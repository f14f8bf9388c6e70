# SPDX-License-Identifier: Apache-2.0
"""A program that nobody here wrote, and that starts and ends children, threads and sockets all the time: tests of
Python's own library, one move after the other meanwhile. What passes unmoved passes. Skipped where this Python has
come without its tests."""
import importlib.util
import pathlib
import sys
import time
import unittest

from cluster import ClusterTest, run_unmoved

PROGRAM = pathlib.Path(__file__).resolve().parents[1] / "programs" / "pythons_tests.py"
PLACES = ("node-b:0", "node-a:1", "node-a:0")
MIN_MOVES = 10
LIMIT_S = 300


@unittest.skipUnless(importlib.util.find_spec("test.test_threading"), "this Python has no tests of its own")
class PythonsTests(ClusterTest):
    gpus = 2

    def move_until_it_ends(self):
        """How many moves were done. A refusal names a child of that moment, or that the job has ended."""
        done, refused, until = 0, [], time.monotonic() + LIMIT_S
        while self.cluster.job("job")["state"] == "running":
            self.assertLess(time.monotonic(), until, f"the job has not ended after {done} moves: {refused[-3:]}")
            result = self.cluster.run("migrate", "job", "--to", PLACES[done % len(PLACES)], "--live")
            if result.returncode == 0:
                done += 1
            else:
                refused.append(result.stderr)
        print(f"{done} moves, {len(refused)} refused: {refused}", flush=True)
        return done

    def pass_while_moving(self, *modules):
        expected = run_unmoved(sys.executable, str(PROGRAM), *modules)
        self.cluster.start("job", sys.executable, str(PROGRAM), *modules, way=())
        self.cluster.wait_for_line("job", r"^step 1")
        self.assertGreater(self.move_until_it_ends(), MIN_MOVES)
        self.assertEqual(self.cluster.finish("job"), expected)

    def test_tests_of_threads_and_queues_pass_while_moving(self):
        self.pass_while_moving("test.test_threading", "test.test_queue")

    def test_tests_of_event_loops_and_children_pass_while_moving(self):
        self.pass_while_moving("test.test_asyncio.test_subprocess", "test.test_asyncio.test_streams",
                               "test.test_asyncio.test_unix_events")

    def test_tests_of_forks_and_descriptors_pass_while_moving(self):
        self.pass_while_moving("test.test_selectors", "test.test_posix", "test.test_fork1", "test.test_wait4",
                               "test.test_mmap", "test.test_tempfile")
