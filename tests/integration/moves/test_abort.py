# SPDX-License-Identifier: Apache-2.0
"""`abort` at each state of a switch ends as by SW-7. A party is stopped (SIGSTOP) at a crash point, the
abort is asked for, the party goes on (SIGCONT): an abort that is accepted ends at the source, one that comes
too late reports that."""
import os
import signal
import unittest

from cluster import run_unmoved
from crash_points import ARGUMENTS
from crashing import CrashingTest
from fault_points import Point

# The held points as (name, role that is held, number, expected answer of abort: "aborted", "late" or either).
HELD = [
    ("preparing", "agent.node-b", Point.TARGET_PREPARING, "aborted"),
    ("precopy", "mover.node-a.0", Point.SOURCE_MOVER_ROUND, "aborted"),
    ("paused", "agent.node-a", Point.SOURCE_PAUSED, "either"),
    ("barrier", "agent.node-a", Point.SOURCE_BARRIER_DURABLE, "either"),
    ("final", "mover.node-a.0", Point.SOURCE_MOVER_FINAL, "aborted"),
    ("verified", "agent.node-b", Point.TARGET_VERIFIED, "either"),
    ("committed", "agent.node-b", Point.TARGET_COMMITTED_DURABLE, "late"),
    ("runs", "agent.node-b", Point.TARGET_RUNS, "late"),
    ("released", "agent.node-a", Point.SOURCE_RELEASED_DURABLE, "late"),
]


class Abort(CrashingTest):
    expected = None

    @classmethod
    def setUpClass(cls):
        cls.expected = run_unmoved("hotset", *ARGUMENTS)["digest"]

    def abort(self, role, number, answer):
        cluster = self.cluster
        cluster.start("job", "hotset", *ARGUMENTS)
        cluster.wait_for_line("job", r"^step 5\b")
        cluster.arm(role, number, "stop")
        moving = cluster.popen("migrate", "job", "--to", "node-b", "--live", "-o", "json", "--timeout", "60s")
        self.wait_until_fired(role, number, moving)
        identity = cluster.json("migrations")[0]["id"]
        asked = cluster.popen("abort", identity)
        kind, _, rest = role.partition(".")
        for pid, command in cluster.processes().items():
            if f"gpumigrate-{kind}" in command and rest.split(".")[0] in command:
                os.kill(pid, signal.SIGCONT)
        asked.communicate(timeout=60)
        output, errors = moving.communicate(timeout=120)
        ended = cluster.finish("job")
        self.assertEqual(ended["digest"], self.expected)
        self.assert_steps_in_order(cluster.log("job"))
        node = cluster.job("job")["node"]
        self.assertEqual(moving.returncode, 0 if node == "node-b" else 2, output + errors)
        if answer != "either":
            self.assertEqual(node, "node-a" if answer == "aborted" else "node-b")


def make_test(role, number, answer):
    return lambda self: self.abort(role, number, answer)


for name, role, number, answer in HELD:
    setattr(Abort, f"test_{name}", make_test(role, number, answer))
