# SPDX-License-Identifier: Apache-2.0
"""kill -9 of the standby and of its keeper while the switch is held in a state: in pre-copy, VERIFIED and
COMMITTED. As long as the target does not own the job, the source goes on from the very step it stopped at
(SW-14)."""
import os
import signal
import unittest

from cluster import run_unmoved
from crash_points import ARGUMENTS
from crashing import CrashingTest
from fault_points import Point

HELD = [("precopy", "mover.node-a.0", Point.SOURCE_MOVER_ROUND),
        ("verified", "agent.node-b", Point.TARGET_VERIFIED),
        ("committed", "agent.node-b", Point.TARGET_COMMITTED_DURABLE)]


class StandbyCrashes(CrashingTest):

    def crash(self, role, number, victim):
        cluster = self.cluster
        cluster.start("job", "hotset", *ARGUMENTS)
        cluster.wait_for_line("job", r"^step 5\b")
        before = cluster.pids("examples/hotset")
        cluster.arm(role, number, "stop")
        moving = cluster.popen("migrate", "job", "--to", "node-b", "--live", "--timeout", "60s")
        self.wait_until_fired(role, number, moving)
        standby = [pid for pid in cluster.pids("examples/hotset") if pid not in before and "keeper" not in
                   cluster.processes()[pid]]
        keeper = cluster.pids(f"jobs/{cluster.job('job')['id']}.2")
        self.assertEqual((len(standby), len(keeper)), (1, 1))
        os.kill(standby[0] if victim == "standby" else keeper[0], signal.SIGKILL)
        cluster.kill("gpumigrate-" + role.split(".")[0], signal.SIGCONT)
        output, errors = moving.communicate(timeout=120)
        self.assertIn(moving.returncode, (1, 5), output + errors)
        expected = run_unmoved("hotset", *ARGUMENTS)["digest"]
        self.assertEqual(cluster.finish("job")["digest"], expected)
        self.assert_steps_in_order(cluster.log("job"))
        self.assertEqual(cluster.job("job")["node"], "node-a")


def make_test(role, number, victim):
    return lambda self: self.crash(role, number, victim)


for state, role, number in HELD:
    for victim in ("standby", "keeper"):
        setattr(StandbyCrashes, f"test_{victim}_{state}", make_test(role, number, victim))
