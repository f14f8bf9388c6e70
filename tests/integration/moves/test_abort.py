# SPDX-License-Identifier: Apache-2.0
"""`abort` at each state of a switch ends as rule 7 says. A party is stopped (SIGSTOP) at a crash point, the abort is asked
for, the party goes on (SIGCONT): an abort that is accepted ends at the source, one that comes too late says so."""
import os
import signal
import unittest

from cluster import ClusterTest, run_unmoved
import test_crash_points
from test_crash_points import ARGUMENTS

# (name, role that is held, number, what abort may answer: "aborted", "late" or either)
HELD = [
    ("preparing", "agent.node-b", 201, "aborted"),
    ("precopy", "mover.node-a.0", 302, "aborted"),
    ("paused", "agent.node-a", 103, "either"),
    ("barrier", "agent.node-a", 104, "either"),
    ("final", "mover.node-a.0", 303, "aborted"),
    ("verified", "agent.node-b", 203, "either"),
    ("committed", "agent.node-b", 204, "late"),
    ("runs", "agent.node-b", 205, "late"),
    ("released", "agent.node-a", 107, "late"),
]


class Abort(ClusterTest):
    expected = None
    wait_until_fired = test_crash_points.CrashPoints.wait_until_fired

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
