# SPDX-License-Identifier: Apache-2.0
"""Ranks of a job move while all of them run: one, several, or all, on one node or over several. The digests are those of
ranks that nobody touched, and each step is computed once."""
import re
import unittest

from cluster import EXAMPLES, final_object
from crashing import CrashingTest
from ranks_by_hand import run_by_hand
from waiting import eventually

STEPS = ("--params", "20000", "--print-every", "1")


def steps_of(log):
    return [int(step) for step in re.findall(r"^step (\d+)", log, re.M)]


class GangMovesTest(CrashingTest):
    nodes, gpus = 3, 4

    def start(self, ranks=4, steps=300, options=None, more=(), pace="--step-ms 15"):
        self.training = (*STEPS, "--steps", str(steps), *more)
        self.ranks = ranks
        self.cluster.call("run", "--detach", "--name", "train", *(options or ("--ranks", str(ranks))), "--cooperative", "--",
                          "/bin/sh", "-c", f'exec "$0" {pace} "$@"', EXAMPLES / "charlm-dp", *self.training)
        self.cluster.wait_for_line("train", r"^step 5\b")

    def logs(self):
        return [self.cluster.call("logs", "train", "--rank", str(rank)).stdout for rank in range(self.ranks)]

    def gpus_of_job(self):
        return self.cluster.json("describe", "train")["gpus"]

    def migrate(self, *options):
        return self.cluster.call("migrate", "train", *options)

    def settled(self):
        """Also the other ranks' migrations are over."""
        eventually(lambda: not any(m["open"] for m in self.cluster.json("migrations")), "all migrations have ended")

    def check_end(self):
        self.assertEqual(self.cluster.run("wait", "train").returncode, 0, self.cluster.run("describe", "train").stdout)
        logs = self.logs()
        got = {final_object(log)["digest"] for log in logs}
        expected = {result["digest"] for result in run_by_hand(self.ranks, *self.training)}
        self.assertEqual(got, expected, "\n".join(log[-400:] for log in logs))
        for log in logs:
            self.assertEqual(steps_of(log), list(range(1, steps_of(log)[-1] + 1)), "each step was computed once")


@unittest.skipUnless((EXAMPLES / "charlm-dp").exists(), "there was no nccl.h")
class GangMoves(GangMovesTest):
    def test_one_rank_moves_and_comes_back(self):
        self.start(options=("--ranks", "4", "--nodes", "node-a,node-b"))
        before = self.gpus_of_job()
        self.migrate("--rank", "3", "--to", "node-c")
        self.settled()
        after = self.gpus_of_job()
        self.assertEqual(after[:3], before[:3])
        self.assertTrue(after[3].startswith("node-c:"), after)
        self.migrate("--rank", "3", "--to", "node-b")
        self.settled()
        self.check_end()
