# SPDX-License-Identifier: Apache-2.0
"""kill -9 at every numbered crash point (libckpt/base/fault_points.def), one per test.

Before COMMITTED the job goes on at the source from the very step it stopped at; from COMMITTED on exactly the target's
instance runs; a killed coordinator takes up where it was. The killed daemon is started again, as a service manager does."""
import pathlib
import re
import unittest

from cluster import run_unmoved
import test_image_crashes
import test_peer_vault_crashes
import test_peer_vault_losses
import test_process_crashes
import test_process_losses
import test_remap
import test_swap_crashes
from crashing import CrashingTest

ARGUMENTS = ["--bytes", "32MiB", "--hot", "4%", "--step-ms", "5", "--seed", "11", "--pattern", "random", "--steps", "1400",
             "--print-every", "1"]

SOURCE, TARGET, EITHER = "node-a", "node-b", None
# (name, role whose process dies, number, node the job must end on)
POINTS = [
    ("source_preparing", "agent.node-a", 101, EITHER),
    ("source_precopy", "agent.node-a", 102, EITHER),
    ("source_paused", "agent.node-a", 103, SOURCE),
    ("source_barrier_durable", "agent.node-a", 104, EITHER),
    ("source_final_sent", "agent.node-a", 105, EITHER),
    ("source_heard_runs", "agent.node-a", 106, TARGET),
    ("source_released_durable", "agent.node-a", 107, TARGET),
    ("target_preparing", "agent.node-b", 201, EITHER),
    ("target_precopy", "agent.node-b", 202, SOURCE),
    ("target_verified", "agent.node-b", 203, SOURCE),
    ("target_committed_durable", "agent.node-b", 204, TARGET),
    ("target_runs", "agent.node-b", 205, TARGET),
    ("target_runs_stated", "agent.node-b", 206, TARGET),
    ("source_mover_attached", "mover.node-a.0", 301, SOURCE),
    ("source_mover_round", "mover.node-a.0", 302, SOURCE),
    ("source_mover_final", "mover.node-a.0", 303, SOURCE),
    ("source_mover_manifest", "mover.node-a.0", 304, EITHER),
    ("target_mover_attached", "mover.node-b.0", 401, SOURCE),
    ("target_mover_round", "mover.node-b.0", 402, SOURCE),
    ("target_mover_final", "mover.node-b.0", 403, SOURCE),
    ("target_mover_verified", "mover.node-b.0", 404, SOURCE),
    ("standby_keeper_started", "keeper.j1.standby", 501, SOURCE),
    ("standby_keeper_gate_opened", "keeper.j1.standby", 502, EITHER),
    ("standby_ready", "rank.j1.standby", 503, SOURCE),
    ("coordinator_begun", "coordinator", 601, EITHER),
    ("coordinator_prepared", "coordinator", 602, EITHER),
    ("coordinator_granted_durable", "coordinator", 603, EITHER),
    ("coordinator_commit_sent", "coordinator", 604, EITHER),
    ("coordinator_heard_committed", "coordinator", 605, TARGET),
    ("coordinator_heard_released", "coordinator", 606, TARGET),
    ("coordinator_closed_durable", "coordinator", 607, TARGET),
]


class CrashPoints(CrashingTest):
    expected = None

    @classmethod
    def setUpClass(cls):
        cls.expected = run_unmoved("hotset", *ARGUMENTS)["digest"]

    def crash(self, role, number, ends_on):
        cluster = self.cluster
        cluster.start("job", "hotset", *ARGUMENTS)
        cluster.wait_for_line("job", r"^step 5\b")
        victims = self.daemons_of(role)
        cluster.arm(role, number)
        # Whatever the command says, it must say it: 0 moved, 1, 2 and 5 (refused) at the source, 6 contact lost.
        moved = cluster.popen("migrate", "job", "--to", "node-b", "--live", "-o", "json", "--timeout", "60s")
        self.wait_until_fired(role, number, moved)
        self.wait_until_dead(victims)
        cluster.up()
        output, errors = moved.communicate(timeout=120)
        self.assertIn(moved.returncode, (0, 1, 2, 5, 6), output + errors)
        ended = cluster.finish("job")
        self.assertEqual(ended["digest"], self.expected)
        self.assert_steps_in_order(cluster.log("job"))
        self.assertEqual(len([p for p in cluster.pids("examples/hotset")]), 0, "an instance is left over")
        node = cluster.job("job")["node"]
        if ends_on is not EITHER:
            self.assertEqual(node, ends_on)
        migration = cluster.json("migrations")[0]
        self.assertFalse(migration["open"], migration)


def make_test(role, number, ends_on):
    return lambda self: self.crash(role, number, ends_on)


for name, role, number, ends_on in POINTS:
    setattr(CrashPoints, f"test_{number}_{name}", make_test(role, number, ends_on))


class EveryPointIsTested(unittest.TestCase):
    def test_tables_are_complete(self):
        table = (pathlib.Path(__file__).parents[3] / "libckpt/base/fault_points.def").read_text()
        numbers = {int(n) for n in re.findall(r"^CKPT_FAULT_POINT\((\d+)", table, re.M)}
        # 608 is reached by an abort (test_abort.py). The others end the keeper or the rank that runs: the job dies, not a switch.
        never = {608, 504, 506, 507, 508}
        tested = {number for _, _, number, _ in POINTS}
        for table in (test_swap_crashes.POINTS, test_process_crashes.POINTS, test_process_losses.POINTS):
            tested |= {number for _, number, _ in table}
        tested |= {number for _, number, _ in test_remap.WHILE_FILLING}
        tested |= {number for _, number in [*test_image_crashes.POINTS, test_image_crashes.PARKED]}
        for table in (test_peer_vault_crashes.COORDINATOR, test_peer_vault_losses.AGENT, test_peer_vault_losses.SERVER):
            tested |= {number for _, number in table}
        # Of images: tests/fault/protect_test.cc and vault_mover_test.cc.
        tested |= {111, 112, 113, 114, 221, 222, 305, 306, 307, 308, 406}
        self.assertEqual(numbers - never, tested)
